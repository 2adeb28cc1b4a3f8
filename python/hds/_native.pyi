from os import PathLike
from typing import Any

import numpy.typing as npt

__version__: str

class HdsError(Exception):
    """An index, a state or a file of weights cannot be used."""

class DomainEnded(HdsError):
    """A domain, or every domain with weight, was gone through as often as domain_end allows."""

class WeightsWriter:
    """Publishes weights to the datasets of other processes: they name the file as weights_file.

    One writer a file. Weights are one number a domain, in the order of domains, and sum to 1.
    """

    def __init__(
        self,
        path: str | PathLike[str],
        domains: list[str],
        weights: list[float],
        *,
        step: int = 0,
        version: int = 1,
    ) -> None: ...
    def set_weights(self, weights: list[float]) -> int:
        """Puts weights in force for every batch that nobody has asked for yet; returns their version."""

    def set_horizon(self, step: int | None) -> None:
        """Lets datasets draw the batches below step and no others; None lets them draw all."""

    @property
    def frontier(self) -> int:
        """Batches below this have been drawn, so their weights are settled."""

    @property
    def version(self) -> int: ...
    @property
    def domains(self) -> list[str]: ...
    @property
    def path(self) -> PathLike[str]: ...

def pack(memory: npt.NDArray[Any], layout: list[tuple[str, str, int, list[int]]]) -> bytes:
    """Arrays of a batch as bytes: those of the layout, which lie in its memory."""

def unpack(packed: bytes) -> dict[str, npt.NDArray[Any]]:
    """The arrays that pack made bytes of, in memory of an earlier batch."""

class Core:
    def __init__(
        self,
        index: str,
        *,
        sequence_length: int,
        batch_size: int,
        seed: int,
        rank: int,
        world_size: int,
        draws: str,
        minimum_per_domain: int,
        order: str,
        domain_end: str,
        cap: int | None,
        packing: str,
        padding_token: int | None,
        read_ahead_batches: int,
        access_by: str,
        cache: str | None,
        cache_limit: str,
        cache_piece: str,
        fetch: str,
    ) -> None: ...
    def publish_at(self, path: str, weights: list[float], version: int, step: int) -> None: ...
    def read_from(self, path: str) -> None: ...
    def replay(self, path: str) -> None: ...
    def set_weights(self, weights: list[float]) -> int: ...
    def set_horizon(self, step: int | None) -> None: ...
    def stop_readers(self) -> None: ...
    def weights_at(self, step: int) -> tuple[int, list[float]]: ...
    def natural_weights(self) -> list[float]: ...
    def state(self, step: int) -> str: ...
    def restore(self, text: str, with_weights: bool) -> tuple[int, int, list[float]]: ...
    def note(self, step: int, samples: list[int]) -> None: ...
    def unbroken(self, step: int) -> int: ...
    def samples_before(self, step: int) -> list[int]: ...
    def log_to(self, path: str, step: int) -> None: ...
    def log_batch(self, step: int) -> None: ...
    def stream(
        self,
        *,
        begin: int,
        end: int | None,
        worker: int,
        workers: int,
        keys: list[str],
        labels: str,
        ignore_index: int,
        mask_boundaries: bool,
        reset_position_ids: bool,
        packed: bool,
    ) -> Stream: ...
    @property
    def cache_troubles(self) -> dict[str, int]: ...
    @property
    def rows(self) -> int: ...
    @property
    def domains(self) -> list[str]: ...
    @property
    def domain_tokens(self) -> list[int]: ...
    @property
    def domain_samples(self) -> list[int]: ...
    @property
    def fingerprint(self) -> str: ...
    @property
    def vocabulary(self) -> int: ...
    @property
    def end_of_document(self) -> int: ...
    @property
    def path(self) -> PathLike[str]: ...

class Stream:
    def next(
        self,
    ) -> (
        tuple[
            dict[str, npt.NDArray[Any]],
            tuple[int, int, list[int], list[int]],
            tuple[npt.NDArray[Any], list[tuple[str, str, int, list[int]]]] | None,
        ]
        | None
    ): ...
    def go_on(self, begin: int, end: int | None) -> None: ...
    @property
    def step(self) -> int: ...
