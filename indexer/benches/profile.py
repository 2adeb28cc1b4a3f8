#!/usr/bin/env python3
"""Where the processor time of a build goes, by stage, from samples of `perf`.

    perf record -F 999 --call-graph dwarf,16384 -o perf.data hds-index build CORPUS -o INDEX -t tokenizer.json --threads 1
    perf script -i perf.data -F comm,ip,sym --no-inline | python3 indexer/benches/profile.py

A sample belongs to the stage whose function is nearest to where it was taken; one with none of them on its stack is told as "rest".
"""

import collections
import sys

# Parts of the names of functions, in the order in which they are tried on a frame.
STAGES = [
    ("tokenizer", ["fastokens::", "tokenizers::", "hds_indexer::tokenize"]),
    ("words and MTLD", ["hds_indexer::lexical"]),
    ("JSON", ["hds_indexer::record"]),
    ("BLAKE3 of texts and shards", ["blake3::", "blake3_"]),
    ("reading: zstd, lines", ["hds_indexer::input", "ZSTD_", "HUF_"]),
    ("tables, publishing", ["hds_indexer::build::finish", "hds_indexer::build::tables", "hds_indexer::build::duplicates"]),
    ("writing of shards", ["hds_indexer::build::shards", "hds_indexer::build::collector"]),
]


def stage_of(frames: list[str]) -> str:
    """The stage of a stack, innermost frame first. What of the tokenizer is not below a worker is its loading."""
    for frame in frames:
        for stage, parts in STAGES:
            if any(part in frame for part in parts):
                works = stage != STAGES[0][0] or any("Worker::work" in outer for outer in frames)
                return stage if works else "loading of the tokenizer, once"
    return "rest"


def main() -> None:
    counts: collections.Counter[str] = collections.Counter()
    frames: list[str] = []
    for line in sys.stdin:
        if line[:1].isspace() and line.strip():
            frames.append(line.split(maxsplit=1)[-1])
        elif frames:
            counts[stage_of(frames)] += 1
            frames = []
    if frames:
        counts[stage_of(frames)] += 1
    total = counts.total()
    if not total:
        sys.exit("no samples on the standard input")
    print(f"{total:,} samples\n\n| part | share |\n|---|---|")
    for stage, count in counts.most_common():
        print(f"| {stage} | {100 * count / total:.1f} % |")


if __name__ == "__main__":
    main()
