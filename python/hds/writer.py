"""Weights for the datasets of other processes."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from . import _native, arguments


class WeightsWriter:
    """Publishes weights to the datasets of other processes: they name the file as ``weights_file``.

    One writer a file. Weights are {domain: weight}, or one number a domain in the order of ``domains``; they sum to 1.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        domains: Iterable[str],
        weights: Any,
        *,
        step: int = 0,
        version: int = 1,
    ) -> None:
        if isinstance(domains, (str, bytes)) or not isinstance(domains, Iterable):
            raise TypeError(f"domains: {arguments.shown(domains)}, must be a list of names")
        self._domains = list(domains)
        for name in self._domains:
            if not isinstance(name, str):
                raise TypeError(f"domains: {arguments.shown(name)} is no name")
            if not name.isprintable():
                raise ValueError(f"domains: {name!r} is no name; it has characters that cannot be printed")
        self._writer = _native.WeightsWriter(
            arguments.path("path", path),
            self._domains,
            arguments.weights(weights, self._domains),
            step=arguments.whole("step", step, most=1 << 60),
            version=arguments.whole("version", version, most=arguments.I64),
        )

    def set_weights(self, weights: Any) -> int:
        """Puts weights in force for every batch that nobody has asked for yet; returns their version."""
        return self._writer.set_weights(arguments.weights(weights, self._domains))

    def set_horizon(self, step: int | None) -> None:
        """Lets datasets draw the batches below ``step`` and no others; ``None`` lets them draw all."""
        self._writer.set_horizon(arguments.maybe_whole("step", step))

    @property
    def frontier(self) -> int:
        """Batches below this have been drawn, so their weights are settled."""
        return self._writer.frontier

    @property
    def version(self) -> int:
        """Version of the newest weights."""
        return self._writer.version

    @property
    def domains(self) -> list[str]:
        """The names, in the order of the weights."""
        return list(self._domains)

    @property
    def path(self) -> Path:
        """The file."""
        return Path(self._writer.path)
