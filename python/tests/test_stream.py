"""The stream and its arrays, against the files read without hds; NumPy only."""

from __future__ import annotations

import json
import threading
import time

import numpy as np
import pytest

import hds

L = 32
EVEN = [0.25, 0.25, 0.25, 0.25]


def dataset(index, **options):
    options = {"seq_len": L, "batch_size": 8, "seed": 5, "weights": EVEN, "output": "numpy"} | options
    return hds.StreamingDataset(index, **options)


def weights_of(step):
    """Other weights each step; one domain is away now and then."""
    raw = np.array([1 + step % 5, 2.0, 0.0 if step % 3 == 1 else 1.5, 1.0])
    return raw / raw.sum()


def stream(data, steps, change=True):
    """Batches, with the weights changed after each, copied."""
    batches = []
    if steps == 0:
        return batches
    for batch in data:
        batches.append({key: np.copy(value) for key, value in batch.items()})
        if len(batches) == steps:
            return batches
        if change:
            data.set_weights(weights_of(batch.step + 1))
    return batches


def equal(a, b):
    assert len(a) == len(b)
    for x, y in zip(a, b):
        assert list(x) == list(y)
        for key in x:
            np.testing.assert_array_equal(x[key], y[key], err_msg=key)


def test_arrays_have_the_shapes_types_and_tokens_they_should(index, tokens):
    keys = [*hds.dataset.DEFAULT_KEYS, "sample_ids", "step", "weights_version"]
    data = dataset(index, keys=keys)
    names = data.domains
    assert names == ["books", "code", "law", "web"]
    for step, batch in zip(range(40), data):
        assert list(batch) != [] and set(batch) == set(keys)
        assert batch["step"] == batch.step == step and batch["weights_version"] == 1
        for key in ("input_ids", "labels", "position_ids"):
            assert batch[key].shape == (8, L) and batch[key].dtype == np.int64
            assert batch[key].flags.c_contiguous
        assert batch["loss_mask"].dtype == np.bool_ and batch["mtld"].dtype == np.float32
        assert (batch["mtld"] > 0).all()
        assert (batch["position_ids"] == np.arange(L)).all()
        for row, (domain, (_, window)) in enumerate(zip(batch["domain_ids"], batch["sample_ids"])):
            want = tokens[names[domain]][window * L : window * L + L + 1]
            assert (batch["input_ids"][row] == want[:-1]).all()
            assert (batch["labels"][row] == want[1:]).all()


def test_boundaries_mask_and_positions_follow_the_documents(index, end_of_document):
    data = dataset(index, reset_position_ids=True, mask_boundaries=True)
    plain = dataset(index)
    crossings = 0
    for _, batch, other in zip(range(30), data, plain):
        ends = batch["input_ids"] == end_of_document
        crossings += ends.sum()
        assert (batch["loss_mask"] == ~ends).all()
        assert (batch["labels"] == np.where(ends, -100, other["labels"])).all()
        starts = np.zeros((8, L), bool)
        starts[:, 0] = True
        starts[:, 1:] = ends[:, :-1]
        cu = np.append(np.flatnonzero(starts.ravel()), 8 * L)
        assert batch["cu_seqlens"].dtype == np.int32
        assert (batch["cu_seqlens"] == cu).all()
        begun = np.maximum.accumulate(np.where(starts, np.arange(L), 0), axis=1)
        assert (batch["position_ids"] == np.arange(L) - begun).all()
    assert crossings > 20


def test_labels_of_models_that_shift_them_are_the_inputs(index, end_of_document):
    data = dataset(index, labels="same", mask_boundaries=True)
    for _, batch in zip(range(10), data):
        starts = np.zeros((8, L), bool)
        starts[:, 1:] = batch["input_ids"][:, :-1] == end_of_document
        assert (batch["labels"] == np.where(starts, -100, batch["input_ids"])).all()


