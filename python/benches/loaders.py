"""hds beside the plain NumPy gather and other loaders, on the same tokens, in one run.

    cargo build --release --workspace --bins
    pip install hds torch litdata datasets grain megatron-core mosaicml-streaming    # which of them you like
    taskset -c 1 python python/benches/loaders.py --program target/release/hds-index

Ten domains, 50 M tokens of u16, L = 1024, B = 32, int64 tensors, warm cache. Each side reads --batches batches a
round; rounds take turns, and the best median of a batch over the rounds counts, as other work on the machine only
ever slows a round down. Prints a Markdown table.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import torch

import hds
from loader_peers import PEERS

DOMAINS, TOKENS, L, B = 10, 5_000_000, 1024, 32


def make_index(program: str, folder: Path) -> Path:
    """An index of bytes as tokens: documents of 50 to 2,000 tokens."""
    corpus = folder / "corpus"
    corpus.mkdir()
    random.seed(0)
    for domain in range(DOMAINS):
        letters = np.random.default_rng(domain).integers(97, 123, TOKENS, dtype=np.uint8)
        letters[:: 6 + domain] = 32
        text = letters.tobytes().decode()
        with (corpus / f"domain-{domain}.jsonl").open("w") as out:
            start = 0
            while start < TOKENS:
                length = random.randint(50, 2000)
                out.write(json.dumps({"text": text[start : start + length]}) + "\n")
                start += length
    index = folder / "index"
    command = [program, "build", str(corpus), "-o", str(index), "--valid-fraction", "0"]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    shutil.rmtree(corpus)
    return index


def token_files(index: Path) -> list[list[Path]]:
    manifest = json.loads((index / "manifest.json").read_text())
    shards = [domain["train"]["shards"] for domain in manifest["domains"]]
    return [[index / shard["tokens_file"]["path"] for shard in domain] for domain in shards]


class Gather:
    """What anybody writes first: random windows of memory-mapped files, to int64; no features at all."""

    def __init__(self, index: Path):
        self.maps = [np.memmap(files[0], dtype=np.uint16, mode="r") for files in token_files(index)]
        self.random = np.random.default_rng(0)

    def __iter__(self):
        while True:
            domains = self.random.integers(0, DOMAINS, B)
            places = self.random.random(B)
            out = np.empty((B, L + 1), dtype=np.int64)
            for row, (domain, place) in enumerate(zip(domains, places)):
                tokens = self.maps[domain]
                start = int(place * (len(tokens) - L - 1))
                out[row] = tokens[start : start + L + 1]
            yield torch.from_numpy(out)


class GatherDataset(torch.utils.data.IterableDataset):
    """The same for workers."""

    def __init__(self, index: Path):
        self.index = index

    def __iter__(self):
        return iter(Gather(self.index))


def peers(program: str, index: Path, folder: Path, workers: int) -> dict:
    """What is installed of the other loaders; says what is not."""
    started = {}
    files = [domain[0] for domain in token_files(index)]
    for name, make in PEERS.items():
        try:
            started[name] = make(files, program, index, folder, workers)
        except ImportError as missing:
            print(f"{name}: not installed ({missing})")
        except Exception as error:  # one of another version than it was tried with; the others are measured all the same
            print(f"{name}: does not run here ({type(error).__name__}: {error})")
    return started


def hds_loader(index: Path, workers: int, change: bool, **options):
    dataset = hds.StreamingDataset(index, seq_len=L, batch_size=B, weights="uniform", rank=0, world_size=1, **options)
    mixtures = [np.full(DOMAINS, 1 / DOMAINS), np.arange(1, DOMAINS + 1) / 55]
    source = torch.utils.data.DataLoader(dataset, batch_size=None, num_workers=workers) if workers else dataset

    def batches():
        for step, batch in enumerate(source):
            yield batch
            if change:
                dataset.set_weights(mixtures[step % 2])

    return batches()


def time_batches(batches, count: int) -> list[float]:
    times = []
    for _ in range(count):
        start = time.perf_counter()
        batch = next(batches)
        times.append(time.perf_counter() - start)
        del batch
    return times


def compare(title: str, sides: dict, rounds: int, count: int, warm: int) -> None:
    running = {name: iter(make()) for name, make in sides.items()}
    best: dict[str, tuple[float, float]] = {}
    for name, batches in running.items():
        time_batches(batches, warm)
    for _ in range(rounds):
        for name, batches in running.items():
            time_batches(batches, count // 10)  # the caches hold what the side before it read
            # Prefetching is worth only what it sustains: the mean counts where workers run ahead.
            times = time_batches(batches, count)
            middle = statistics.median(times) if "process" in title else statistics.mean(times)
            tail = sorted(times)[len(times) * 99 // 100] / statistics.median(times)
            if name not in best or middle < best[name][0]:
                best[name] = (middle, tail)
    first = next(iter(best.values()))[0]
    print(f"\n| {title} | us a batch | M tokens/s | times the first | p99 / median |\n|---|---|---|---|---|")
    for name, (middle, tail) in best.items():
        rate = B * L / middle / 1e6
        print(f"| {name} | {middle * 1e6:.0f} | {rate:.0f} | {first / middle:.2f} | {tail:.1f} |")
    sys.stdout.flush()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--program", default="target/release/hds-index", help="hds-index")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--batches", type=int, default=400)
    parser.add_argument("--workers", type=int, default=2, help="0 leaves the part with workers out")
    parser.add_argument("--only-workers", action="store_true", help="leave out the part in process")
    options = parser.parse_args()
    torch.set_num_threads(1)
    print(f"load {os.getloadavg()[0]:.1f}, {os.cpu_count()} cores, torch {torch.__version__}, numpy {np.__version__}")
    folder = Path(tempfile.mkdtemp(prefix="hds-bench-"))
    try:
        index = make_index(options.program, folder)
        few = ("input_ids", "labels")
        sides = {
            "NumPy gather to int64": lambda: Gather(index),
            "hds, everything on, weights changed every step": lambda: hds_loader(index, 0, True),
            "hds, everything on": lambda: hds_loader(index, 0, False),
            "hds, everything on, positions reset": lambda: hds_loader(index, 0, True, reset_position_ids=True),
            "hds, input_ids and labels": lambda: hds_loader(index, 0, True, keys=few),
        }
        if not options.only_workers:
            sides |= peers(options.program, index, folder, 0)
            compare("in process", sides, options.rounds, options.batches, 1600)
        if options.workers:
            workers = options.workers
            torchs = torch.utils.data.DataLoader(GatherDataset(index), batch_size=None, num_workers=workers)
            sides = {
                "NumPy gather to int64": lambda: torchs,
                "hds, everything on": lambda: hds_loader(index, workers, True),
                "hds, input_ids and labels": lambda: hds_loader(index, workers, True, keys=few),
            }
            sides |= peers(options.program, index, folder, workers)
            # One after another: workers of one side would read ahead while the other is timed.
            for name, side in sides.items():
                compare(f"{workers} workers, {name}", {name: side}, options.rounds, options.batches // 2, 100)
        dataset = hds.StreamingDataset(index, seq_len=L, batch_size=B, weights="uniform", rank=0, world_size=1)
        weights = [1 / DOMAINS] * DOMAINS
        times = []
        for _ in range(5000):
            start = time.perf_counter()
            dataset.set_weights(weights)
            times.append(time.perf_counter() - start)
        print(f"\nset_weights: median {statistics.median(times) * 1e6:.1f} us")
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
