"""Sketches under FSDP2 (fully_shard) of several processes equal those of one process over the whole batch."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("torch.distributed.fsdp")

PROGRAM = '''
import json, os, sys, time
import torch
import torch.distributed as dist
import hds.torch

DOMAINS, LAYERS, SHARDED = 4, ["blocks.0.down", "blocks.1.down"], sys.argv[1] == "sharded"


class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.up = torch.nn.Linear(12, 24)
        self.down = torch.nn.Linear(24, 12)

    def forward(self, x):
        return x + self.down(torch.tanh(self.up(x)))


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = torch.nn.Embedding(50, 12)
        self.blocks = torch.nn.ModuleList([Block(), Block()])
        self.head = torch.nn.Linear(12, 50)

    def forward(self, ids):
        x = self.embed(ids)
        for block in self.blocks:
            x = block(x)
        return self.head(x)


torch.manual_seed(0)
model = Model()
rank, world = 0, 1
if SHARDED:
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    mesh = init_device_mesh("cpu", (world,))
    for block in model.blocks:
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)
gradients = hds.torch.DomainGradients(model, LAYERS, domains=DOMAINS, rank=64)
optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
steps = []
for step in range(3):
    # Two micro-batches of four; domain 2 comes on one rank alone, and never in the first step.
    generator = torch.Generator().manual_seed(step)
    ids = torch.randint(50, (8, 17), generator=generator)
    domains = torch.tensor([[0, 1, 0, 3, 3, 3, 1, 0], [0, 1, 2, 2, 3, 3, 1, 0], [1, 1, 1, 1, 2, 0, 0, 0]])[step]
    mine = torch.arange(8).view(2, world, 4 // world)[:, rank]
    optimizer.zero_grad()
    for rows in mine:
        gradients.begin(domains[rows], scale=world / 8)
        logits = model(ids[rows, :-1])
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), ids[rows, 1:].flatten(), reduction="none")
        # FSDP averages over ranks: each gives its mean over its own sequences of the step.
        (loss.view(len(rows), -1).mean(1).sum() * world / 8).backward()
    changes, norms = gradients.change_norms(), gradients.norms()
    optimizer.step()
    sketches = gradients.finish()
    width = max(len(mean) for mean in sketches["means"])
    means = torch.tensor([mean or [0.0] * width for mean in sketches["means"]], dtype=torch.float64)
    steps.append({"products": (means @ means.T).tolist(), "squares": sketches["sequence_squares"],
                  "norms": norms, "changes": changes})
if rank == 0:
    print(json.dumps(steps))
if SHARDED:
    dist.barrier()
    dist.destroy_process_group()
    time.sleep(0.2)  # as in examples/ddp.py
'''


def run(tmp_path: Path, how: str, command: list[str]) -> list[dict]:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    environment = dict(os.environ, OMP_NUM_THREADS="1")
    done = subprocess.run(
        [*command, str(program), how], env=environment, capture_output=True, text=True, timeout=240, check=False
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return json.loads(done.stdout.strip().splitlines()[-1])


def test_sketches_of_sharded_ranks_are_those_of_one_process(tmp_path):
    if not hasattr(torch.distributed.fsdp, "fully_shard"):
        pytest.skip("this torch has no fully_shard (2.6 and newer)")
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    got = run(tmp_path, "sharded", launcher)
    want = run(tmp_path, "whole", [sys.executable])
    assert len(got) == len(want) == 3
    for step, (a, b) in enumerate(zip(got, want)):
        for key in ("products", "squares", "norms", "changes"):
            torch.testing.assert_close(
                torch.tensor(a[key]), torch.tensor(b[key]), rtol=1e-4, atol=1e-7, msg=lambda m: f"step {step}, {key}: {m}"
            )
        assert (b["products"][2][2] == 0) == (step == 0)
        assert b["products"][0][0] > 0 and b["norms"][0] > 0
    assert got[0]["changes"] == [0.0, 0.0] and min(got[2]["changes"]) > 0
