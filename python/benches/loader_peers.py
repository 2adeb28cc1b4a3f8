"""Other loaders over the tokens of an index, for `loaders.py`: each in its users' usual set-up, giving int64 batches [B, L + 1].

A function of PEERS takes (token_files, program, index, folder, workers) and gives a callable that starts an iteration over batches, or raises
ImportError where its package is not installed. All sample the domains with equal weights and shuffle where they can.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import torch

L, B = 1024, 32
Start = Callable[[], Iterator[torch.Tensor]]


def _again(loader) -> Iterator[torch.Tensor]:
    while True:
        for batch in loader:
            yield batch.to(torch.int64)


def _windows(file: Path) -> np.ndarray:
    tokens = np.fromfile(file, dtype=np.uint16)
    count = len(tokens) // (L + 1)
    return tokens[: count * (L + 1)].reshape(count, L + 1)


def litdata(files, program, index, folder, workers) -> Start:
    """LitData: CombinedStreamingDataset with a TokensLoader, u16."""
    import litdata
    from litdata.streaming.item_loader import TokensLoader
    from litdata.streaming.writer import BinaryWriter

    parts = []
    for number, file in enumerate(files):
        out = folder / f"litdata-{number}"
        if not out.exists():
            tokens = torch.from_numpy(np.fromfile(file, dtype=np.uint16))
            out.mkdir()
            writer = BinaryWriter(str(out), chunk_bytes="64MB", item_loader=TokensLoader(block_size=L + 1))
            step = 100 * (L + 1)
            for place, start in enumerate(range(0, len(tokens) - step, step)):
                writer[place] = tokens[start : start + step]
            writer.done()
            writer.merge()
        loader = TokensLoader(block_size=L + 1)
        parts.append(litdata.StreamingDataset(str(out), item_loader=loader, shuffle=True, seed=0))
    combined = litdata.CombinedStreamingDataset(parts, weights=[1 / len(parts)] * len(parts), iterate_over_all=False)
    loader = litdata.StreamingDataLoader(combined, batch_size=B, num_workers=workers, drop_last=True)
    return lambda: _again(loader)


def _tables(files) -> list:
    import datasets
    import pyarrow as pa

    datasets.disable_progress_bars()
    tables = []
    for file in files:
        windows = _windows(file)
        column = pa.FixedSizeListArray.from_arrays(pa.array(windows.ravel()), L + 1)
        table = datasets.Dataset(pa.table({"input_ids": column}))
        tables.append(table.shuffle(seed=0).with_format("numpy"))
    return tables


def _stacked(rows) -> torch.Tensor:
    return torch.from_numpy(np.stack([row["input_ids"] for row in rows]).astype(np.int64))


def datasets_map(files, program, index, folder, workers) -> Start:
    """Hugging Face datasets: interleave_datasets of map-style datasets, numpy format, DataLoader."""
    import datasets

    parts = _tables(files)
    mixed = datasets.interleave_datasets(
        parts, probabilities=[1 / len(parts)] * len(parts), seed=0, stopping_strategy="all_exhausted"
    )
    loader = torch.utils.data.DataLoader(mixed, batch_size=B, num_workers=workers, drop_last=True, collate_fn=_stacked)
    return lambda: _again(loader)


def datasets_iterable(files, program, index, folder, workers) -> Start:
    """Hugging Face datasets: interleave_datasets of iterable datasets, numpy format, DataLoader."""
    import datasets

    parts = [part.to_iterable_dataset(num_shards=max(workers, 1)) for part in _tables(files)]
    mixed = datasets.interleave_datasets(
        parts, probabilities=[1 / len(parts)] * len(parts), seed=0, stopping_strategy="all_exhausted"
    )
    loader = torch.utils.data.DataLoader(mixed, batch_size=B, num_workers=workers, drop_last=True, collate_fn=_stacked)
    return lambda: _again(loader)


class _Windows:
    """A random-access source for Grain; opened where it is used."""

    def __init__(self, file: Path):
        self.file, self.windows = file, None
        self.count = file.stat().st_size // 2 // (L + 1)

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, place: int) -> np.ndarray:
        if self.windows is None:
            self.windows = np.memmap(self.file, dtype=np.uint16, mode="r")
        start = int(place) * (L + 1)
        return self.windows[start : start + L + 1].astype(np.int64)

    def __getstate__(self) -> dict:
        return {"file": self.file, "windows": None, "count": self.count}


def grain(files, program, index, folder, workers) -> Start:
    """Grain: MapDataset.mix of shuffled, repeated sources, batched."""
    import grain

    parts = [grain.MapDataset.source(_Windows(file)).seed(0).shuffle().repeat() for file in files]
    mixed = grain.MapDataset.mix(parts, weights=[1 / len(parts)] * len(parts)).batch(B, drop_remainder=True)

    def start():
        batches = mixed.to_iter_dataset(grain.ReadOptions(num_threads=0, prefetch_buffer_size=0))
        if workers:
            batches = batches.mp_prefetch(grain.MultiprocessingOptions(num_workers=workers, per_worker_buffer_size=2))
        return (torch.from_numpy(np.asarray(batch)) for batch in batches)

    return start


def megatron(files, program, index, folder, workers) -> Start:
    """Megatron-core: GPTDataset under a BlendedDataset, tokens and labels."""
    from megatron.core.datasets.blended_megatron_dataset_builder import BlendedMegatronDatasetBuilder
    from megatron.core.datasets.gpt_dataset import GPTDataset, GPTDatasetConfig

    out = folder / "megatron"
    if not out.exists():
        command = [program, "export", "megatron", str(index), "-o", str(out), "--split", "train"]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    prefixes = [str(file.with_suffix("")) for file in sorted(out.glob("*.bin"))]

    class Tokenizer:
        eod, pad, unique_identifiers, vocab_size = 0, -1, {"class": "bytes"}, 257

    config = GPTDatasetConfig(
        random_seed=0,
        sequence_length=L,
        blend=(prefixes, [1 / len(prefixes)] * len(prefixes)),
        split="1,0,0",
        path_to_cache=str(folder / "megatron-cache"),
        tokenizer=Tokenizer(),
        reset_position_ids=False,
        reset_attention_mask=False,
        eod_mask_loss=False,
        create_attention_mask=False,
    )
    if not torch.distributed.is_initialized():  # which it asks for the rank, unless it keeps no cache
        torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
    builder = BlendedMegatronDatasetBuilder(GPTDataset, [200_000, 0, 0], lambda: True, config)
    train = builder.build()[0]
    loader = torch.utils.data.DataLoader(train, batch_size=B, num_workers=workers, drop_last=True)

    def start():
        while True:
            for batch in loader:
                yield batch["tokens"]

    return start


def mosaicml(files, program, index, folder, workers) -> Start:
    """MosaicML Streaming: StreamingDataset over streams with equal proportions, u16."""
    import streaming

    parts = []
    for number, file in enumerate(files):
        out = folder / f"mosaicml-{number}"
        if not out.exists():
            columns = {"tokens": f"ndarray:uint16:{L + 1}"}
            with streaming.MDSWriter(out=str(out), columns=columns) as writer:
                for window in _windows(file):
                    writer.write({"tokens": window})
        parts.append(streaming.Stream(local=str(out), proportion=1 / len(files)))
    dataset = streaming.StreamingDataset(streams=parts, batch_size=B, shuffle=True, shuffle_seed=0)

    def stacked(rows):
        return torch.from_numpy(np.stack([row["tokens"] for row in rows]).astype(np.int64))

    loader = torch.utils.data.DataLoader(dataset, batch_size=B, num_workers=workers, drop_last=True, collate_fn=stacked)
    return lambda: _again(loader)


PEERS = {
    "LitData CombinedStreamingDataset": litdata,
    "Hugging Face datasets, interleaved, map style": datasets_map,
    "Hugging Face datasets, interleaved, iterable": datasets_iterable,
    "Grain mix": grain,
    "Megatron-core BlendedDataset": megatron,
    "MosaicML Streaming": mosaicml,
}
