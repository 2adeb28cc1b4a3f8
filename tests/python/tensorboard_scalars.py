"""Prints what the real `tensorboard` reads in a folder of event files, as JSON on standard output.

`raw`: every (file, step, tag, value) in the files' order, as its loader gives them. `shown`: what its accumulator, and so its
page, keeps: {tag: [[step, value], ...]}.
"""

import json
import os
import sys

from tensorboard.backend.event_processing import event_accumulator, event_file_loader
from tensorboard.util import tensor_util


def main(folder):
    raw = []
    for name in sorted(os.listdir(folder)):
        for event in event_file_loader.EventFileLoader(os.path.join(folder, name)).Load():
            for value in event.summary.value:
                number = tensor_util.make_ndarray(value.tensor).item()
                raw.append([name, event.step, value.tag, number])
    accumulator = event_accumulator.EventAccumulator(folder, size_guidance={"scalars": 0, "tensors": 0})
    accumulator.Reload()
    shown = {}
    for tag in accumulator.Tags()["tensors"]:
        events = accumulator.Tensors(tag)
        shown[tag] = [[e.step, tensor_util.make_ndarray(e.tensor_proto).item()] for e in events]
    for tag in accumulator.Tags()["scalars"]:
        shown[tag] = [[e.step, e.value] for e in accumulator.Scalars(tag)]
    json.dump({"raw": raw, "shown": shown}, sys.stdout)


main(sys.argv[1])
