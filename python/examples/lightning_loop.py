"""Lightning on an HDS index, with weights that change after every step.

    python lightning_loop.py INDEX OUT --steps 100
    python lightning_loop.py INDEX OUT --steps 200 --resume    # goes on with exactly the next batch

The state of the data is part of Lightning's checkpoint.
"""

import argparse
import json
from pathlib import Path

import lightning
import torch

import hds


class Model(lightning.LightningModule):
    """A small model that moves the weights of its data."""

    def __init__(self, dataset):
        super().__init__()
        self.dataset = dataset
        size = dataset.vocabulary
        self.layers = torch.nn.Sequential(torch.nn.Embedding(size, 32), torch.nn.Linear(32, size))

    def training_step(self, batch):
        logits = self.layers(batch["input_ids"])
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), batch["labels"].flatten())
        line = {"step": batch["step"], "version": batch["weights_version"], "loss": round(loss.item(), 5)}
        print(json.dumps(line), flush=True)
        return loss

    def on_train_batch_end(self, outputs, batch, batch_idx):
        favourite = self.global_step % len(self.dataset.domains)
        weights = [1.0 + (domain == favourite) for domain in range(len(self.dataset.domains))]
        self.dataset.set_weights([weight / sum(weights) for weight in weights])

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=1e-3)

    def train_dataloader(self):
        return torch.utils.data.DataLoader(self.dataset, batch_size=None)

    def on_save_checkpoint(self, checkpoint):
        checkpoint["data"] = self.dataset.state_dict(step=self.global_step)

    def on_load_checkpoint(self, checkpoint):
        self.dataset.load_state_dict(checkpoint["data"])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("index", help="folder that hds-index build wrote")
    parser.add_argument("out", help="folder for the checkpoint")
    parser.add_argument("--steps", type=int, default=100, help="steps in all")
    parser.add_argument("--resume", action="store_true", help="go on from the checkpoint")
    options = parser.parse_args()
    lightning.seed_everything(0)
    # With a length Lightning does not fetch a batch before it is needed, so weights govern the very next one.
    dataset = hds.StreamingDataset(options.index, seq_len=64, batch_size=8, seed=1, weights="uniform", length=1000)
    trainer = lightning.Trainer(
        max_steps=options.steps,
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    path = Path(options.out) / "last.ckpt"
    trainer.fit(Model(dataset), ckpt_path=path if options.resume else None)
    trainer.save_checkpoint(path)


if __name__ == "__main__":
    main()
