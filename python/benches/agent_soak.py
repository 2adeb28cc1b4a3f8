"""Takes an hds-agent through many steps, with checkpoints and hostile clients on the way, and looks whether its memory stays where it is.

    HDS_AGENT=target/release/hds-agent python python/benches/agent_soak.py --steps 20000

The agent learns at every step. Its replay is full after a tenth of the steps; from a fifth on its own memory (not pages of
files) may grow by 8 MB at most. Between the steps others connect, send nonsense, die in the middle of a line, or say nothing.
Prints a JSON line now and then, and fails where memory grows, an answer is no mixture, or a connection is left open.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import socket
import tempfile
import time
from pathlib import Path

import hds

DOMAINS = [f"d{i}" for i in range(22)]
MEGABYTES = 8.0


def status(process: int, field: str) -> float:
    with open(f"/proc/{process}/status") as lines:
        return float(next(line for line in lines if line.startswith(field)).split()[1])


def own_megabytes(process: int) -> float:
    return status(process, "RssAnon:") / 1024


def observation(step: int, rng: random.Random) -> hds.Observation:
    samples = [rng.randint(0, 4) for _ in DOMAINS]
    means = [[rng.gauss(0.1, 1.0) for _ in range(32)] if n else [] for n in samples]
    return hds.Observation(
        samples=samples,
        losses=[5.0 + rng.random() if n else math.nan for n in samples],
        mtld=[20.0 + 60.0 * rng.random() if n else None for n in samples],
        sketches={"means": means, "sequence_squares": [100.0 if n else 0.0 for n in samples]},
        weight_norms=[10.0 + 1e-4 * step] * 3,
        weight_change_norms=[0.1 + 0.01 * rng.random()] * 3,
    )


def disturb(path: str, number: int) -> socket.socket | None:
    """A stranger's visit; what says nothing is given back, to be kept open for a while."""
    stranger = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    stranger.settimeout(10)
    stranger.connect(path)
    kind = number % 5
    if kind == 0:
        stranger.sendall(b'{"type":"step","step":0}\n\xff\xfe\n[[[[\n')
        stranger.recv(1)
    elif kind == 1:
        stranger.sendall(b'{"type":"open","protocol":1,"run":"x","start":"new","facts":{"dom')
    elif kind == 2:
        stranger.sendall(b'{"type":"open","protocol":1,"run":"main","start":"any","facts":{"domains":["a"],"total_steps":1}}\n')
        stranger.recv(1)
    elif kind == 3:
        stranger.sendall(b" " * (1 << 16))
    else:
        return stranger
    stranger.close()
    return None


def soak(state: Path, steps: int, show: float = 30.0) -> dict[str, float]:
    """Memory after a fifth of the steps and at the end, in MB."""
    options = {"network": "small", "minibatch": 16, "replay_capacity": max(steps // 10, 32), "warm_up_fraction": 0.01}
    agent = hds.Agent.spawn(
        state,
        run="main",
        domains=DOMAINS,
        total_steps=steps,
        sequence_length=128,
        layers=3,
        model_parameters=5_000_000,
        scheduler={"policy": "hds", "hds": options},
        checkpoint_interval_steps=max(steps // 20, 10),
    )
    with agent:
        process, path = agent._process.pid, agent._socket.getpeername()
        rng, silent = random.Random(1), []
        start = shown = time.monotonic()
        settled = visits = 0.0
        for step in range(steps):
            weights = agent.step(observation(step, rng))
            assert abs(sum(weights) - 1) < 1e-9 and min(weights) >= 0, weights
            if step % 10 == 9:
                visits += 1
                silent += [s for s in [disturb(path, int(visits))] if s]
                if len(silent) > 5:
                    silent.pop(0).close()
            if step == steps // 5:
                settled = own_megabytes(process)
            now = time.monotonic()
            if now - shown > show or step + 1 == steps:
                shown = now
                line = {"step": step + 1, "seconds": round(now - start), "own_MB": round(own_megabytes(process), 1)}
                line |= {"threads": status(process, "Threads:"), "open_files": len(os.listdir(f"/proc/{process}/fd")), "visits": visits}
                print(json.dumps(line), flush=True)
        for stranger in silent:
            stranger.close()
        assert agent.diagnostics["updates"] > steps, "the agent has not learnt"
        end = own_megabytes(process)
        assert end < settled + MEGABYTES, f"{settled:.1f} MB grew to {end:.1f} MB"
        # Of the visitors nothing is left but what the server may still be closing.
        for _ in range(100):
            if status(process, "Threads:") <= 8:
                break
            time.sleep(0.1)
        assert status(process, "Threads:") <= 8, "threads of visitors are left"
    return {"settled": settled, "end": end}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=20_000)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        print(json.dumps(soak(Path(folder), options.steps)))


if __name__ == "__main__":
    main()
