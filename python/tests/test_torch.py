"""The dataset under torch's DataLoader and hds's: the same stream for any number of workers."""

from __future__ import annotations

import copy
import os
import pickle
import subprocess
import sys
import textwrap

import pytest

import hds

torch = pytest.importorskip("torch")

L = 32
EVEN = [0.25, 0.25, 0.25, 0.25]


def dataset(index, **options):
    options = {"seq_len": L, "batch_size": 8, "seed": 5, "weights": EVEN} | options
    return hds.StreamingDataset(index, **options)


def weights_of(step):
    raw = torch.tensor([1.0 + step % 5, 2.0, 0.0 if step % 3 == 1 else 1.5, 1.0], dtype=torch.float64)
    return raw / raw.sum()


def equal(a, b):
    assert len(a) == len(b)
    for x, y in zip(a, b):
        assert x.keys() == y.keys() and x.step == y.step and x.samples == y.samples
        for key in x:
            assert torch.equal(torch.as_tensor(x[key]), torch.as_tensor(y[key])), key


def exact(index, workers, steps, **options):
    """hds.DataLoader with weights changed after every batch."""
    data = dataset(index, length=steps, **options)
    batches = []
    for batch in hds.DataLoader(data, num_workers=workers):
        batches.append(batch)
        data.set_weights(weights_of(batch.step + 1))
    return data, batches


def test_tensors_are_what_a_model_takes(index):
    batch = next(iter(dataset(index)))
    assert batch["input_ids"].dtype == batch["labels"].dtype == torch.int64
    assert batch["loss_mask"].dtype == torch.bool and batch["mtld"].dtype == torch.float32
    assert batch["cu_seqlens"].dtype == torch.int32
    labels = batch["labels"].view(-1)  # contiguous
    logits = torch.nn.Embedding(300, 300)(batch["input_ids"]).view(-1, 300)
    assert torch.nn.functional.cross_entropy(logits, labels).item() > 0


@pytest.mark.parametrize("workers", [0, 2, 3])
def test_forked_workers_replay_a_log_each_from_its_own_place(index, tmp_path, workers):
    # Longer than what a reader takes at once, so that each reads on by itself.
    steps, log = 150, tmp_path / "weights.jsonl"
    data = dataset(index, weight_log=log)
    stream = iter(data)
    wanted = []
    for step in range(steps):
        wanted.append(next(stream))
        data.set_weights(weights_of(step + 1))
    assert log.stat().st_size > 2 * 8192
    again = dataset(index, replay=log, length=steps)
    equal(wanted, list(hds.DataLoader(again, num_workers=workers)))


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize("options", [{}, {"batch_size": 4}])
def test_batches_are_not_joined_once_more(index, workers, options):
    loader = torch.utils.data.DataLoader(dataset(index, length=8), num_workers=workers, **options)
    with pytest.raises(TypeError, match="batch_size=None"):
        next(iter(loader))


@pytest.mark.parametrize("workers", [0, 1, 2, 8])
def test_torchs_loader_gives_the_same_stream_for_any_number_of_workers(index, workers):
    whole = list(dataset(index, length=21))
    data = dataset(index, length=21)
    loader = torch.utils.data.DataLoader(data, batch_size=None, num_workers=workers)
    assert len(loader) == 21
    equal(list(loader), whole)
    # At the end of an epoch nothing is in doubt, and the next one goes on.
    assert data.state_dict()["step"] == 21
    more = list(loader)
    assert [batch.step for batch in more] == list(range(21, 42))
    # Any step's state is known, and goes on with exactly the next batch.
    other = dataset(index, length=21)
    other.load_state_dict(data.state_dict(step=30))
    equal(list(other), more[9:])


@pytest.mark.parametrize("workers", [0, 1, 2, 8])
def test_with_hds_loader_weights_govern_the_next_batch_in_any_worker(index, workers):
    _, want = exact(index, 0, 17)
    data, got = exact(index, workers, 17)
    equal(got, want)
    assert [batch.weights_version for batch in got] == list(range(1, 18))
    assert data.state_dict()["step"] == 17


@pytest.mark.parametrize("workers", [0, 1, 8])
def test_a_run_that_stops_anywhere_goes_on_with_other_workers(index, workers):
    _, want = exact(index, 0, 12)
    for stop in (0, 1, 5, 11):
        data = dataset(index)
        if stop:
            for batch in hds.DataLoader(data, num_workers=workers):
                data.set_weights(weights_of(batch.step + 1))
                if batch.step + 1 == stop:
                    break
        state = data.state_dict()
        assert state["step"] == stop
        other = dataset(index, length=12)
        loader = hds.DataLoader(other, num_workers=(workers + 1) % 4)
        loader.load_state_dict(state)
        batches = []
        for batch in loader:
            batches.append(batch)
            other.set_weights(weights_of(batch.step + 1))
        equal(batches, want[stop:])
        # The same dataset may go on too, and nothing that workers had drawn ahead is lost.
        batches = []
        for batch in hds.DataLoader(data, num_workers=2):
            batches.append(batch)
            data.set_weights(weights_of(batch.step + 1))
            if batch.step == 11:
                break
        equal(batches, want[stop:])


def test_weights_with_a_lag_govern_that_much_later(index):
    data = dataset(index, length=20)
    for batch in hds.DataLoader(data, num_workers=2, weights_lag=3):
        if batch.step > 3:
            assert batch.weights_version <= batch.step + 1
            assert batch.weights_version >= batch.step - 3 + 1
        data.set_weights(weights_of(batch.step))


def test_a_plain_loader_with_workers_needs_to_be_told_the_step(index):
    data = dataset(index)
    for batch in torch.utils.data.DataLoader(data, batch_size=None, num_workers=2):
        if batch.step == 3:
            break
    with pytest.raises(ValueError, match="trained on"):
        data.state_dict()
    assert data.state_dict(step=4)["samples"] == list(batch.samples)


