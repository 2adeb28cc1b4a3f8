"""A plain PyTorch loop: the weights move after every step, to where the loss is high.

    python plain.py INDEX --steps 100 --checkpoint run.pt    # once more to go on

Prints a JSON line a step. Stops and goes on at any step, with any number of workers, as if it had not.
"""

import argparse
import json
import os

import torch

import hds

parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
parser.add_argument("index", help="folder that hds-index build wrote")
parser.add_argument("--steps", type=int, default=100, help="steps in all")
parser.add_argument("--workers", type=int, default=0, help="processes that read; none are needed")
parser.add_argument("--checkpoint", help="file to go on from and to write at the end")
options = parser.parse_args()

torch.manual_seed(0)
dataset = hds.StreamingDataset(options.index, seq_len=64, batch_size=16, seed=1, length=options.steps, weights="uniform")
model = torch.nn.Sequential(
    torch.nn.Embedding(dataset.vocabulary, 64),
    torch.nn.Linear(64, 64),
    torch.nn.GELU(),
    torch.nn.Linear(64, dataset.vocabulary),
)
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
if options.checkpoint and os.path.exists(options.checkpoint):
    checkpoint = torch.load(options.checkpoint, weights_only=True)
    model.load_state_dict(checkpoint["model"])
    optimizer.load_state_dict(checkpoint["optimizer"])
    dataset.load_state_dict(checkpoint["data"])  # counts and weights; refused if it is of another index

for batch in hds.DataLoader(dataset, num_workers=options.workers):
    logits = model(batch["input_ids"])
    losses = torch.nn.functional.cross_entropy(logits.flatten(0, 1), batch["labels"].flatten(), reduction="none")
    losses = losses.view_as(batch["labels"])
    loss = losses.mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()

    # More of what is hard, from the very next batch on. Domains not seen in this batch keep their weight.
    weights = torch.tensor(list(dataset.weights.values()), dtype=torch.float64)
    for domain in batch["domain_ids"].unique().tolist():
        hard = losses[batch["domain_ids"] == domain].mean() - loss
        weights[domain] *= torch.exp(0.2 * hard.detach())
    weights = 0.9 * weights / weights.sum() + 0.1 / len(weights)
    dataset.set_weights(weights)
    print(json.dumps({"step": batch.step, "version": batch.weights_version, "loss": round(loss.item(), 4)}))

if options.checkpoint:
    state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "data": dataset.state_dict()}
    torch.save(state, options.checkpoint)
