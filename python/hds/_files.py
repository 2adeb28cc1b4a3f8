"""The files through which weights reach other processes, and the log of weights."""

from __future__ import annotations

import fcntl
import os
import time
from pathlib import Path

#: How the names of files begin through which weights reach worker processes.
LIVE_PREFIX = "hds-weights-"


def check_log(path: str) -> None:
    """Whether a log can be written there; the first batch does it."""
    if os.path.exists(path) and not os.path.isfile(path):
        raise ValueError(f"weight_log: {path} is no regular file")
    folder = os.path.dirname(path) or "."
    if not os.path.isdir(folder):
        raise FileNotFoundError(f"weight_log: there is no folder {folder}")


def remove_left(folder: Path) -> None:
    """Removes what killed processes of this user left there: files that nobody holds the lock of any more."""
    for path in folder.glob(f"{LIVE_PREFIX}*"):
        try:
            with path.open("rb") as file:
                facts = os.fstat(file.fileno())
                # One just made has no lock yet.
                if facts.st_uid == os.getuid() and time.time() - facts.st_ctime > 60:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    path.unlink()
        except OSError:
            continue


def remove(path: str, process: int) -> None:
    if os.getpid() == process:
        try:
            os.unlink(path)
        except OSError:
            pass
