"""The agent's client: decisions, resumes and refusals, by the real hds-agent."""

from __future__ import annotations

import importlib.util
import os
import signal
import shutil
from pathlib import Path

import pytest

import hds

DOMAINS = ["web", "code", "law"]


@pytest.fixture
def facts() -> dict:
    if not (os.environ.get("HDS_AGENT") or shutil.which("hds-agent")):
        pytest.skip("no hds-agent: build it with `cargo build --release -p hds-trainer --bin hds-agent`")
    hds_options = {"network": "small", "minibatch": 8, "warm_up_fraction": 0.1}
    return {
        "domains": DOMAINS,
        "total_steps": 40,
        "sequence_length": 64,
        "layers": 1,
        "model_parameters": 1_000_000,
        "scheduler": {"policy": "hds", "hds": hds_options},
    }


def observation(step: int) -> hds.Observation:
    means = [[1.0, 0.1 * step], [0.5, -1.0], []]
    return hds.Observation(
        samples=[2, 1 + step % 3, 0],
        losses=[5.0 - 0.01 * step, 4.0, float("nan")],
        mtld=[50.0, 30.0, None],
        sketches={"means": means, "sequence_squares": [2.0, 3.0, 0.0]},
        weight_norms=[10.0 + 0.01 * step],
        weight_change_norms=[0.1],
    )


def run(agent: hds.Agent, end: int) -> list[list[float]]:
    return [agent.step(observation(step)) for step in range(agent.next_step, end)]


def test_weights_are_a_mixture_and_a_resume_goes_on_exactly(tmp_path, facts):
    with hds.Agent.spawn(tmp_path / "whole", base_weights={"web": 0.5, "code": 0.5}, **facts) as agent:
        assert agent.policy == "hds" and len(agent.weights) == 3
        want = run(agent, 40)
    for weights in want:
        assert abs(sum(weights) - 1) < 1e-9 and min(weights) >= 0
    assert max(abs(a - b) for a, b in zip(want[10], want[11])) > 1e-3, "the agent does not act"
    facts["base_weights"] = [1.0, 1.0, 0.0]
    with hds.Agent.spawn(tmp_path / "cut", **facts) as agent:
        run(agent, 20)
        assert agent.save().name == "step-00000020"
        run(agent, 25)
    with hds.Agent.spawn(tmp_path / "cut", start="resume", at_step=20, **facts) as agent:
        assert agent.next_step == 20 and agent.weights == want[19]
        assert run(agent, 40) == want[20:]


def test_what_does_not_fit_is_refused_and_changes_nothing(tmp_path, facts):
    with hds.Agent.spawn(tmp_path / "a", **facts) as agent, hds.Agent.spawn(tmp_path / "b", **facts) as twin:
        bad = observation(0)
        bad.samples = [1]
        with pytest.raises(hds.AgentError, match="samples: 1 entries, expected 3") as error:
            agent.step(bad)
        assert error.value.code == "invalid"
        assert run(agent, 5) == run(twin, 5)
    with pytest.raises(ValueError, match="no domain 'books'"):
        hds.Agent.spawn(tmp_path / "c", target={"books": 1.0}, **facts)
    with pytest.raises(hds.AgentError, match="has checkpoints"):
        hds.Agent.spawn(tmp_path / "a", **facts)


def test_a_step_that_overflowed_goes_on(tmp_path, facts):
    with hds.Agent.spawn(tmp_path / "a", **facts) as agent:
        run(agent, 3)
        overflowed = observation(3)
        overflowed.sketches = {"means": [[float("inf"), 1.0], [0.5, -1.0], []], "sequence_squares": [2.0, float("nan"), 0.0]}
        weights = agent.step(overflowed)
        assert abs(sum(weights) - 1) < 1e-9 and agent.next_step == 4
        spoilt = observation(4)
        spoilt.weight_norms = [float("nan")]
        with pytest.raises(ValueError, match=r"weight_norms\[0\] is nan"):
            agent.step(spoilt)
        run(agent, 6)


def test_a_dead_agent_is_told_and_its_run_goes_on_elsewhere(tmp_path, facts):
    agent = hds.Agent.spawn(tmp_path / "a", **facts)
    run(agent, 3)
    agent._process.send_signal(signal.SIGTERM)
    agent._process.wait()
    with pytest.raises(hds.AgentError, match="gone|closed"):
        for _ in range(2):
            agent.step(observation(3))
    agent.close()
    with hds.Agent.spawn(tmp_path / "a", start="resume", **facts) as again:
        assert again.next_step == 3


def test_a_missing_program_is_named(tmp_path, monkeypatch):
    monkeypatch.delenv("HDS_AGENT", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(FileNotFoundError, match="cargo build"):
        hds.Agent.spawn(tmp_path)


def test_memory_of_an_agent_stays_where_it_is(tmp_path, facts):
    # The short form of `python python/benches/agent_soak.py --steps 20000`.
    benches = Path(__file__).resolve().parents[1] / "benches"
    spec = importlib.util.spec_from_file_location("agent_soak", benches / "agent_soak.py")
    agent_soak = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(agent_soak)
    memory = agent_soak.soak(tmp_path, 400)
    assert memory["end"] > 1.0, "the figures are none"
