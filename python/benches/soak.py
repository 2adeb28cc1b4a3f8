"""Reads for a while with weights changed after every batch, and looks whether memory stays where it is.

    python python/benches/soak.py INDEX --minutes 10

States are saved and loaded on the way, workers started and stopped. Prints a JSON line now and then; fails where
memory that is not pages of files has grown by more than 20 MB since the first minute's tenth.
"""

from __future__ import annotations

import argparse
import json
import random
import time

import torch.utils.data

import hds


def own_megabytes() -> float:
    with open("/proc/self/status") as status:
        line = next(line for line in status if line.startswith("RssAnon:"))
    return int(line.split()[1]) / 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("index")
    parser.add_argument("--minutes", type=float, default=10)
    options = parser.parse_args()
    random.seed(0)

    def dataset() -> hds.StreamingDataset:
        return hds.StreamingDataset(options.index, seq_len=1024, batch_size=32, seed=3, weights="uniform", domain_end="restart")

    data = dataset()
    start = shown = time.monotonic()
    end = start + 60 * options.minutes
    first, batches, rounds = 0.0, 0, 0
    while time.monotonic() < end:
        rounds += 1
        loader = hds.DataLoader(data, num_workers=rounds % 3 if rounds % 10 == 0 else 0)
        for taken, batch in enumerate(loader):
            raw = [random.random() * (random.random() > 0.2) + 1e-3 for _ in data.domains]
            version = data.set_weights([weight / sum(raw) for weight in raw])
            assert version == batch.weights_version + 1, "weights of the batch before"
            assert batch["cu_seqlens"][-1] == 32 * 1024
            batches += 1
            if taken == (20 if loader.num_workers else 2000):
                break
        state = data.state_dict()
        assert state["step"] == batches
        if rounds % 2:
            data.load_state_dict(state)
        else:
            data = dataset()
            data.load_state_dict(state)
        now = time.monotonic()
        if first == 0.0 and now - start > 6:
            first = own_megabytes()
        if now - shown > 30 or now >= end:
            shown = now
            line = {"minutes": round((now - start) / 60, 1), "batches": batches, "changes": version, "own_MB": round(own_megabytes(), 1)}
            print(json.dumps(line), flush=True)
    assert own_megabytes() < first + 20, f"{first:.1f} MB grew to {own_megabytes():.1f} MB"


if __name__ == "__main__":
    main()