def test_documents_are_padded_and_padding_is_no_target(index, tokens, end_of_document):
    keys = [*hds.dataset.DEFAULT_KEYS, "sample_ids"]
    data = dataset(index, packing="documents", padding_token=1, seq_len=100, keys=keys, reset_position_ids=True)
    ends = {name: np.append(0, np.flatnonzero(ids == end_of_document) + 1) for name, ids in tokens.items()}
    short = 0
    for _, batch in zip(range(30), data):
        assert (np.diff(batch["cu_seqlens"]) > 0).all() and batch["cu_seqlens"][-1] == 800
        for row, (domain, (_, document)) in enumerate(zip(batch["domain_ids"], batch["sample_ids"])):
            name = data.domains[domain]
            whole = tokens[name][ends[name][document] : ends[name][document + 1]][:101].astype(np.int64)
            short += len(whole) < 101
            padded = np.append(whole, [1] * (101 - len(whole)))
            assert (batch["input_ids"][row] == padded[:-1]).all()
            filled = len(whole) - 1
            assert (batch["labels"][row, :filled] == whole[1:]).all()
            assert (batch["labels"][row, filled:] == -100).all()
            assert batch["loss_mask"][row].sum() == filled and batch["loss_mask"][row, :filled].all()
            inputs = min(len(whole), 100)
            assert (batch["position_ids"][row, :inputs] == np.arange(inputs)).all()
            assert (batch["position_ids"][row, inputs:] == 0).all()
    assert short > 20


def test_weights_govern_the_next_batch_and_say_their_version(index):
    data = dataset(index)
    batches = iter(data)
    for step in range(12):
        name = data.domains[step % 4]
        version = data.set_weights({n: float(n == name) for n in data.domains})
        batch = next(batches)
        assert batch.weights_version == version == data.weights_version == step + 2
        assert (batch["domain_ids"] == step % 4).all()
        assert data.weights[name] == 1.0
    assert data.samples == dict.fromkeys(data.domains, 24)
    assert data.epochs["law"] == 24 / data._core.domain_samples[2]


@pytest.mark.parametrize(
    ("weights", "words"),
    [
        ([0.5, float("nan"), 0.25, 0.25], "domain \"code\" is NaN"),
        ([0.5, 0.75, -0.25, 0], "domain \"law\" is -0.25"),
        ([0.5, 0.5], "2 weights for 4 domains"),
        ([0.5, 0.5, 0.5, 0.5], "sum to 2"),
        ({"books": 1.0}, "nothing for ['code', 'law', 'web']"),
        ({"books": 1.0, "cod": 0.0}, "no domain is named ['cod']"),
        ("even", "must be"),
    ],
)
def test_bad_weights_are_refused_with_the_domain(index, weights, words):
    with pytest.raises(ValueError) as error:
        dataset(index, weights=weights)
    assert words in str(error.value)
    data = dataset(index)
    with pytest.raises(ValueError):
        data.set_weights(weights)
    # The weights before stand.
    assert data.weights_version == 1 and next(iter(data)).weights_version == 1


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"seq_len": 0}, "seq_len"),
        ({"seq_len": 10**6}, 'domain "books" has weight'),
        ({"batch_size": 2, "rank": 0, "world_size": 3}, "world_size"),
        ({"rank": 2, "world_size": 2}, "rank"),
        ({"rank": 2}, "both rank and world_size"),
        ({"draws": "random"}, "draws: 'random', must be \"independent\" or \"stratified\""),
        ({"keys": ["tokens"]}, "keys: no 'tokens'"),
        ({"labels": "prev"}, "labels"),
        ({"minimum_per_domain": 3}, "needs a batch of 12"),
        ({"packing": "documents", "padding_token": 70_000}, "padding_token"),
        ({"domain_end": 0}, "domain_end"),
        ({"length": 0}, "length"),
        ({"output": "jax"}, "output"),
        ({"access": "ftp"}, "access"),
    ],
)
def test_bad_arguments_are_refused_by_name(index, options, words):
    with pytest.raises(ValueError) as error:
        dataset(index, **options)
    assert words in str(error.value)


def test_what_is_no_index_is_said_so(tmp_path):
    with pytest.raises(hds.HdsError, match="is no index.*hds-index build"):
        dataset(tmp_path / "nothing")
    (tmp_path / "manifest.json").write_text("{}")
    with pytest.raises(hds.HdsError):
        dataset(tmp_path)


