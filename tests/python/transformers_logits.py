"""Logits of the real `transformers` for a Hugging Face folder, and that folder written again by it.

Reads JSON from standard input: `ids`, a list of lists of token ids. Prints JSON: `logits`, [sequence][position][vocabulary];
`missing` and `unexpected` names of weights. Writes the model to the second argument with `save_pretrained`.
"""

import json
import sys

import torch
from transformers import GPTNeoXForCausalLM


def main(folder, again):
    ids = torch.tensor(json.load(sys.stdin)["ids"])
    model, info = GPTNeoXForCausalLM.from_pretrained(
        folder, dtype=torch.float32, attn_implementation="eager", output_loading_info=True
    )
    model.eval()
    with torch.no_grad():
        logits = model(ids).logits
    model.save_pretrained(again)
    json.dump(
        {
            "logits": logits.tolist(),
            "missing": sorted(info["missing_keys"]),
            "unexpected": sorted(info["unexpected_keys"]),
        },
        sys.stdout,
    )


main(sys.argv[1], sys.argv[2])
