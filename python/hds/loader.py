"""torch's DataLoader, counting what the training loop takes: weights without delay, states without doubt."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch.utils.data

from . import arguments as check
from .batch import Batch, Carried, Collated
from .dataset import StreamingDataset


class DataLoader(torch.utils.data.DataLoader):
    """A DataLoader over a StreamingDataset, for any number of workers.

    weights_lag: weights set after batch t govern batch t + 1 + weights_lag. 0 is exact and lets no worker draw
        ahead (reading ahead from disk goes on); None lets them run as far as ``prefetch_factor`` says, and weights
        govern whatever nobody has begun: each batch says which (``weights_version``).
    A ``collate_fn`` gets a batch and may return anything. Other arguments are torch's; ``batch_size`` is the dataset's.
    """

    def __init__(
        self,
        dataset: StreamingDataset,
        *,
        num_workers: int = 0,
        weights_lag: int | None = 0,
        **arguments: Any,
    ) -> None:
        if not isinstance(dataset, StreamingDataset):
            raise TypeError(f"dataset: {type(dataset).__name__} is no hds.StreamingDataset")
        if arguments.pop("batch_size", None) is not None:
            raise ValueError("batch_size: the dataset has it, and yields whole batches")
        if arguments.get("persistent_workers"):
            raise ValueError("persistent_workers: workers begin where the training loop stands, so not here")
        num_workers = check.whole("num_workers", num_workers, most=check.U32)
        weights_lag = check.maybe_whole("weights_lag", weights_lag, most=check.U32)
        if arguments.get("collate_fn") is not None:
            if not callable(arguments["collate_fn"]):
                raise TypeError(f"collate_fn: {check.shown(arguments['collate_fn'])} cannot be called")
            arguments["collate_fn"] = Collated(arguments["collate_fn"])
        super().__init__(dataset, batch_size=None, num_workers=num_workers, **arguments)
        self.weights_lag = weights_lag

    def __iter__(self) -> Iterator[Batch]:  # type: ignore[override]
        dataset: StreamingDataset = self.dataset
        dataset._lent = False
        now = dataset._begin_iteration()
        dataset._position = dataset._where()
        dataset._counted = dataset._counting = True
        dataset._lent = self.num_workers == 0
        self._allow()
        batches: Any = super().__iter__()
        try:
            while True:
                try:
                    batch = next(batches)
                    if isinstance(batch, Carried):
                        batch = batch.value
                except StopIteration:
                    return
                dataset._taken()
                yield batch
                # Before the horizon moves: it may be another iteration's by now.
                dataset._check_iteration(now)
                self._allow()
        finally:
            # Workers end before the horizon opens, so that none draws a batch that nobody takes.
            is_last = now == (dataset._generation, dataset._iteration)
            if is_last:
                dataset._core.stop_readers()
            del batches
            if is_last:
                dataset._counting = dataset._lent = False
                dataset._core.set_horizon(None)

    def _allow(self) -> None:
        dataset: StreamingDataset = self.dataset
        lag = self.weights_lag
        dataset._core.set_horizon(None if lag is None else dataset._position + 1 + lag)

    def state_dict(self) -> dict[str, Any]:
        """As the dataset's."""
        return self.dataset.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """As the dataset's."""
        self.dataset.load_state_dict(state)
