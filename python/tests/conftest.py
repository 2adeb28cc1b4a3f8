"""A small index of four domains, built by hds-index itself, and its tokens read without hds."""

from __future__ import annotations

import json
import os
import random
import subprocess
from pathlib import Path

import numpy as np
import pytest

DOMAINS = ["books", "code", "law", "web"]
ROOT = Path(__file__).resolve().parents[2]


def program() -> Path:
    """hds-index: HDS_INDEX_PROGRAM, or where cargo puts it."""
    if "HDS_INDEX_PROGRAM" in os.environ:
        return Path(os.environ["HDS_INDEX_PROGRAM"])
    return Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "release" / "hds-index"


def write_corpus(folder: Path) -> None:
    """Four domains of invented words, documents of 3 to 400 bytes."""
    words = random.Random(7)
    folder.mkdir(parents=True)
    for number, name in enumerate(DOMAINS):
        with (folder / f"{name}.jsonl").open("w") as out:
            for _ in range((40, 90, 25, 150)[number]):
                count = words.randint(1, 80)
                text = " ".join(words.choice("abcdefghijklmnopq") * words.randint(1, 6) for _ in range(count))
                out.write(json.dumps({"text": text}) + "\n")


def build(corpus: Path, index: Path, *options: str) -> None:
    """Builds an index, or skips where there is no hds-index."""
    if not program().is_file():
        pytest.skip(f"no {program()}; build it with `cargo build --release -p hds-indexer`")
    command = [program(), "build", corpus, "-o", index, *options]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)


@pytest.fixture(scope="session")
def index(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("hds")
    write_corpus(folder / "corpus")
    build(folder / "corpus", folder / "index", "--valid-fraction", "0.1", "--shard-tokens", "4000")
    return folder / "index"


@pytest.fixture(scope="session")
def tokens(index: Path) -> dict[str, np.ndarray]:
    """The training tokens of each domain, from the files alone."""
    manifest = json.loads((index / "manifest.json").read_text())
    streams = {}
    for domain in manifest["domains"]:
        files = [index / shard["tokens_file"]["path"] for shard in domain["train"]["shards"]]
        parts = [np.fromfile(file, dtype="<u2") for file in files]
        streams[domain["name"]] = np.concatenate(parts)
    return streams


@pytest.fixture(scope="session")
def end_of_document(index: Path) -> int:
    manifest = json.loads((index / "manifest.json").read_text())
    return manifest["tokenizer"]["end_of_document"]
