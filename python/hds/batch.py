"""What a step trains on: a dict of arrays that travels between processes as few bytes."""

from __future__ import annotations

import weakref
from typing import Any

from . import _native
from ._torch import torch

#: Datasets of this process by their token, so that a batch that arrives from a worker is counted there.
DATASETS: weakref.WeakValueDictionary[str, Any] = weakref.WeakValueDictionary()


class Batch(dict):
    """A dict of arrays, with what governs them as attributes.

    ``step``: number of the global batch, from 0. ``weights_version``: version of the weights it was drawn
    from. ``samples``: samples taken of each domain up to and with it. ``ended``: numbers of the domains that
    have been gone through as often as ``domain_end`` allows; their weight goes to the others.
    """

    step: int = -1
    weights_version: int = 0
    samples: tuple[int, ...] = ()
    ended: tuple[int, ...] = ()
    _token: str | None = None
    _packed: tuple[Any, list[tuple[str, str, int, list[int]]]] | None = None

    def __copy__(self) -> Batch:
        copy = Batch(self)
        copy.__dict__.update(self.__dict__)
        return copy

    def __reduce_ex__(self, protocol: Any) -> Any:
        facts = (self.step, self.weights_version, self.samples, self.ended)
        if self._packed is None or torch is None:
            return _rebuild, (None, dict(self), list(self), facts, self._token)
        # As few bytes in place of shared memory for each array: see pack. Values that somebody replaced go by themselves.
        base, layout = self._packed
        inside, others = [], dict(self)
        for entry in layout:
            key, dtype, start, shape = entry
            value = self.get(key)
            if (
                isinstance(value, torch.Tensor)
                and value.data_ptr() == base.data_ptr() + 8 * start
                and list(value.shape) == list(shape)
                and str(value.dtype) == f"torch.{dtype}"
                and value.is_contiguous()
            ):
                inside.append(entry)
                del others[key]
        packed = _native.pack(base.numpy(), inside) if inside else None
        return _rebuild, (packed, others, list(self), facts, self._token)


def _rebuild(
    packed: bytes | None,
    others: dict[str, Any],
    order: list[str],
    facts: tuple[int, int, tuple[int, ...], tuple[int, ...]],
    token: str | None,
) -> Batch:
    values = dict(others)
    if packed is not None:
        values |= {key: torch.from_numpy(array) for key, array in _native.unpack(packed).items()}
    batch = Batch((key, values[key]) for key in order)
    batch.step, batch.weights_version, batch.samples, batch.ended = facts
    dataset = None if token is None else DATASETS.get(token)
    if dataset is not None:
        dataset._arrived(batch)
    return batch
