"""Data parallel training whose weights an HDS agent sets at every step, and a resume of both.

    torchrun --nproc-per-node 2 agent_ddp.py INDEX --steps 40 --total-steps 100 --folder run
    torchrun --nproc-per-node 2 agent_ddp.py INDEX --steps 100 --total-steps 100 --folder run   # goes on

Rank 0 owns the agent (the program hds-agent: on PATH, or in the environment's HDS_AGENT) and broadcasts its
weights. Losses, counts and sketches of the domains' gradients are summed over all ranks.
"""

import argparse
import json
import os
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import hds
import hds.torch

parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
parser.add_argument("index", help="folder that hds-index build wrote")
parser.add_argument("--steps", type=int, default=40, help="steps to stop after, those before a resume counted")
parser.add_argument("--total-steps", type=int, default=100, help="steps of the whole run, for the agent's schedule")
parser.add_argument("--folder", type=Path, required=True, help="folder of checkpoints, to go on from and to write")
options = parser.parse_args()

if "RANK" in os.environ:
    dist.init_process_group("gloo")
else:  # alone, without torchrun
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)


class Block(torch.nn.Module):
    """A feed-forward block; its output projection is the layer that the agent watches."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.up = torch.nn.Linear(width, 4 * width)
        self.down = torch.nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.down(torch.nn.functional.gelu(self.up(x)))


torch.manual_seed(0)
dataset = hds.StreamingDataset(options.index, seq_len=64, batch_size=16, seed=1, length=options.steps, weights="uniform")
size = dataset.vocabulary
module = torch.nn.Sequential(torch.nn.Embedding(size, 64), Block(64), torch.nn.Linear(64, size))
optimizer = torch.optim.AdamW(module.parameters(), lr=3e-3)
saved = options.folder / "model.pt"
checkpoint = torch.load(saved, weights_only=True) if saved.exists() else None
if checkpoint is not None:
    module.load_state_dict(checkpoint["model"])
    optimizer.load_state_dict(checkpoint["optimizer"])
    dataset.load_state_dict(checkpoint["data"])
gradients = hds.torch.DomainGradients(module, ["1.down"], domains=len(dataset.domains))
if checkpoint is not None:
    gradients.load_change_norms(checkpoint["change_norms"])
model = DistributedDataParallel(module)


def share(weights: list[float] | None) -> torch.Tensor:
    """Rank 0's weights, on every rank."""
    shared = torch.tensor(weights if weights is not None else [0.0] * len(dataset.domains), dtype=torch.float64)
    dist.broadcast(shared, 0)
    return shared


agent = None
if dist.get_rank() == 0:
    agent = hds.Agent.spawn(
        options.folder / "agent",
        domains=dataset.domains,
        total_steps=options.total_steps,
        sequence_length=64,
        layers=1,
        model_parameters=sum(p.numel() for p in module.parameters()),
        start="new" if checkpoint is None else "resume",
        at_step=None if checkpoint is None else checkpoint["step"],
        scheduler={"policy": "hds", "hds": {"warm_up_fraction": 0.1, "minibatch": 16}},
    )
dataset.set_weights(share(agent.weights if agent else None))

for batch in hds.DataLoader(dataset):
    ids = batch["domain_ids"]
    gradients.begin(ids)
    logits = model(batch["input_ids"])
    losses = torch.nn.functional.cross_entropy(logits.flatten(0, 1), batch["labels"].flatten(), reduction="none")
    losses = losses.view_as(batch["labels"]).mean(1)
    optimizer.zero_grad()
    losses.mean().backward()
    changes, norms = gradients.change_norms(), gradients.norms()
    optimizer.step()

    # Counts, losses and MTLD of each domain, over all ranks.
    sums = torch.zeros(3, len(dataset.domains), dtype=torch.float64)
    for row, values in enumerate([torch.ones_like(losses), losses.detach(), batch["mtld"]]):
        sums[row].index_add_(0, ids, values.double())
    dist.all_reduce(sums)
    counts, means = sums[0].tolist(), (sums[1:] / sums[0]).tolist()
    sketches = gradients.finish()
    if agent is not None:
        agent.step(hds.Observation(counts, means[0], means[1], sketches, norms, changes))
        loss = (sums[1].sum() / sums[0].sum()).item()
        line = {"step": batch.step, "loss": round(loss, 5), "weights": agent.weights, "alpha": agent.diagnostics["alpha"]}
        print(json.dumps(line), flush=True)
    dataset.set_weights(share(agent.weights if agent else None))

if agent is not None:
    # Model and agent at the same step.
    agent.save()
    state = {"model": module.state_dict(), "optimizer": optimizer.state_dict(), "data": dataset.state_dict()}
    torch.save({**state, "step": agent.next_step, "change_norms": gradients.change_norms()}, saved)
    agent.close()
dist.barrier()  # nobody leaves before the checkpoint is there: torchrun ends all when one is gone too early
dist.destroy_process_group()
time.sleep(0.2)  # Gloo's threads let go of the last reduction: torch 2.12 aborts where the interpreter ends before
