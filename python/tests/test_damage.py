"""What damaged, removed and replaced files of weights give, and too little memory; NumPy only."""

from __future__ import annotations

import json
import resource
import subprocess
import sys

import pytest
from test_stream import EVEN, dataset, stream

import hds

DOMAINS = ["books", "code", "law", "web"]


@pytest.mark.parametrize("lost", ["half a line", "a line", "the first entry"])
def test_a_log_that_lost_lines_is_not_gone_on_with(index, tmp_path, lost):
    log = tmp_path / "weights.jsonl"
    data = dataset(index, weight_log=log)
    stream(data, 5)
    state = data.state_dict()
    del data
    lines = log.read_text().splitlines(keepends=True)
    kept = {"half a line": [*lines[:-1], lines[-1][:9]], "a line": lines[:-1], "the first entry": [lines[0], *lines[2:]]}
    log.write_text("".join(kept[lost]))
    again = dataset(index, weight_log=log)
    again.load_state_dict(state)
    with pytest.raises(hds.HdsError, match="lost entries|lines are missing"):
        next(iter(again))
    del again
    log.write_text("".join(lines))
    again = dataset(index, weight_log=log)
    again.load_state_dict(state)
    stream(again, 2)
    # The weights set after batch 4 governed none: they come with the next batch.
    assert [json.loads(line)["step"] for line in log.read_text().splitlines()[1:]] == [0, 1, 2, 3, 4, 6]


def test_the_log_of_another_run_is_not_gone_on_with(index, tmp_path):
    logs = [tmp_path / "a", tmp_path / "b"]
    states = []
    for log, change in zip(logs, (True, False)):
        data = dataset(index, weight_log=log)
        for batch in data:
            if batch.step == 4:
                break
            # As many versions in both, of other weights.
            data.set_weights([0.4, 0.3, 0.2, 0.1] if change else EVEN)
        data.set_weights(EVEN)
        states.append(data.state_dict())
        del data
    again = dataset(index, weight_log=logs[1])
    again.load_state_dict(states[0])
    with pytest.raises(hds.HdsError, match="of another run: its version 5"):
        next(iter(again))
    again.load_state_dict(states[1])
    assert next(iter(again)).step == 5


def test_a_batch_whose_weights_cannot_be_noted_comes_again(index, tmp_path):
    log = tmp_path / "weights.jsonl"
    data = dataset(index, weight_log=log)
    batches = iter(data)
    got = [next(batches).step for _ in range(3)]
    data.set_weights([0.0, 0.0, 0.0, 1.0])
    log.rename(tmp_path / "away")
    for _ in range(2):
        with pytest.raises(hds.HdsError, match="moved"):
            next(iter(data))
        assert data.state_dict()["step"] == 3
    (tmp_path / "away").rename(log)
    got += [batch.step for batch, _ in zip(data, range(3))]
    assert got == [0, 1, 2, 3, 4, 5]
    # A second dataset that may not write yet.
    second = dataset(index, weight_log=log)
    with pytest.raises(hds.HdsError, match="being written by another"):
        next(iter(second))
    assert second.state_dict()["step"] == 0


def test_a_log_is_not_read_and_written_at_once(index, tmp_path):
    log = tmp_path / "weights.jsonl"
    stream(dataset(index, weight_log=log), 2)
    with pytest.raises(ValueError, match="weight_log: .* is the log that replay reads"):
        dataset(index, replay=log, weight_log=log)


def test_a_writer_whose_file_is_gone_says_so(tmp_path):
    path = tmp_path / "weights"
    first = hds.WeightsWriter(path, DOMAINS, EVEN)
    path.unlink()
    with pytest.raises(hds.HdsError, match="was removed"):
        first.set_weights(EVEN)
    second = hds.WeightsWriter(path, DOMAINS, EVEN)
    with pytest.raises(hds.HdsError, match="another writer has made"):
        first.set_weights(EVEN)
    assert second.set_weights(EVEN) == 2


def test_a_log_removed_while_it_is_written_is_told(index, tmp_path):
    data = dataset(index, weight_log=tmp_path / "weights.jsonl")
    batches = iter(data)
    next(batches)
    (tmp_path / "weights.jsonl").unlink()
    data.set_weights([0.0, 0.0, 0.0, 1.0])
    with pytest.raises(hds.HdsError, match="moved, removed, replaced"):
        next(batches)


