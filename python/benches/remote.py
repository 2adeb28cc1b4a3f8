"""An index behind a URL beside the same index in its folder: what the cache costs once it is filled, and filling it.

    cargo build --release --workspace --bins
    python python/benches/remote.py --program target/release/hds-index

Ten domains, 50 M tokens of u16, L = 1024, B = 32, NumPy arrays. The server is nginx where it is installed, on loopback,
so that filling the cache is the program's own cost and no network's. Prints a Markdown table.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import socket
import statistics
import subprocess
import tempfile
import time
from pathlib import Path

import numpy as np

import hds

DOMAINS, TOKENS, L, B = 10, 5_000_000, 1024, 32


def make_index(program: str, folder: Path) -> Path:
    """An index of bytes as tokens: documents of 50 to 2,000 tokens."""
    corpus = folder / "corpus"
    corpus.mkdir()
    for domain in range(DOMAINS):
        numbers = np.random.default_rng(domain)
        letters = numbers.integers(97, 123, TOKENS, dtype=np.uint8)
        letters[:: 6 + domain] = 32
        text = letters.tobytes().decode()
        with (corpus / f"domain-{domain}.jsonl").open("w") as out:
            start = 0
            while start < TOKENS:
                length = int(numbers.integers(50, 2000))
                out.write(json.dumps({"text": text[start : start + length]}) + "\n")
                start += length
    index = folder / "index"
    command = [program, "build", str(corpus), "-o", str(index), "--valid-fraction", "0"]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return index


def serve(folder: Path) -> tuple[subprocess.Popen[bytes] | None, str]:
    """nginx over the folder, or the folder through the same client where there is none."""
    program = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin")
    if program is None:
        return None, f"file://{folder}"
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    home = folder / "nginx"
    home.mkdir()
    paths = " ".join(f"{n}_temp_path {home}/{n};" for n in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
    (home / "conf").write_text(
        f"daemon off; master_process off; pid {home}/pid; error_log {home}/log; events {{}}\n"
        f"http {{ access_log off; {paths} server {{ listen 127.0.0.1:{port}; root {folder}; }} }}\n"
    )
    server = subprocess.Popen([program, "-p", home, "-c", home / "conf", "-e", home / "log"])
    time.sleep(1)
    return server, f"http://127.0.0.1:{port}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--program", default="target/release/hds-index", help="hds-index")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--batches", type=int, default=400)
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="hds-bench-"))
    server = None
    try:
        index = make_index(options.program, folder)
        server, url = serve(folder)
        print(f"load {os.getloadavg()[0]:.1f}, {os.cpu_count()} cores, numpy {np.__version__}, {url.split(':')[0]}")
        common = {"seq_len": L, "batch_size": B, "weights": "uniform", "output": "numpy"}
        size = sum(file.stat().st_size for file in index.rglob("*") if file.suffix in (".tokens", ".arrow"))
        for piece in ("64KiB", "1MiB"):
            remote = {"cache_dir": folder / piece, "cache_piece": piece}
            cold = iter(hds.StreamingDataset(f"{url}/index", **common, **remote))
            start = time.perf_counter()
            first = [next(cold) and time.perf_counter() for _ in range(1600)]
            print(
                f"cold, pieces of {piece}: first batch {first[0] - start:.3f} s, 100 batches {first[99] - start:.2f} s, "
                f"1,600 batches {first[-1] - start:.2f} s (all {size / 1e6:.0f} MB of the index)"
            )
        sides = {
            "folder, mapped": hds.StreamingDataset(index, **common),
            'folder, access="read"': hds.StreamingDataset(index, **common, access="read"),
            "URL, pieces of 64 KiB, cached": hds.StreamingDataset(
                f"{url}/index", **common, cache_dir=folder / "64KiB", cache_piece="64KiB"
            ),
            "URL, pieces of 1 MiB, cached": hds.StreamingDataset(f"{url}/index", **common, cache_dir=folder / "1MiB"),
        }
        running = {name: iter(data) for name, data in sides.items()}
        best: dict[str, float] = {}
        for round_number in range(options.rounds + 1):
            for name, batches in running.items():
                times = []
                for _ in range(1600 if round_number == 0 else options.batches):
                    start = time.perf_counter()
                    next(batches)
                    times.append(time.perf_counter() - start)
                if round_number > 0:
                    best[name] = min(best.get(name, 1.0), statistics.median(times))
        print("\n| in process, warm | us a batch | M tokens/s |\n|---|---|---|")
        for name, middle in best.items():
            print(f"| {name} | {middle * 1e6:.0f} | {B * L / middle / 1e6:.0f} |")
    finally:
        if server is not None:
            server.kill()
            server.wait()
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
