"""Peers of `hds-index build` in Python, for the bench `build`: prints rows of its Markdown table.

In: a tokenizer.json and the minipile's folder. Out: MB of text per second of processor time, one thread, of Hugging Face's
`tokenizers` (which needs `zstandard` beside it here).
"""

import io
import json
import os
import sys
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
    start = time.process_time()
    tokenizer.encode_batch_fast(texts, add_special_tokens=False)
    return size / 1e6 / (time.process_time() - start)


def main():
    path, folder = Path(sys.argv[1]), Path(sys.argv[2])
    texts = list(documents(folder))[::10]
    print(f"| Python tokenizers, encode_batch_fast, every tenth document | {hugging_face(Tokenizer.from_file(str(path)), texts):.1f} |")


main()
