"""Data parallel training under torchrun, with weights that change every step, and a resume on any world size.

    torchrun --nproc-per-node 2 ddp.py INDEX --steps 100 --checkpoint run.pt
    python ddp.py INDEX --steps 200 --checkpoint run.pt     # goes on with one process, the same batches

Every rank sets the same weights after every step: they follow from losses summed over all ranks.
"""

import argparse
import hashlib
import json
import os
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import hds

parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
parser.add_argument("index", help="folder that hds-index build wrote")
parser.add_argument("--steps", type=int, default=100, help="steps in all")
parser.add_argument("--checkpoint", help="file to go on from and to write at the end")
options = parser.parse_args()

if "RANK" in os.environ:
    dist.init_process_group("gloo")
else:  # alone, without torchrun
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)

torch.manual_seed(0)
# batch_size is the global batch: each rank reads its part of it. Rank and world size come from torch.distributed.
dataset = hds.StreamingDataset(options.index, seq_len=64, batch_size=16, seed=1, length=options.steps, weights="uniform")
module = torch.nn.Sequential(torch.nn.Embedding(dataset.vocabulary, 64), torch.nn.Linear(64, dataset.vocabulary))
optimizer = torch.optim.AdamW(module.parameters(), lr=3e-3)
if options.checkpoint and os.path.exists(options.checkpoint):
    checkpoint = torch.load(options.checkpoint, weights_only=True)
    module.load_state_dict(checkpoint["model"])
    optimizer.load_state_dict(checkpoint["optimizer"])
    dataset.load_state_dict(checkpoint["data"])  # the same on every rank, whatever their number was
model = DistributedDataParallel(module)

for batch in hds.DataLoader(dataset):
    logits = model(batch["input_ids"])
    losses = torch.nn.functional.cross_entropy(logits.flatten(0, 1), batch["labels"].flatten(), reduction="none")
    losses = losses.view_as(batch["labels"]).mean(1)
    optimizer.zero_grad()
    losses.mean().backward()
    optimizer.step()

    # Loss and number of sequences of each domain, over all ranks.
    sums = torch.zeros(2, len(dataset.domains), dtype=torch.float64)
    sums[0].index_add_(0, batch["domain_ids"], losses.detach().double())
    sums[1].index_add_(0, batch["domain_ids"], torch.ones_like(losses.detach()).double())
    dist.all_reduce(sums)
    mean = sums[0].sum() / sums[1].sum()
    hard = torch.where(sums[1] > 0, sums[0] / sums[1].clamp(min=1) - mean, 0.0)
    old = torch.tensor(list(dataset.weights.values()), dtype=torch.float64)
    weights = old * torch.exp(0.2 * hard)
    dataset.set_weights(0.9 * weights / weights.sum() + 0.1 / len(weights))

    parts = [None] * dist.get_world_size()
    dist.all_gather_object(parts, batch["input_ids"].numpy().tobytes())
    if dataset.rank == 0:
        line = {"step": batch.step, "version": batch.weights_version, "loss": round(mean.item(), 5)}
        line["weights"] = dict(zip(dataset.domains, old.tolist()))
        line["batch"] = hashlib.sha256(b"".join(parts)).hexdigest()[:16]
        print(json.dumps(line), flush=True)

if options.checkpoint and dataset.rank == 0:
    state = {"model": module.state_dict(), "optimizer": optimizer.state_dict(), "data": dataset.state_dict()}
    torch.save(state, options.checkpoint + ".new")
    os.replace(options.checkpoint + ".new", options.checkpoint)
dist.barrier()  # nobody leaves before the checkpoint is there: torchrun ends all when one is gone too early
dist.destroy_process_group()
time.sleep(0.2)  # Gloo's threads let go of the last reduction: torch 2.12 aborts where the interpreter ends before