def test_the_stream_is_the_same_for_every_world_size_and_after_every_resume(index):
    whole = stream(dataset(index), 14)
    for world in (1, 2, 4, 8, 3):
        ranks = [stream(dataset(index, rank=r, world_size=world), 14) for r in range(world)]
        for step, batch in enumerate(whole):
            for key in ("input_ids", "labels", "domain_ids", "mtld"):
                parts = [rank[step][key] for rank in ranks]
                np.testing.assert_array_equal(np.concatenate(parts), batch[key])
    # Before the first batch, in the middle, after the last one.
    for stop in (0, 1, 7, 13):
        data = dataset(index, rank=1, world_size=2)
        if stop:
            stream(data, stop)
            data.set_weights(weights_of(stop))
        text = json.dumps(data.state_dict())
        assert len(text) < 600
        for world in (1, 4, 3):
            ranks = []
            for rank in range(world):
                other = dataset(index, rank=rank, world_size=world, weights=[1, 0, 0, 0])
                other.load_state_dict(json.loads(text))
                if stop:
                    assert other.weights_version == stop + 1
                else:
                    other.set_weights(EVEN)
                ranks.append(stream(other, 14 - stop))
            for step, batch in enumerate(whole[stop:]):
                parts = [rank[step]["input_ids"] for rank in ranks]
                np.testing.assert_array_equal(np.concatenate(parts), batch["input_ids"])


def test_a_state_of_another_run_is_refused_with_the_reason(index, tmp_path):
    state = dataset(index).state_dict()
    for options, words in [
        ({"seed": 6}, "another seed: it has 5, this loader has 6"),
        ({"seq_len": 16}, "another sequence length"),
        ({"order": "independent"}, "another order"),
        ({"packing": "documents"}, "another packing"),
    ]:
        with pytest.raises(ValueError, match=words):
            dataset(index, **options).load_state_dict(state)
    for edit, words in [
        ({"index": "0" * 64}, "another index"),
        ({"samples": [0]}, "number of domains"),
        ({"surprise": 1}, "no state of a dataset"),
    ]:
        with pytest.raises(ValueError, match=words):
            dataset(index).load_state_dict(state | edit)


def test_an_iteration_ends_when_a_state_is_loaded_under_it(index):
    data = dataset(index)
    state = data.state_dict()
    batches = iter(data)
    first = np.copy(next(batches)["input_ids"])
    data.load_state_dict(state)
    with pytest.raises(RuntimeError, match="begin another"):
        next(batches)
    np.testing.assert_array_equal(next(iter(data))["input_ids"], first)


def test_an_epoch_has_its_length_and_the_next_one_goes_on(index):
    whole = stream(dataset(index), 10, change=False)
    data = dataset(index, length=5)
    assert len(data) == 5
    equal(stream(data, 99, change=False) + stream(data, 99, change=False), whole)
    with pytest.raises(TypeError, match="endless"):
        len(dataset(index))
    # A state from the middle of an epoch goes on to its end.
    data = dataset(index, length=5)
    stream(data, 7, change=False)
    state = data.state_dict(step=3)
    data.load_state_dict(state)
    equal(stream(data, 99, change=False), whole[3:5])


def test_the_state_of_an_earlier_step_is_known(index):
    data = dataset(index)
    batches = stream(data, 9)
    for step in (0, 4, 9):
        state = data.state_dict(step=step)
        assert state["step"] == step
        other = dataset(index)
        other.load_state_dict(state)
        again = stream(other, 9 - step)
        equal(again, batches[step:])
    with pytest.raises(ValueError, match="batches seen here are 0 to 9"):
        data.state_dict(step=10)


def test_arrays_are_views_of_memory_that_no_later_batch_uses(index):
    data = dataset(index)
    kept, copies, places = [], [], set()
    for step, batch in zip(range(30), data):
        address = batch["input_ids"].__array_interface__["data"][0]
        assert batch["input_ids"].base is not None
        places.add(address)
        if step % 3 == 0:
            kept.append(batch["labels"])  # the array alone keeps its memory
            copies.append(np.copy(batch["labels"]))
        batch["input_ids"][:] = -1  # writing is allowed, and seen by nobody else
    for array, copy in zip(kept, copies):
        np.testing.assert_array_equal(array, copy)
    assert len(places) < 20, "memory that nobody looks at is used again"


