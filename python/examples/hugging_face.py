"""Hugging Face's Trainer on an HDS index, with weights that change after every step.

    python hugging_face.py INDEX OUT --steps 100
    python hugging_face.py INDEX OUT --steps 200 --resume    # goes on with exactly the next batch

The state of the data lies beside the model in every checkpoint folder.
"""

import argparse
import json
from pathlib import Path

import torch
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainerCallback, TrainingArguments
from transformers.trainer_utils import get_last_checkpoint

import hds


class StreamTrainer(Trainer):
    """A Trainer whose training batches are the dataset's, on any number of ranks."""

    def get_train_dataloader(self):
        # Not wrapped by accelerate, which would deal out each rank's part again.
        return hds.DataLoader(self.train_dataset)

    def compute_loss(self, model, inputs, return_outputs=False, **arguments):
        domains = inputs.pop("domain_ids")
        loss, outputs = super().compute_loss(model, inputs, return_outputs=True, **arguments)
        self.train_dataset.seen = (domains, loss.detach())
        return (loss, outputs) if return_outputs else loss


class LiveWeights(TrainerCallback):
    """Moves the weights after every step, and saves the state of the data with every checkpoint."""

    def __init__(self, dataset):
        self.dataset = dataset

    def on_step_end(self, arguments, state, control, **_):
        dataset, step = self.dataset, state.global_step
        version = dataset.weights_version
        favourite = step % len(dataset.domains)
        weights = [1.0 + (domain == favourite) for domain in range(len(dataset.domains))]
        dataset.set_weights([weight / sum(weights) for weight in weights])
        line = {"step": step, "loss": dataset.seen[1].item(), "version": version, "samples": dataset.samples}
        print(json.dumps(line), flush=True)

    def on_save(self, arguments, state, control, **_):
        folder = Path(arguments.output_dir) / f"checkpoint-{state.global_step}"
        data = self.dataset.state_dict(step=state.global_step)
        (folder / "data.json").write_text(json.dumps(data))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("index", help="folder that hds-index build wrote")
    parser.add_argument("out", help="folder for checkpoints")
    parser.add_argument("--steps", type=int, default=100, help="steps in all")
    parser.add_argument("--resume", action="store_true", help="go on from the last checkpoint")
    options = parser.parse_args()

    dataset = hds.StreamingDataset(
        options.index,
        seq_len=64,
        batch_size=8,
        seed=1,
        weights="uniform",
        labels="same",  # the model shifts them
        keys=("input_ids", "labels", "domain_ids"),
    )
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=dataset.vocabulary,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=64,
        max_position_embeddings=64,
    )
    arguments = TrainingArguments(
        options.out,
        max_steps=options.steps,
        lr_scheduler_type="constant",
        learning_rate=1e-3,
        save_steps=options.steps,
        logging_steps=10_000,
        report_to=[],
        disable_tqdm=True,
        ignore_data_skip=True,  # the dataset goes on by itself
        remove_unused_columns=False,
        use_cpu=True,
    )
    model = LlamaForCausalLM(config)
    callbacks = [LiveWeights(dataset)]
    trainer = StreamTrainer(model, arguments, train_dataset=dataset, callbacks=callbacks)
    last = get_last_checkpoint(options.out) if options.resume else None
    if last:
        dataset.load_state_dict(json.loads((Path(last) / "data.json").read_text()))
    trainer.train(resume_from_checkpoint=last)


if __name__ == "__main__":
    main()
