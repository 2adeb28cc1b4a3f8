"""What a careless caller gives: each error comes where it was given, and names it."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import textwrap
import time
import types

import numpy as np
import pytest

import hds

EVEN = [0.25, 0.25, 0.25, 0.25]


def dataset(index, **options):
    options = {"seq_len": 32, "batch_size": 8, "weights": EVEN, "output": "numpy"} | options
    return hds.StreamingDataset(index, **options)


def refusal(name, call, *arguments, **options):
    """The message of the error, which begins with a name and is of a kind that says whose fault it is."""
    with pytest.raises((TypeError, ValueError)) as error:
        call(*arguments, **options)
    text = str(error.value)
    assert text.startswith((f"{name}: ", f"{name}[")), text
    return text


NO_NUMBERS = [1.5, "8", None, True, [8], np.array([1, 2]), np.float64(8), np.True_, object()]


@pytest.mark.parametrize(
    ("name", "least", "may_be_none"),
    [
        ("seq_len", 1, False),
        ("batch_size", 1, False),
        ("seed", 0, False),
        ("rank", 0, True),
        ("world_size", 1, True),
        ("minimum_per_domain", 0, False),
        ("padding_token", 0, True),
        ("ignore_index", -(2**63 - 1), False),
        ("length", 1, True),
        ("read_ahead", 0, False),
    ],
)
def test_numbers_that_are_none_are_refused_by_name(index, name, least, may_be_none):
    place = {"rank": 0, "world_size": 1} if name in ("rank", "world_size") else {}
    for value in NO_NUMBERS:
        if value is None and may_be_none:
            continue
        with pytest.raises(TypeError, match=f"^{name}: .*is no whole number; give an int"):
            dataset(index, **(place | {name: value}))
    for value in (least - 1, 2**64):
        with pytest.raises(ValueError, match=f"^{name}: {value}, must be at (least|most) "):
            dataset(index, **(place | {name: value}))


def test_whole_numbers_of_other_libraries_are_taken(index):
    data = dataset(index, seq_len=np.int32(32), batch_size=np.uint8(8), seed=np.int64(5), length=np.int16(3))
    plain = dataset(index, seed=5, length=3)
    for one, other in zip(list(data), list(plain), strict=True):
        np.testing.assert_array_equal(one["input_ids"], other["input_ids"])
    assert json.loads(json.dumps(data.state_dict())) == plain.state_dict()


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("draws", ["random", "", 3, None, True, ["independent"]]),
        ("order", ["shuffled", 3, None]),
        ("packing", ["window", 3, None]),
        ("labels", ["prev", 3, None]),
        ("access", ["ftp", 3, None]),
        ("fetch", ["all", 3, None]),
        ("output", ["jax", 3, None]),
        ("mask_boundaries", [1, "yes", None]),
        ("reset_position_ids", [0, "", None]),
        ("domain_end", [True, False, "x", 0, -1, 1.5, None, [2], 2**64]),
        ("keys", ["labels", "input_ids", b"labels", [], (), 3, [3], ["tokens"], [None], [["labels"]]]),
        ("cache_limit", [1e9, None, True, -1, "much", "-5", ""]),
        ("cache_piece", [1e6, None, "5KB", 4097]),
        ("cache_dir", [3, True, "", ["x"]]),
        ("index", [None, 3, ["x"], ""]),
        ("weights_file", [3, "", True]),
        ("replay", [3, "", True]),
        ("weight_log", [3, "", True]),
    ],
)
def test_options_are_refused_by_name_before_the_first_batch(index, name, values):
    for value in values:
        if name == "index":
            refusal(name, hds.StreamingDataset, value, seq_len=8, batch_size=2)
        else:
            refusal(name, dataset, index, **{name: value})


def test_options_that_do_not_fit_the_index_are_refused_before_the_first_batch(index, tmp_path):
    assert "vocabulary" in refusal("padding_token", dataset, index, padding_token=70_000)
    refusal("seq_len", dataset, index, seq_len=10**6, weights="natural")
    assert "2^31" in refusal("batch_size", dataset, index, seq_len=2**20, batch_size=2**20)
    assert "global batch" in refusal("batch_size", dataset, index, batch_size=2, rank=0, world_size=3)
    assert "below world_size 2" in refusal("rank", dataset, index, rank=2, world_size=2)
    refusal("weight_log", dataset, index, weight_log=tmp_path)
    with pytest.raises(FileNotFoundError, match="^weight_log: there is no folder"):
        dataset(index, weight_log=tmp_path / "none" / "log")


def test_a_string_is_no_list_of_keys(index):
    assert "keys=['labels']" in refusal("keys", dataset, index, keys="labels")
    assert list(next(iter(dataset(index, keys={"labels"})))) == ["labels"]
    assert list(next(iter(dataset(index, keys=iter(["step"]))))) == ["step"]


BAD_WEIGHTS = [
    (None, "a dict"),
    (3, "a dict"),
    (b"even", "a dict"),
    (0.5, "a dict"),
    (np.float64(1.0), "a dict"),
    ([0.5, "0.5", 0, 0], "domain 'code' has '0.5'"),
    ([0.5, None, 0.5, 0], "domain 'code' has None"),
    ([True, 0, 0, 0], "domain 'books' has True"),
    ([1j, 0, 0, 0], "domain 'books' has 1j"),
    (np.eye(4), "domain 'books' has [1.0"),
    ({"books": 1, "code": 0, "law": [], "web": 0}, "domain 'law' has []"),
    ([1, 0, 0, 0, "x"], "place 4"),
]


@pytest.mark.parametrize(("weights", "words"), BAD_WEIGHTS)
def test_weights_that_are_none_are_refused_by_domain(index, tmp_path, weights, words):
    assert words in refusal("weights", dataset, index, weights=weights)
    assert words in refusal("weights", dataset(index).set_weights, weights)
    domains = ["books", "code", "law", "web"]
    assert words in refusal("weights", hds.WeightsWriter, tmp_path / "w", domains, weights)
    writer = hds.WeightsWriter(tmp_path / "w", domains, EVEN)
    assert words in refusal("weights", writer.set_weights, weights)
    assert writer.version == 1


def test_tensors_without_numbers_are_refused_as_weights(index):
    torch = pytest.importorskip("torch")
    for tensor in (torch.full((4,), 0.25).to_sparse(), torch.empty(4, device="meta")):
        with pytest.raises(TypeError, match="weights: Tensor has no list of numbers"):
            dataset(index, weights=tensor)


def test_numbers_too_large_for_weights_are_refused(index):
    with pytest.raises(ValueError, match='domain "books" is inf'):
        dataset(index, weights=[10**400, 0, 0, 0])


def test_states_that_are_none_are_refused(index):
    data = dataset(index)
    for step in (-1, 1.5, "1", True, 2**64):
        refusal("step", data.state_dict, step=step)
    good = data.state_dict()
    for state in (None, 3, [good], b"{}", True, "", "nonsense", "null", "[]", {}, {"format": 3}, {"a": object()}):
        text = refusal("state", data.load_state_dict, state)
        assert "state_dict" in text or "no state of a dataset" in text
    # What was there before stays.
    assert data.state_dict() == good
    data.load_state_dict(json.dumps(good))


def test_a_state_whose_weights_cannot_be_drawn_from_changes_nothing(index):
    data = dataset(index, batch_size=3, weights=[0.5, 0.5, 0, 0], minimum_per_domain=1)
    next(iter(data))
    before = data.state_dict()
    state = dataset(index).state_dict()
    with pytest.raises(ValueError, match="needs a batch of 4"):
        data.load_state_dict(state)
    assert data.state_dict() == before
    assert next(iter(data)).step == 1


def test_writers_of_weights_refuse_by_name(tmp_path):
    path = tmp_path / "weights"
    for name, value in [("path", 3), ("domains", "ab"), ("domains", 3), ("domains", [1, 2]), ("step", -1),
                        ("step", 0.5), ("version", None), ("version", -2)]:  # fmt: skip
        options = {"path": path, "domains": ["a", "b"], "weights": [0.5, 0.5]} | {name: value}
        refusal(name, hds.WeightsWriter, **options)
    for name, value in [("path", "\ud800"), ("domains", ["a", "\ud800"])]:
        refusal(name, hds.WeightsWriter, **{"path": path, "domains": ["a", "b"], "weights": [0.5, 0.5], name: value})
    writer = hds.WeightsWriter(path, ["a", "b"], {"b": 0.75, "a": 0.25})
    for step in (-1, 1.5, "x"):
        refusal("step", writer.set_horizon, step)
    assert (writer.domains, writer.path, writer.version, writer.frontier) == (["a", "b"], path, 1, 0)


def test_loaders_refuse_by_name(index):
    pytest.importorskip("torch")
    for name, value in [("weights_lag", "x"), ("weights_lag", -1), ("weights_lag", 1.5), ("weights_lag", True),
                        ("num_workers", -1), ("num_workers", 1.5), ("num_workers", None), ("collate_fn", 3)]:  # fmt: skip
        refusal(name, hds.DataLoader, dataset(index), **{name: value})


def test_launchers_variables_that_are_no_numbers_are_named(index):
    code = f"import hds; hds.StreamingDataset({str(index)!r}, seq_len=8, batch_size=2)"
    for rank, size, words in [
        ("x", "2", "RANK is 'x'"),
        ("0", "", "WORLD_SIZE is ''"),
        ("2", "2", "rank: 2"),
        ("1", None, "RANK='1' and no WORLD_SIZE"),
        (None, "2", "WORLD_SIZE='2' and no RANK"),
        ("0", None, None),
        (None, "1", None),
    ]:
        given = {name: value for name, value in [("RANK", rank), ("WORLD_SIZE", size)] if value is not None}
        environment = {"PYTHONPATH": ":".join(sys.path), **given}
        process = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment)
        if words is None:
            assert process.returncode == 0, process.stderr
        else:
            assert words in process.stderr.splitlines()[-1]


def test_weights_without_an_order_are_refused(index):
    for value in ({0.25, 0.75}, frozenset([1.0])):
        refusal("weights", dataset(index).set_weights, value)


def test_a_version_of_weights_that_would_overflow_is_refused(index):
    data = dataset(index)
    for version in (2**63, 2**64 - 1):
        with pytest.raises(ValueError, match=f"weights_version.*{version} is beyond any run"):
            data.load_state_dict(data.state_dict() | {"weights_version": version})


def test_files_of_killed_processes_are_removed_and_no_others(index, tmp_path):
    from hds import _files as module

    kept = [tmp_path / f"{module.LIVE_PREFIX}{name}" for name in ("young", "held")]
    old = tmp_path / f"{module.LIVE_PREFIX}old"
    writer = hds.WeightsWriter(kept[1], ["a"], [1.0])
    for path in (kept[0], old):
        path.write_bytes(b"")
    now = time.time()
    # As if a minute had passed for two of them: a file's ctime cannot be set, the clock can.
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module.time, "time", lambda: now + 61)
        kept[0].touch()
        patch.setattr(module.os, "fstat", _as_young(kept[0], now + 60, os.fstat))
        module.remove_left(tmp_path)
    assert sorted(tmp_path.iterdir()) == sorted(kept)
    assert writer.version == 1


def _as_young(path, when, fstat):
    """os.fstat under which this file was made at that time."""
    inode = path.stat().st_ino

    def stat(handle):
        facts = fstat(handle)
        if facts.st_ino != inode:
            return facts
        return types.SimpleNamespace(st_uid=facts.st_uid, st_ctime=when)

    return stat


def test_two_iterations_at_once_are_told_what_to_do(index):
    data = dataset(index)
    first, second = iter(data), iter(data)
    assert next(first).step == 0
    assert next(second).step == 1
    with pytest.raises(RuntimeError, match="Iterate over one at a time, or make a StreamingDataset for each"):
        next(first)
    assert next(second).step == 2
    # The one that goes on counts.
    assert data.state_dict()["step"] == 3


@pytest.mark.parametrize("workers", [0, 1])
def test_two_loaders_at_once_are_told_what_to_do(index, workers):
    pytest.importorskip("torch")
    data = dataset(index, output="torch")
    loaders = [iter(hds.DataLoader(data, num_workers=workers)) for _ in range(2)]
    assert next(loaders[0]).step == 0
    assert next(loaders[1]).step == 1
    with pytest.raises(RuntimeError, match="another iteration of this dataset"):
        next(loaders[0])
    assert [next(loaders[1]).step for _ in range(3)] == [2, 3, 4]
    plain = iter(data)
    assert next(plain).step == 5
    with pytest.raises(RuntimeError, match="another iteration of this dataset"):
        next(loaders[1])
    assert [next(plain).step for _ in range(3)] == [6, 7, 8] and data.state_dict()["step"] == 9


def test_the_end_of_a_domain_says_how_to_go_on(index):
    data = dataset(index, domain_end="stop", weights={"law": 1.0, "books": 0, "code": 0, "web": 0})
    with pytest.raises(hds.DomainEnded) as error:
        for batch in data:
            last = batch.step
    words = str(error.value)
    assert f"batch {last + 1} needs more of domain" in words and 'domain "law"' in words
    assert "load_state_dict(dataset.state_dict())" in words and "set_weights" in words
    assert 'domain_end="restart"' in words
    # As it says:
    data.load_state_dict(data.state_dict())
    data.set_weights({"law": 0.0, "books": 1.0, "code": 0, "web": 0})
    assert next(iter(data)).step == last + 1

    data = dataset(index, domain_end=1, weights={"law": 1.0, "books": 0, "code": 0, "web": 0})
    with pytest.raises(hds.DomainEnded, match=re.escape("gone through 1 times, which is all that domain_end=1 allows")):
        for _ in data:
            pass
    data.load_state_dict(data.state_dict())
    data.set_weights([1.0, 0, 0, 0])
    next(iter(data))


def test_agents_refuse_by_name_before_they_connect(tmp_path):
    good = {"place": f"unix:{tmp_path}/none", "domains": ["a", "b"], "total_steps": 10, "sequence_length": 8,
            "layers": 1, "model_parameters": 100}  # fmt: skip
    with pytest.raises(FileNotFoundError):
        hds.Agent(**good)
    for name, value in [("place", None), ("place", "host:1"), ("place", "tcp:host"), ("domains", "ab"),
                        ("domains", [1]), ("total_steps", 0), ("total_steps", 1.5), ("sequence_length", None),
                        ("layers", -1), ("model_parameters", 1e9), ("seed", -1), ("start", "again"),
                        ("at_step", "3"), ("checkpoint_interval_steps", None)]:  # fmt: skip
        refusal(name, hds.Agent, **(good | {name: value}))


def test_pipes_are_refused_and_not_waited_for(index, tmp_path):
    code = f"""
        import os, hds
        pipe = os.path.join({str(tmp_path)!r}, "pipe")
        os.mkfifo(pipe)
        make = lambda **options: hds.StreamingDataset({str(index)!r}, seq_len=8, batch_size=2, **options)
        for refused in (
            lambda: make(weights_file=pipe),
            lambda: make(replay=pipe),
            lambda: make(weight_log=pipe),
            lambda: hds.WeightsWriter(pipe, ["a"], [1.0]),
            lambda: hds.StreamingDataset(pipe, seq_len=8, batch_size=2),
        ):
            try:
                refused()
            except (hds.HdsError, ValueError) as error:
                print(str(error).replace(pipe, "PIPE"))
    """
    command = [sys.executable, "-c", textwrap.dedent(code)]
    environment = os.environ | {"PYTHONPATH": ":".join(sys.path)}
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=60, check=True, env=environment)
    said = done.stdout.splitlines()
    assert len(said) == 5 and all("PIPE" in line for line in said), said
