"""Peers of `hds-index build` in Python, for the bench `build`: prints rows of its Markdown table.

In: a tokenizer.json and the minipile's folder. Out: MB of text per second of processor time, one thread, on every tenth document: of
Hugging Face's `tokenizers` alone (needs `zstandard` beside it), and of datatrove from `.jsonl.zst` to token files, where it is installed.
"""

import io
import json
import os
import sys
import tempfile
import time
from pathlib import Path

os.environ["TOKENIZERS_PARALLELISM"] = "false"

import zstandard
from tokenizers import Tokenizer


def lines(folder):
    for file in sorted(folder.glob("*.jsonl.zst")):
        with file.open("rb") as raw:
            yield from io.TextIOWrapper(zstandard.ZstdDecompressor().stream_reader(raw), encoding="utf-8")


def on_processor():
    """Processor seconds of this process and its children that ended."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def hugging_face(tokenizer, texts):
    start = time.process_time()
    tokenizer.encode_batch_fast(texts, add_special_tokens=False)
    return time.process_time() - start


def datatrove(tokenizer, sample):
    """Seconds of datatrove's reader and tokenizer, one task; None where it is not installed."""
    try:
        from datatrove.executor.local import LocalPipelineExecutor
        from datatrove.pipeline.readers import JsonlReader
        from datatrove.pipeline.tokens import DocumentTokenizer
        from datatrove.utils.logging import logger
    except ImportError:
        return None
    logger.remove()
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) / "in"
        folder.mkdir()
        packed = zstandard.ZstdCompressor(level=3).compress("".join(sample).encode())
        (folder / "sample.jsonl.zst").write_bytes(packed)
        steps = [
            JsonlReader(str(folder), glob_pattern="*.jsonl.zst", compression="zstd"),
            DocumentTokenizer(
                str(Path(scratch) / "out"),
                tokenizer_name_or_path=str(tokenizer),
                eos_token="<|endoftext|>",
                shuffle_documents=False,
            ),
        ]
        start = on_processor()
        LocalPipelineExecutor(steps, tasks=1, workers=1, logging_dir=str(Path(scratch) / "log")).run()
        return on_processor() - start


def main():
    path, folder = Path(sys.argv[1]), Path(sys.argv[2])
    sample = list(lines(folder))[::10]
    texts = [json.loads(line)["text"] for line in sample]
    megabytes = sum(len(text.encode()) for text in texts) / 1e6
    rate = megabytes / hugging_face(Tokenizer.from_file(str(path)), texts)
    print(f"| Python tokenizers, encode_batch_fast, every tenth document | {rate:.1f} |")
    seconds = datatrove(path, sample)
    if seconds is None:
        print("| datatrove: not installed | |")
    else:
        print(f"| datatrove, .jsonl.zst to tokens, every tenth document | {megabytes / seconds:.1f} |")


main()
