"""The other side of the bench `huggingface`: trains the model of a folder in PyTorch eager, a few steps whenever a line comes in.

In: a folder with a Hugging Face checkpoint and tokens.json, [batches][B][L + 1]; settings as JSON. Out: a line that says
what it runs on, then for each line of stdin one of JSON: the seconds and the loss, in nats a token, of each step of the turn; at
last the most memory this process has held, in MB.
"""

import json
import resource
import sys
import time
from pathlib import Path

import torch
import transformers
from torch.nn.functional import cross_entropy
from transformers import GPTNeoXForCausalLM

folder, settings = Path(sys.argv[1]), json.loads(sys.argv[2])
torch.set_num_threads(settings["threads"])
model = GPTNeoXForCausalLM.from_pretrained(folder, attn_implementation="sdpa", dtype=torch.float32)
model.train()
decayed = [p for p in model.parameters() if p.dim() > 1]
others = [p for p in model.parameters() if p.dim() <= 1]
optimizer = torch.optim.AdamW(
    [{"params": decayed, "weight_decay": settings["weight_decay"]}, {"params": others, "weight_decay": 0.0}],
    lr=settings["lr"],
    betas=tuple(settings["betas"]),
    eps=settings["eps"],
    fused=True,
)
batches = torch.tensor(json.loads((folder / "tokens.json").read_text()))
print(f"torch {torch.__version__}, transformers {transformers.__version__}", flush=True)
step = 0
for _ in sys.stdin:
    seconds, losses = [], []
    for _ in range(settings["turn"]):
        ids = batches[step % len(batches)]
        step += 1
        start = time.perf_counter()
        optimizer.zero_grad()
        logits = model(ids[:, :-1], use_cache=False).logits
        loss = cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten())
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        losses.append(loss.item())
        seconds.append(time.perf_counter() - start)
    print(json.dumps({"seconds": seconds, "losses": losses}), flush=True)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
