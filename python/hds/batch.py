"""What a step trains on: a dict of arrays that travels between processes as few bytes."""

from __future__ import annotations

import os
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
        own = {name: value for name, value in self.__dict__.items() if name != "_packed"}
        if self._packed is None or torch is None:
            return _rebuild, (None, dict(self), list(self), own, os.getpid())
        # As few bytes in place of shared memory for each array: see pack. Values that somebody replaced go by themselves.
        base, layout = self._packed
        inside, others = [], dict(self)
        for entry in layout:
            key, dtype, start, shape = entry
            value = self.get(key)
            # A plain tensor of these bytes and nothing else: whatever has more to it goes as torch sends it.
            if (
                type(value) is torch.Tensor
                and value.layout == torch.strided
                and not (value.requires_grad or value.is_neg() or value.is_conj())
                and value.data_ptr() == base.data_ptr() + 8 * start
                and list(value.shape) == list(shape)
                and str(value.dtype) == f"torch.{dtype}"
                and value.is_contiguous()
            ):
                inside.append(entry)
                del others[key]
        for key, value in others.items():
            # torch's sending forgets that these are to be turned round.
            if isinstance(value, torch.Tensor) and (value.is_neg() or value.is_conj()):
                others[key] = value.resolve_neg().resolve_conj()
        packed = _native.pack(base.numpy(), inside) if inside else None
        return _rebuild, (packed, others, list(self), own, os.getpid())


def _rebuild(
    packed: bytes | None,
    others: dict[str, Any],
    order: list[str],
    own: dict[str, Any],
    process: int,
) -> Batch:
    values = dict(others)
    if packed is not None:
        values |= {key: torch.from_numpy(array) for key, array in _native.unpack(packed).items()}
    batch = Batch((key, values[key]) for key in order)
    batch.__dict__.update(own)
    # A copy made in the same process has not arrived from anywhere.
    dataset = None if batch._token is None or process == os.getpid() else DATASETS.get(batch._token)
    if dataset is not None:
        dataset._arrived(batch)
    return batch


def _refuse_collating(batch: Any, **_: Any) -> Any:
    raise TypeError(
        f"an item of hds.StreamingDataset is a whole batch, and the DataLoader is about to join {len(batch)} of them: make it "
        "with DataLoader(dataset, batch_size=None), or use hds.DataLoader(dataset); StreamingDataset(batch_size=...) says how "
        "many sequences a batch has"
    )


if torch is not None:
    try:
        from torch.utils.data._utils.collate import default_collate_fn_map
    except ImportError:  # where torch names it otherwise, batches are joined as any dicts are
        pass
    else:
        default_collate_fn_map[Batch] = _refuse_collating


class Carried:
    """What a collate_fn made of a batch, on its way with the batch's facts; another process gets the value alone."""

    def __init__(self, value: Any, batch: Batch):
        self.value = value
        self.facts = Batch()
        self.facts.__dict__.update({name: v for name, v in batch.__dict__.items() if name != "_packed"})

    def __reduce__(self) -> Any:
        return _arrive, (self.value, self.facts)


def _arrive(value: Any, facts: Batch) -> Any:
    # The facts were counted when they were made again.
    return value


class Collated:
    """A collate_fn whose results are counted as batches, whatever they are."""

    def __init__(self, collate_fn: Any):
        self.collate_fn = collate_fn

    def __call__(self, batch: Any) -> Any:
        facts = batch.__copy__() if isinstance(batch, Batch) else None
        value = self.collate_fn(batch)
        same = isinstance(value, Batch) and facts is not None and value._token == facts._token
        return value if facts is None or same else Carried(value, facts)