@pytest.mark.parametrize(
    ("option", "words"),
    [
        ({"batch_size": 4}, "with batch size 8, here it is 4"),
        ({"draws": "stratified"}, "with draws independent, here it is stratified"),
        ({"seq_len": 16}, "with sequence length 32"),
        ({"packing": "documents"}, "with packing windows"),
        ({"minimum_per_domain": 1}, "with least sequences of a domain 0"),
        ({"domain_end": 3}, "with domain end restart, here it is cap of 3"),
    ],
)
def test_a_log_of_batches_drawn_otherwise_is_not_replayed(index, tmp_path, option, words):
    stream(dataset(index, weight_log=tmp_path / "log"), 2)
    with pytest.raises(hds.HdsError, match=words):
        dataset(index, replay=tmp_path / "log", **option)


def test_a_writer_that_comes_again_is_told_to_running_readers(index, tmp_path):
    path = tmp_path / "weights"
    writer = hds.WeightsWriter(path, DOMAINS, EVEN)
    data = dataset(index, weights_file=path)
    batches = iter(data)
    assert next(batches).weights_version == 1
    del writer
    next(batches)
    writer = hds.WeightsWriter(path, DOMAINS, [0.0, 0.0, 0.0, 1.0], step=2, version=7)
    with pytest.raises(hds.HdsError, match="another writer has made .* anew"):
        next(batches)
    # As the message says: open it again where the run stands.
    data.load_state_dict(data.state_dict())
    batch = next(iter(data))
    assert (batch.step, batch.weights_version) == (2, 7) and (batch["domain_ids"] == 3).all()


def test_a_damaged_file_of_weights_ends_in_an_error(index, tmp_path):
    path = tmp_path / "weights"
    # Of 48 and 128 (how many entries there are, and which one a slot holds) a reader waits some seconds for the writer to end.
    for place in [*range(40, 49), 127, 128, *range(136, 168)]:
        path.unlink(missing_ok=True)
        writer = hds.WeightsWriter(path, DOMAINS, EVEN)
        data = dataset(index, weights_file=path)
        with path.open("r+b") as file:
            file.seek(place)
            byte = file.read(1)[0]
            file.seek(place)
            file.write(bytes([byte ^ 0x81]))
        try:
            batch = next(iter(data))
        except (hds.HdsError, ValueError) as error:
            assert "damaged" in str(error) or "no weights for batch" in str(error), (place, error)
        else:
            assert batch.weights_version == 1, place
        try:
            writer.set_weights(EVEN)
        except hds.HdsError as error:
            assert "damaged" in str(error)
    path.unlink()
    writer = hds.WeightsWriter(path, DOMAINS, EVEN)
    data = dataset(index, weights_file=path)
    with path.open("r+b") as file:
        file.truncate(64)
    with pytest.raises(hds.HdsError, match="cut short"):
        next(iter(data))
    with pytest.raises(hds.HdsError, match="cut short"):
        writer.set_weights(EVEN)
    writer.set_horizon(3)


TOO_LARGE = """
import resource, sys
import numpy as np
import hds
data = hds.StreamingDataset(sys.argv[1], seq_len=256, batch_size=40_000, seed=1, output="numpy")
first = np.copy(next(iter(hds.StreamingDataset(sys.argv[1], seq_len=256, batch_size=4, seed=1, output="numpy")))["input_ids"])
used = int(next(line for line in open("/proc/self/status") if line.startswith("VmSize")).split()[1]) * 1024
batches = iter(data)
resource.setrlimit(resource.RLIMIT_AS, (used + 100_000_000, resource.RLIM_INFINITY))
try:
    next(batches)
    print("no error")
except MemoryError as error:
    print(error)
resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
del batches
batch = next(iter(data))
print(batch.step, batch["input_ids"].shape)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="needs a limit on memory")
def test_a_batch_beyond_memory_is_a_memory_error(index):
    assert resource.getrlimit(resource.RLIMIT_AS)[1] == resource.RLIM_INFINITY
    done = subprocess.run([sys.executable, "-c", TOO_LARGE, index], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    error, after = done.stdout.splitlines()
    assert "no memory for a batch" in error and "batch_size" in error
    assert after == "0 (40000, 256)"
