"""The short form of `python python/benches/agent_siege.py`: bad clients at once, kills while saving; and logs that do not fit."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
from pathlib import Path

import pytest

import hds


@pytest.fixture
def agent_siege(monkeypatch):
    found = os.environ.get("HDS_AGENT") or shutil.which("hds-agent")
    if not found:
        pytest.skip("no hds-agent: build it with `cargo build --release -p hds-trainer --bin hds-agent`")
    monkeypatch.setenv("HDS_AGENT", found)
    benches = Path(__file__).resolve().parents[1] / "benches"
    spec = importlib.util.spec_from_file_location("agent_siege", benches / "agent_siege.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_good_client_is_served_while_bad_ones_besiege_the_agent(tmp_path, agent_siege):
    waits = agent_siege.siege(tmp_path, 400, 10)
    assert 0.0 < waits["step"] < 20.0 and 0.0 < waits["open"] < 20.0, waits


def test_an_agent_that_is_killed_while_it_saves_loses_nothing_saved(tmp_path, agent_siege):
    assert agent_siege.kills(tmp_path, 4) >= 0


def test_weight_logs_that_do_not_fit_are_refused_when_the_run_is_opened(tmp_path, agent_siege):
    log = tmp_path / "weights.jsonl"

    def write(entries, domains=("web", "code", "law"), end=""):
        head = {"format": "hds-weight-log", "version": 1, "domains": list(domains), "index": "f00d", "seed": 7}
        weights = [0.5, 0.5, 0.0][: len(domains)]
        before = [0, *(version for _, version in entries)]
        lines = [
            head,
            *(
                {"step": step, "version": version, "after": after, "weights": weights}
                for (step, version), after in zip(entries, before)
            ),
        ]
        log.write_text("".join(json.dumps(line, separators=(",", ":")) + "\n" for line in lines) + end)

    facts = {**agent_siege.FACTS, "total_steps": 10}
    facts["scheduler"] = {"policy": "log", "log": {"file": str(log)}}
    every = [(step, step + 1) for step in range(10)]
    for why, entries, more in [
        ("ends with step 4, .*strict", every[:5], {}),
        ("first step is 3", every[3:], {}),
        ("first step is none", [], {}),
        ("domains is web, code", every, {"domains": ("web", "code")}),
        ("cut short", every[:5], {"end": '{"step":5,'}),
        ("both must grow", [*every[:5], (3, 9)], {}),
    ]:
        write(entries, **more)
        with pytest.raises(hds.AgentError, match=why):
            hds.Agent.spawn(tmp_path / "state", **facts)
    write(every)
    hds.Agent.spawn(tmp_path / "whole", **facts).close()
    # Versions that governed no batch are passed over.
    write([(0, 1), (4, 7), (9, 8)])
    hds.Agent.spawn(tmp_path / "passed", **facts).close()
    write(every[:5])
    facts["scheduler"]["log"]["strict"] = False
    hds.Agent.spawn(tmp_path / "held", **facts).close()
