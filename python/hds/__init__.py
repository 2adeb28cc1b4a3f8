"""Batches of an HDS index under mixture weights that may change at every step, for any trainer.

>>> dataset = hds.StreamingDataset("pile-index", seq_len=1024, batch_size=32)   # doctest: +SKIP
>>> for batch in hds.DataLoader(dataset, num_workers=2):                        # doctest: +SKIP
...     loss = train(batch["input_ids"], batch["labels"])
...     dataset.set_weights(agent(loss))   # governs the very next batch

The stream of sequences is a function of index, seed and weights alone: not of ranks, workers or pauses.
``dataset.state_dict()`` is a few numbers that any number of ranks and workers can go on from.
"""

from ._native import DomainEnded, HdsError, __version__
from .agent import Agent, AgentError, Observation
from .batch import Batch
from .dataset import StreamingDataset
from .writer import WeightsWriter

__all__ = [
    "Agent",
    "AgentError",
    "Batch",
    "DataLoader",
    "DomainEnded",
    "HdsError",
    "Observation",
    "StreamingDataset",
    "WeightsWriter",
    "__version__",
]

try:
    from .loader import DataLoader
except ImportError:  # without torch there is no DataLoader to extend
    __all__.remove("DataLoader")
