"""The examples run as they are, on CPU; each is skipped where its packages are not installed."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"


def run(*command, needs=("torch",)):
    """Runs a program; the JSON lines it prints."""
    for package in needs:
        if importlib.util.find_spec(package) is None:
            pytest.skip(f"{package} is not installed")
    environment = os.environ | {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    ended = subprocess.run(
        [sys.executable, *map(str, command)], env=environment, capture_output=True, text=True, timeout=600
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return [json.loads(line) for line in ended.stdout.splitlines() if line.startswith('{"')]


def test_plain_loop_learns_and_resumes_exactly(index, tmp_path):
    whole = run(EXAMPLES / "plain.py", index, "--steps", 30)
    assert whole[-1]["loss"] < whole[0]["loss"]
    assert [line["version"] for line in whole] == list(range(1, 31))
    checkpoint = tmp_path / "checkpoint.pt"
    run(EXAMPLES / "plain.py", index, "--steps", 13, "--workers", 2, "--checkpoint", checkpoint)
    rest = run(EXAMPLES / "plain.py", index, "--steps", 30, "--checkpoint", checkpoint)
    assert rest == whole[13:]


def test_ddp_on_two_processes_resumes_on_one(index, tmp_path):
    torchrun = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node")
    script = EXAMPLES / "ddp.py"
    whole = run(*torchrun, 2, script, index, "--steps", 10)
    assert [line["version"] for line in whole] == list(range(1, 11))
    assert len({tuple(line["weights"].values()) for line in whole}) == 10
    checkpoint = tmp_path / "checkpoint.pt"
    run(*torchrun, 2, script, index, "--steps", 6, "--checkpoint", checkpoint)
    rest = run(script, index, "--steps", 10, "--checkpoint", checkpoint)
    for got, want in zip(rest, whole[6:], strict=True):
        assert got["batch"] == want["batch"] and got["version"] == want["version"]
        assert got["loss"] == pytest.approx(want["loss"], abs=1e-4)


def test_hugging_face_trainer(index, tmp_path):
    needs = ("torch", "transformers", "accelerate")
    script = EXAMPLES / "hugging_face.py"
    whole = run(script, index, tmp_path / "a", "--steps", 8, needs=needs)
    run(script, index, tmp_path / "b", "--steps", 4, needs=needs)
    rest = run(script, index, tmp_path / "b", "--steps", 8, "--resume", needs=needs)
    assert [line["step"] for line in rest] == [5, 6, 7, 8]
    for got, want in zip(rest, whole[4:], strict=True):
        assert got["samples"] == want["samples"] and got["version"] == want["version"]
        assert got["loss"] == pytest.approx(want["loss"], abs=1e-3)


def test_lightning(index, tmp_path):
    needs = ("torch", "lightning")
    script = EXAMPLES / "lightning_loop.py"
    whole = run(script, index, tmp_path / "a", "--steps", 8, needs=needs)
    run(script, index, tmp_path / "b", "--steps", 4, needs=needs)
    rest = run(script, index, tmp_path / "b", "--steps", 8, "--resume", needs=needs)
    assert [line["step"] for line in rest] == [4, 5, 6, 7]
    for got, want in zip(rest, whole[4:], strict=True):
        assert got == want


def test_ddp_under_an_agent_resumes_with_it(index, tmp_path):
    if not (os.environ.get("HDS_AGENT") or shutil.which("hds-agent")):
        pytest.skip("no hds-agent: build it with `cargo build --release -p hds-trainer --bin hds-agent`")
    torchrun = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", 2)
    script = (*torchrun, EXAMPLES / "agent_ddp.py", index, "--total-steps", 12)
    whole = run(*script, "--steps", 12, "--folder", tmp_path / "whole")
    assert len({tuple(line["weights"]) for line in whole}) == 12
    run(*script, "--steps", 5, "--folder", tmp_path / "cut")
    assert run(*script, "--steps", 12, "--folder", tmp_path / "cut") == whole[5:]
