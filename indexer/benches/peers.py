"""Peers of `hds-index build` in Python, for the bench `build`: prints rows of its Markdown table.

In: a tokenizer.json and the minipile's folder. Out: MB of text per second, one thread: Hugging Face `tokenizers`, and the
whole preparation by `dolma tokens` where that is installed.
"""

import importlib.util
import io
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

os.environ["TOKENIZERS_PARALLELISM"] = "false"

import zstandard
from tokenizers import Tokenizer


def documents(folder):
    for file in sorted(folder.glob("*.jsonl.zst")):
        with file.open("rb") as raw:
            for line in io.TextIOWrapper(zstandard.ZstdDecompressor().stream_reader(raw), encoding="utf-8"):
                yield json.loads(line)["text"]


def hugging_face(tokenizer, texts):
    size = sum(len(text.encode()) for text in texts)
    start = time.perf_counter()
    tokenizer.encode_batch_fast(texts, add_special_tokens=False)
    return size / 1e6 / (time.perf_counter() - start)


def dolma(tokenizer, texts):
    """Plain JSON lines in, one process, as its manual says."""
    with tempfile.TemporaryDirectory() as scratch:
        source = Path(scratch) / "documents"
        source.mkdir()
        size = 0
        with (source / "0.jsonl").open("w") as file:
            for number, text in enumerate(texts):
                size += len(text.encode())
                file.write(json.dumps({"id": str(number), "text": text, "source": "minipile"}) + "\n")
        start = time.perf_counter()
        subprocess.run(
            [shutil.which("dolma", path=str(Path(sys.executable).parent)), "tokens", "--documents", str(source / "*.jsonl"),
             "--destination", str(Path(scratch) / "out"), "--tokenizer.name_or_path", str(tokenizer),
             "--tokenizer.eos_token_id", "0", "--tokenizer.pad_token_id", "1", "--dtype", "uint16", "--processes", "1"],
            check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        return size / 1e6 / (time.perf_counter() - start)


def main():
    path, folder = Path(sys.argv[1]), Path(sys.argv[2])
    texts = list(documents(folder))[::10]
    print(f"| Python tokenizers, encode_batch_fast, every tenth document | {hugging_face(Tokenizer.from_file(str(path)), texts):.1f} |")
    if importlib.util.find_spec("dolma"):
        print(f"| dolma tokens, whole preparation, every tenth document | {dolma(path, texts):.1f} |")


main()
