"""Peers of `hds-index build` in Python, for the bench `build`: prints rows of its Markdown table.

In: a tokenizer.json and the minipile's folder. Out: MB of text per second of processor time, one thread, on every tenth document: of
Hugging Face's `tokenizers` alone (needs `zstandard` beside it), of datatrove from `.jsonl.zst` to token files, where it is installed, and of
`dolma tokens` from `.jsonl.gz`, where `HDS_DOLMA` names the program; the start of a program, measured on one document, is taken off.
"""

import gzip
import io
import json
import os
import subprocess
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


def dolma(tokenizer, texts):
    """Processor seconds of `dolma tokens` with one process, beyond those of its start; None without it."""
    program = os.environ.get("HDS_DOLMA")
    if program is None:
        return None
    seconds = []
    with tempfile.TemporaryDirectory() as scratch:
        for name, some in (("one", texts[:1]), ("all", texts)):
            source = Path(scratch) / f"{name}.jsonl.gz"
            with gzip.open(source, "wt", compresslevel=1) as file:
                for number, text in enumerate(some):
                    file.write(json.dumps({"id": str(number), "text": text, "source": "minipile"}) + "\n")
            command = [program, "tokens", "--documents", source, "--destination", Path(scratch) / f"{name}-out"]
            command += ["--tokenizer.name_or_path", tokenizer, "--tokenizer.eos_token_id", "0"]
            command += ["--processes", "1", "--dtype", "uint16"]
            start = on_processor()
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            seconds.append(on_processor() - start)
    return seconds[1] - seconds[0]


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
    seconds = dolma(path, texts)
    if seconds is None:
        print("| dolma tokens: HDS_DOLMA names no program | |")
    else:
        print(f"| dolma tokens, .jsonl.gz to tokens, every tenth document | {megabytes / seconds:.1f} |")


main()
