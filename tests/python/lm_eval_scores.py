"""Scores of the real lm-evaluation-harness for an exported model, as JSON on standard output.

Arguments: the exported folder (with its tokenizer), an index with u16 tokens, sequence length, sequences of a domain at most, a
folder with MMLU's test.jsonl and dev.jsonl, examples, questions of a subject.

`losses`: {domain: mean nats per token} over the first windows of each held-out split, each scored by the harness as one
continuation of its first token. `mmlu`: the harness's own task `mmlu` with the questions of that folder in place of the hub's.
"""

import glob
import json
import os
import sys

import datasets
import numpy
import torch

os.environ["HF_HUB_OFFLINE"] = "1"


def windows(index, length, most):
    """Windows of each domain's held-out token stream, `length` + 1 ids at stride `length`."""
    for folder in sorted(glob.glob(os.path.join(index, "domains", "*", "valid"))):
        shards = [numpy.fromfile(path, "<u2") for path in sorted(glob.glob(os.path.join(folder, "*.tokens")))]
        stream = numpy.concatenate(shards) if shards else numpy.zeros(0, "<u2")
        count = min((len(stream) - 1) // length, most)
        domain = os.path.basename(os.path.dirname(folder))
        yield domain, [stream[i * length : i * length + length + 1].tolist() for i in range(count)]


def local_mmlu(folder):
    """Stands in for `datasets.load_dataset("cais/mmlu", subject)`."""
    rows = {}
    for split in ["test", "dev"]:
        with open(os.path.join(folder, split + ".jsonl")) as lines:
            for line in lines:
                row = json.loads(line)
                rows.setdefault(row["subject"], {}).setdefault(split, []).append(row)

    def load_dataset(path=None, name=None, **_):
        assert path == "cais/mmlu", path
        return datasets.DatasetDict(
            {split: datasets.Dataset.from_list(found) for split, found in rows[name].items()}
        )

    datasets.load_dataset = load_dataset


def main(model, index, length, most, mmlu, shots, limit):
    import lm_eval
    from lm_eval.models.huggingface import HFLM

    harness = HFLM(pretrained=model, device="cpu", dtype="float32", batch_size=4)
    losses = {}
    for domain, found in windows(index, length, most):
        requests = [(("", ""), window[:1], window[1:]) for window in found]
        scores = harness._loglikelihood_tokens(requests, disable_tqdm=True)
        losses[domain] = -sum(score for score, _ in scores) / (len(scores) * length) if scores else None
    local_mmlu(mmlu)
    results = lm_eval.simple_evaluate(
        model=harness, tasks=["mmlu"], num_fewshot=shots, limit=limit, log_samples=True
    )
    found = {
        name.removeprefix("mmlu_"): [result["acc,none"], result["acc_stderr,none"]]
        for name, result in {**results["results"], **results.get("groups", {})}.items()
    }
    samples = {
        name.removeprefix("mmlu_"): [
            [float(answer[0][0]) for answer in sample["resps"]] for sample in sorted(rows, key=lambda s: s["doc_id"])
        ]
        for name, rows in results["samples"].items()
    }
    json.dump({"losses": losses, "mmlu": found, "log_likelihoods": samples}, sys.stdout)


if __name__ == "__main__":
    torch.set_num_threads(2)
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), sys.argv[5], int(sys.argv[6]), int(sys.argv[7]))