def test_spawned_and_kept_workers_give_the_same_stream(index):
    whole = list(dataset(index, length=6)) 
    data = dataset(index, length=6)
    loader = torch.utils.data.DataLoader(
        data, batch_size=None, num_workers=2, multiprocessing_context="spawn", persistent_workers=True
    )
    equal(list(loader), whole)
    assert [batch.step for batch in loader] == list(range(6, 12))


def test_workers_batches_travel_whole_whatever_was_changed_in_them(index):
    def change(batch):
        batch["labels"] = batch["labels"] + 1
        batch["input_ids"][0, 0] = 7
        batch["note"] = "kept"
        del batch["mtld"]
        return batch

    want = list(dataset(index, length=4))
    data = dataset(index, length=4)
    loader = torch.utils.data.DataLoader(data, batch_size=None, num_workers=1, collate_fn=change)
    for batch, other in zip(loader, want):
        assert torch.equal(batch["labels"], other["labels"] + 1) and batch["note"] == "kept"
        assert batch["input_ids"][0, 0] == 7 and "mtld" not in batch
        assert torch.equal(batch["loss_mask"], other["loss_mask"])


def to_dict(batch):
    return {key: value for key, value in batch.items()}


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("change", [to_dict, copy.deepcopy, lambda batch: batch["input_ids"]])
def test_whatever_a_collate_fn_returns_is_counted(index, workers, change):
    data = dataset(index, length=6)
    loader = hds.DataLoader(data, num_workers=workers, collate_fn=change)
    whole = [change(batch) for batch in dataset(index, length=12)]
    seen = []
    for number, item in enumerate(loader):
        assert type(item) is type(whole[number])
        seen.append(item)
        assert data.state_dict()["step"] == number + 1
    seen += list(loader)
    assert data.state_dict()["step"] == 12
    for got, want in zip(seen, whole, strict=True):
        got, want = (x if torch.is_tensor(x) else x["input_ids"] for x in (got, want))
        assert torch.equal(got, want)


def more_than_bytes(batch):
    batch.mine = 5
    batch["mtld"] = torch._neg_view(batch["mtld"])
    batch["domain_ids"] = batch["domain_ids"].to_sparse()
    batch["loss_mask"] = torch.nn.Parameter(batch["loss_mask"].float())
    batch["extra"] = torch.ones(2, requires_grad=True)
    return batch


def test_what_a_collate_fn_put_into_a_batch_arrives(index):
    (got,) = hds.DataLoader(dataset(index, length=1), num_workers=1, collate_fn=more_than_bytes)
    (want,) = dataset(index, length=1)
    assert got.mine == 5 and got["extra"].requires_grad
    assert torch.equal(got["mtld"], -want["mtld"])
    assert torch.equal(got["domain_ids"].to_dense(), want["domain_ids"])
    assert isinstance(got["loss_mask"], torch.nn.Parameter)


def test_a_copy_of_a_batch_does_not_count(index):
    data = dataset(index, length=4)
    batches = list(hds.DataLoader(data, num_workers=2, weights_lag=2))
    state = data.state_dict()
    for batch in batches:
        assert copy.deepcopy(batch).step == pickle.loads(pickle.dumps(batch)).step == batch.step
    assert data.state_dict() == state


def test_what_workers_cannot_do_is_said(index, tmp_path):
    with pytest.raises(TypeError, match="no hds.StreamingDataset"):
        hds.DataLoader([1, 2])
    for arguments in ({"batch_size": 4}, {"persistent_workers": True}, {"weights_lag": -1}):
        with pytest.raises(ValueError, match=next(iter(arguments))):
            hds.DataLoader(dataset(index), num_workers=1, **arguments)
    data = dataset(index, weight_log=tmp_path / "log")
    with pytest.raises(RuntimeError, match="hds.DataLoader"):
        list(torch.utils.data.DataLoader(data, batch_size=None, num_workers=1))

    def wrong(batch):
        data.set_weights(EVEN)

    with pytest.raises(RuntimeError, match="not in its workers"):
        list(torch.utils.data.DataLoader(data := dataset(index), batch_size=None, num_workers=1, collate_fn=wrong))


def test_a_log_written_with_workers_replays(index, tmp_path):
    log = tmp_path / "weights.jsonl"
    _, want = exact(index, 2, 9, weight_log=log)
    got = list(dataset(index, length=9, replay=log))
    equal(got, want)
    loader = torch.utils.data.DataLoader(dataset(index, length=9, replay=log), batch_size=None, num_workers=3)
    equal(list(loader), want)


def test_rank_and_world_size_come_from_the_environment(index):
    code = """
        import os, sys, torch.distributed as dist, hds
        make = lambda: hds.StreamingDataset(sys.argv[1], seq_len=32, batch_size=8, weights=[.25] * 4)
        data = make()
        assert (data.rank, data.world_size, data.rows) == (1, 2, 4), (data.rank, data.world_size)
        os.environ.update(RANK="0", WORLD_SIZE="1", MASTER_ADDR="127.0.0.1", MASTER_PORT="0")
        store = dist.HashStore()
        dist.init_process_group("gloo", store=store, rank=0, world_size=1)
        os.environ.update(RANK="1", WORLD_SIZE="2")
        data = make()
        assert (data.rank, data.world_size, data.rows) == (0, 1, 8), (data.rank, data.world_size)
        dist.destroy_process_group()
    """
    environment = os.environ | {"RANK": "1", "WORLD_SIZE": "2"}
    command = [sys.executable, "-c", textwrap.dedent(code), str(index)]
    subprocess.run(command, check=True, env=environment)
