"""Reads and writes Megatron datasets with megatron-core itself, for tests/megatron_core.rs.

read PREFIX   prints a JSON object: type of the ids, and the ids of every document.
write PREFIX  writes a dataset of the documents in the JSON array on the standard input, of the type named third.
"""

import json
import sys

import numpy
from megatron.core.datasets.indexed_dataset import IndexedDataset, IndexedDatasetBuilder


def read(prefix):
    dataset = IndexedDataset(prefix, mmap=True)
    ends = dataset.document_indices
    documents = []
    for first, end in zip(ends[:-1], ends[1:]):
        sequences = [dataset[number].tolist() for number in range(first, end)]
        documents.append([token for sequence in sequences for token in sequence])
    json.dump({"type": numpy.dtype(dataset.index.dtype).name, "documents": documents}, sys.stdout)


def write(prefix, name):
    import torch

    builder = IndexedDatasetBuilder(prefix + ".bin", dtype=numpy.dtype(name).type)
    for document in json.load(sys.stdin):
        # Two sequences where it can be cut, as a preprocessor that splits sentences makes them.
        half = len(document) // 2
        for sequence in (document[:half], document[half:]):
            builder.add_item(torch.tensor(sequence, dtype=torch.int64))
        builder.end_document()
    builder.finalize(prefix + ".idx")


if sys.argv[1] == "read":
    read(sys.argv[2])
else:
    write(sys.argv[2], sys.argv[3])