def test_a_capped_domain_ends_and_is_reported(index):
    data = dataset(index, domain_end=2, weights=[0.1, 0.1, 0.7, 0.1])
    ended = []
    try:
        for batch in data:
            assert not np.isin(batch["domain_ids"], ended).any()
            ended = batch.ended
    except hds.DomainEnded as error:
        assert "domain_end=2" in str(error)
    assert 2 in ended and data.epochs["law"] == 2.0
    assert all(epochs <= 2.0 for epochs in data.epochs.values())
    stopping = dataset(index, domain_end="stop")
    with pytest.raises(hds.DomainEnded, match='"law"'):
        stream(stopping, 10**6, change=False)


def test_a_log_replays_the_run_alone(index, tmp_path):
    log = tmp_path / "weights.jsonl"
    data = dataset(index, weight_log=log)
    batches = stream(data, 6)
    state = data.state_dict(step=4)
    # A run that stopped after writing more than its checkpoint: the log is cut and goes on.
    data.load_state_dict(state)
    equal(stream(data, 6), batches[4:] + stream(dataset_at(index, state), 6)[2:])
    lines = log.read_text().splitlines()
    first = json.loads(lines[1])
    assert len(lines) == 11 and len(first.pop("sum")) == 16
    assert first == {"step": 0, "version": 1, "after": 0, "weights": EVEN}
    for world in (1, 2):
        for rank in range(world):
            again = dataset(index, replay=log, rank=rank, world_size=world, weights="uniform")
            got = stream(again, 6, change=False)
            rows = slice(rank * 8 // world, (rank + 1) * 8 // world)
            for a, b in zip(got, batches):
                np.testing.assert_array_equal(a["input_ids"], b["input_ids"][rows])
    with pytest.raises(RuntimeError, match="not this dataset's to set"):
        again.set_weights(EVEN)
    with pytest.raises(hds.HdsError, match="another seed"):
        dataset(index, replay=log, seed=6)


def test_an_interrupted_batch_comes_again(index, monkeypatch):
    want = stream(dataset(index), 6)
    data = dataset(index)
    make, fails = data._make, [False, True, True, False, True]

    def interrupted(item):
        if fails and fails.pop(0):
            raise KeyboardInterrupt
        return make(item)

    monkeypatch.setattr(data, "_make", interrupted)
    got = []
    while len(got) < 6:
        try:
            for batch in data:
                got.append({key: np.copy(value) for key, value in batch.items()})
                if len(got) == 6:
                    break
                data.set_weights(weights_of(batch.step + 1))
        except KeyboardInterrupt:
            assert data.state_dict()["step"] == len(got)
    equal(got, want)


def test_a_log_has_one_writer_at_a_time(index, tmp_path):
    log = tmp_path / "weights.jsonl"
    first = dataset(index, weight_log=log)
    batches = iter(first)
    next(batches)
    second = dataset(index, weight_log=log)
    with pytest.raises(hds.HdsError, match="is being written by another"):
        next(iter(second))
    first.set_weights(EVEN)
    next(batches)
    assert [path.name for path in tmp_path.iterdir()] == ["weights.jsonl"]
    assert len(log.read_text().splitlines()) == 3
    del first, batches
    stream(second, 1)


def test_a_log_that_is_there_is_kept_and_other_files_are_not_touched(index, tmp_path):
    log = tmp_path / "weights.jsonl"
    stream(dataset(index, weight_log=log), 3)
    first = log.read_text()
    # A run that forgot its state begins at batch 0.
    stream(dataset(index, weight_log=log), 1)
    stream(dataset(index, weight_log=log), 2)
    assert (tmp_path / "weights.jsonl.1").read_text() == first
    assert len((tmp_path / "weights.jsonl.2").read_text().splitlines()) == 2
    assert len(log.read_text().splitlines()) == 3
    precious = tmp_path / "precious"
    precious.write_text("precious")
    with pytest.raises(ValueError, match="weight_log: it is there and no weight log"):
        stream(dataset(index, weight_log=precious), 1)
    with pytest.raises(hds.HdsError, match="no file of weights"):
        hds.WeightsWriter(precious, ["a", "b"], [0.5, 0.5])
    assert precious.read_text() == "precious"


def test_a_thread_takes_states_while_another_draws(index):
    data = dataset(index)
    states, done = [], threading.Event()

    def save():
        while not done.is_set():
            states.append(data.state_dict()["step"])

    thread = threading.Thread(target=save)
    thread.start()
    try:
        stream(data, 300, change=False)
    finally:
        done.set()
        thread.join()
    assert len(states) > 10 and states == sorted(states) and states[-1] <= 300


def dataset_at(index, state):
    data = dataset(index)
    data.load_state_dict(state)
    return data


def test_weights_come_from_another_writer(index, tmp_path):
    path = tmp_path / "weights"
    with pytest.raises(FileNotFoundError):
        dataset(index, weights_file=path)
    writer = hds.WeightsWriter(path, ["books", "code", "law", "web"], EVEN)
    readers = [dataset(index, weights_file=path, rank=r, world_size=2) for r in range(2)]
    streams = [iter(reader) for reader in readers]
    for step in range(10):
        name = step % 4
        version = writer.set_weights([float(d == name) for d in range(4)])
        for batches in streams:
            batch = next(batches)
            # The second rank gets what the first one settled, whatever is published between.
            writer.set_weights(EVEN)
            assert batch.weights_version == version and (batch["domain_ids"] == name).all()
    assert writer.frontier == 10
    with pytest.raises(RuntimeError, match="not this dataset's"):
        readers[0].set_weights(EVEN)
    with pytest.raises(hds.HdsError, match="another writer"):
        hds.WeightsWriter(path, ["books"], [1.0])
    with pytest.raises(ValueError, match='domain "b" is'):
        hds.WeightsWriter(tmp_path / "x", ["a", "b"], [2.0, -1.0])


def test_other_threads_run_while_a_batch_is_waited_for(index, tmp_path):
    writer = hds.WeightsWriter(tmp_path / "weights", ["books", "code", "law", "web"], EVEN)
    writer.set_horizon(0)
    data = dataset(index, weights_file=tmp_path / "weights")
    got = []
    thread = threading.Thread(target=lambda: got.append(next(iter(data))))
    thread.start()
    # If the lock of Python were held, this thread could never open the horizon.
    time.sleep(0.3)
    assert got == []
    version = writer.set_weights([1.0, 0, 0, 0])
    writer.set_horizon(1)
    thread.join(timeout=30)
    assert got[0].weights_version == version and (got[0]["domain_ids"] == 0).all()


def test_a_change_of_weights_costs_microseconds(index):
    data = dataset(index)
    best = float("inf")
    for _ in range(20):
        start = time.perf_counter()
        for _ in range(50):
            data.set_weights(EVEN)
        best = min(best, (time.perf_counter() - start) / 50)
    assert best < 100e-6, f"{best * 1e6:.1f} us"


def test_held_out_documents_are_never_trained_on(index, end_of_document):
    manifest = json.loads((index / "manifest.json").read_text())
    held_out = set()
    for domain in manifest["domains"]:
        for shard in domain["valid"]["shards"]:
            ids = np.fromfile(index / shard["tokens_file"]["path"], dtype="<u2")
            parts = np.split(ids, np.flatnonzero(ids == end_of_document) + 1)
            held_out |= {bytes(part) for part in parts if len(part) > 12}
    assert len(held_out) > 10
    data = dataset(index, packing="documents", seq_len=600)
    seen = 0
    while min(data.epochs.values()) < 3:
        for _, batch in zip(range(50), data):
            for row in range(8):
                length = int(batch["loss_mask"][row].sum()) + 1
                document = np.append(batch["input_ids"][row], 0)[:length].astype("<u2")
                assert bytes(document) not in held_out
                seen += 1
    assert seen > 3 * 250
