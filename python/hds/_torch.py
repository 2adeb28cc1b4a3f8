"""torch where it is installed, ``None`` where not; and which part of the world this process is."""

from __future__ import annotations

import os
from typing import Any

from . import arguments

try:
    import torch
    import torch.utils.data
except ImportError:
    torch = None  # type: ignore[assignment]

#: The class that datasets extend: torch's, so that its DataLoader knows them, or a plain one without torch.
IterableDataset: Any = object if torch is None else torch.utils.data.IterableDataset


def worker() -> tuple[int, int] | None:
    """Number of this DataLoader worker and of all; ``None`` in the main process."""
    info = None if torch is None else torch.utils.data.get_worker_info()
    return None if info is None else (info.id, info.num_workers)


def place(rank: int | None, world_size: int | None) -> tuple[int, int]:
    """Rank and world size: as given, else torch.distributed's, else what torchrun set, else 0 of 1."""
    rank = arguments.maybe_whole("rank", rank)
    world_size = arguments.maybe_whole("world_size", world_size, least=1)
    if (rank is None) != (world_size is None):
        raise ValueError("give both rank and world_size, or neither")
    if rank is None and torch is not None and torch.distributed.is_available() and torch.distributed.is_initialized():
        rank, world_size = torch.distributed.get_rank(), torch.distributed.get_world_size()
    elif rank is None and ("RANK" in os.environ or "WORLD_SIZE" in os.environ):
        rank, world_size = _environment("RANK", 0), _environment("WORLD_SIZE", 1)
    if rank is None or world_size is None:
        return 0, 1
    if rank >= world_size:
        raise ValueError(f"rank: {rank}, must be below world_size {world_size}")
    return rank, world_size


def _environment(name: str, alone: int) -> int:
    other = {"RANK": "WORLD_SIZE", "WORLD_SIZE": "RANK"}[name]
    text = os.environ.get(name)
    if text is None:
        if os.environ[other] == str(1 - alone):
            return alone
        # Every process would take itself for the only one, and read the same.
        raise ValueError(
            f"the environment has {other}={os.environ[other]!r} and no {name}; set both, or give rank and world_size"
        )
    if not text.isdecimal():
        raise ValueError(f"the environment's {name} is {text!r}, no whole number; give rank and world_size")
    return int(text)
