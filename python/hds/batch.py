"""What a step trains on: a dict of arrays that travels between processes as one piece of memory."""

from __future__ import annotations

import weakref
from typing import Any

import numpy as np

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
            return _rebuild, (None, [], dict(self), list(self), facts, self._token)
        # One tensor of the whole memory in place of one for each key: sending a tensor costs the same
        # whatever its size. Values that somebody replaced go by themselves.
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
        return _rebuild, (base, inside, others, list(self), facts, self._token)


def _rebuild(
    base: Any,
    layout: list[tuple[str, str, int, list[int]]],
    others: dict[str, Any],
    order: list[str],
    facts: tuple[int, int, tuple[int, ...], tuple[int, ...]],
    token: str | None,
) -> Batch:
    values = dict(others)
    if layout:
        for key, dtype, start, shape in layout:
            kind = np.dtype(dtype)
            count = int(np.prod(shape))
            words = -(-count * kind.itemsize // 8)
            part = base[start : start + words].view(getattr(torch, dtype))[:count]
            values[key] = part.view(shape)
    batch = Batch((key, values[key]) for key in order)
    batch.step, batch.weights_version, batch.samples, batch.ended = facts
    dataset = None if token is None else DATASETS.get(token)
    if dataset is not None:
        dataset._arrived(batch)
    return batch
