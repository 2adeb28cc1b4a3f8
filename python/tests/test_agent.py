"""The agent's client: decisions, resumes and refusals, by the real hds-agent."""

from __future__ import annotations

import importlib.util
import os
import shutil
import signal
import subprocess
import sys
import time
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
        sketches={"means": means, "sequence_squares": [2.0 + 0.02 * step**2, 3.0, 0.0]},
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


def test_an_interrupted_call_ends_the_session_and_loses_nothing(tmp_path, facts):
    agent = hds.Agent.spawn(tmp_path, **facts)
    run(agent, 5)
    process = agent._process
    process.send_signal(signal.SIGSTOP)

    def interrupt(*_):
        raise KeyboardInterrupt

    old = signal.signal(signal.SIGALRM, interrupt)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.3)
        with pytest.raises(KeyboardInterrupt):
            agent.step(observation(5))
    finally:
        signal.signal(signal.SIGALRM, old)
        process.send_signal(signal.SIGCONT)
    for call in (agent.save, lambda: agent.step(observation(5))):
        with pytest.raises(hds.AgentError, match="was interrupted: open the run again"):
            call()
    agent.close()
    with hds.Agent.spawn(tmp_path, start="resume", **facts) as again:
        # Whether the agent had the step or not.
        assert again.next_step in (5, 6)
        run(again, 8)


def test_an_agent_that_gives_no_answer_is_not_waited_for(tmp_path, facts):
    agent = hds.Agent.spawn(tmp_path, timeout=0.3, **facts)
    agent._process.send_signal(signal.SIGSTOP)
    try:
        with pytest.raises(hds.AgentError, match="no answer in time") as error:
            agent.step(observation(0))
        assert error.value.code == "timeout"
    finally:
        agent._process.send_signal(signal.SIGCONT)
    agent.close()
    for bad in (0, -1.0, "a", float("nan")):
        with pytest.raises(ValueError, match="timeout"):
            hds.Agent("unix:/nowhere", timeout=bad, **facts)


def test_a_forked_child_leaves_the_agent_to_its_parent(tmp_path, facts):
    with hds.Agent.spawn(tmp_path, **facts) as agent:
        run(agent, 2)
        child = os.fork()
        if child == 0:
            try:
                agent.step(observation(2))
                os._exit(1)
            except hds.AgentError as error:
                agent.close()
                os._exit(0 if "forked" in str(error) else 2)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        run(agent, 4)
        assert agent.next_step == 4
    # A worker that outlives its parent keeps no agent alive.
    program = f"""
import os, signal, sys, time
import hds
agent = hds.Agent.spawn({str(tmp_path / "b")!r}, **{facts!r})
if os.fork() == 0:
    time.sleep(20)
    os._exit(0)
print(agent._process.pid, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""
    starter = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    assert starter.stdout is not None
    done = int(starter.stdout.readline())
    starter.wait()
    for _ in range(100):
        if not Path(f"/proc/{done}").exists() or "Z" in Path(f"/proc/{done}/stat").read_text().split(")")[1][:3]:
            break
        time.sleep(0.1)
    else:
        pytest.fail("the agent lives on")


def test_what_cannot_be_saved_at_the_end_is_told(tmp_path, facts):
    with pytest.raises(hds.AgentError, match="ended"):
        with hds.Agent.spawn(tmp_path, **facts) as agent:
            run(agent, 2)
            (tmp_path / "run" / "ended").write_text("in the way")
    # What ended the block comes first.
    (tmp_path / "run" / "ended").unlink()
    with pytest.raises(ZeroDivisionError):
        with hds.Agent.spawn(tmp_path, start="any", **facts) as agent:
            run(agent, 2)
            (tmp_path / "run" / "ended").write_text("in the way")
            raise ZeroDivisionError


def test_wrong_arguments_of_the_agent_are_named(facts):
    for name, value, why in [
        ("scheduler", "odm", "must be a dict"),
        ("scheduler", {"policy": float("nan")}, "scheduler: "),
        ("base_weights", [float("nan"), 1.0, 0.0], r"base_weights\[0\] is nan"),
        ("natural_tokens", {"web": 1}, "natural_tokens: "),
        ("natural_tokens", [1.5, 2, 3], r"natural_tokens\[0\] is 1.5"),
    ]:
        with pytest.raises((TypeError, ValueError), match=why):
            hds.Agent("unix:/nowhere", **{**facts, name: value})


def test_wrong_observations_are_named(tmp_path, facts):
    def given(**fields):
        wrong = observation(0)
        for name, value in fields.items():
            setattr(wrong, name, value)
        return wrong

    means = [[1.0, 0.1], [0.5, -1.0], []]
    wrong = [
        (TypeError, {"samples": None}, "samples: None, must be a list of whole numbers"),
        (TypeError, {"samples": ["1", 2, 3]}, r"samples\[0\] is '1', which is no number"),
        (ValueError, {"samples": [2**70, 1, 1]}, r"samples\[0\] is"),
        (TypeError, {"losses": 3.0}, "losses: 3.0, must be a list"),
        (TypeError, {"losses": "abc"}, "losses: 'abc'"),
        (TypeError, {"losses": [1.0, "a", 2.0]}, r"losses\[1\] is 'a'"),
        (TypeError, {"mtld": {"web": 1.0}}, "mtld: "),
        (TypeError, {"sketches": [means]}, "sketches: .*finish"),
        (ValueError, {"sketches": {"mean": means}}, "sketches: mean is unknown"),
        (ValueError, {"sketches": {}}, "sketches: means is missing"),
        (TypeError, {"sketches": {"means": None}}, "sketches.means: None"),
        (TypeError, {"sketches": {"means": [[1.0], ["a"], []]}}, r"sketches.means\[1\]\[0\] is 'a'"),
        (TypeError, {"sketches": {"means": means, "sequence_squares": 3}}, "sequence_squares: 3"),
        (TypeError, {"weight_norms": 3.0}, "weight_norms: 3.0"),
        (TypeError, {"weight_norms": [None]}, r"weight_norms\[0\] is None"),
        (ValueError, {"weights": [float("nan"), 0.5, 0.5]}, r"weights\[0\] is nan"),
        (ValueError, {"weights": {"books": 1.0}}, "no domain is named"),
    ]
    with hds.Agent.spawn(tmp_path, **facts) as agent:
        for kind, fields, why in wrong:
            with pytest.raises(kind, match=why):
                agent.step(given(**fields))
        with pytest.raises(TypeError, match="must be an hds.Observation"):
            agent.step({"samples": [1, 1, 1]})
        # What is right in another form is right.
        numpy = pytest.importorskip("numpy")
        agent.step(given(samples=numpy.array([2, 1, 0]), losses=numpy.array([5.0, 4.0, numpy.nan]), weight_norms=(10,)))
        assert agent.next_step == 1
    with pytest.raises(hds.AgentError, match="this agent was closed"):
        agent.step(observation(1))


def test_places_where_no_agent_is_are_named(tmp_path, facts):
    for place, kind, why in [
        ("unix:/any/" + "x" * 120, ValueError, "path has 125 bytes, must have 1 to 107"),
        ("unix:", ValueError, "path has 0 bytes"),
        (f"unix:{tmp_path}/none", FileNotFoundError, "no agent answers at unix:.*hds-agent serve"),
        ("tcp:127.0.0.1:1", ConnectionRefusedError, "no agent answers at tcp"),
        ("tcp:127.0.0.1:99999", ValueError, "no port"),
        ("/any/socket", ValueError, "must be unix:PATH"),
        (tmp_path, TypeError, "place: "),
    ]:
        with pytest.raises(kind, match=why):
            hds.Agent(place, **facts)
    for name, value in [("domains", 3), ("domains", None), ("run", None), ("token", 3), ("timeout", True), ("domains", ["\ud800"])]:
        with pytest.raises((TypeError, ValueError), match=name):
            hds.Agent("unix:/nowhere", **{**facts, name: value})
    for program, kind, why in [
        ("/tmp", PermissionError, "program: /tmp cannot be run"),
        (shutil.which("echo"), hds.AgentError, "is it hds-agent"),
        (shutil.which("false"), hds.AgentError, "ended with status 1"),
    ]:
        with pytest.raises(kind, match=why):
            hds.Agent.spawn(tmp_path, program=program, **facts)
    with pytest.raises(TypeError, match="state: None"):
        hds.Agent.spawn(None, **facts)


def test_a_long_folder_for_temporary_files_is_no_obstacle(tmp_path, facts, monkeypatch):
    long = tmp_path / ("y" * 110)
    long.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(long))
    with hds.Agent.spawn(tmp_path / "a", **facts) as agent:
        run(agent, 2)
    assert not list(long.iterdir())


def test_an_agent_that_is_killed_is_told_and_leaves_no_lock(tmp_path, facts):
    agent = hds.Agent.spawn(tmp_path, checkpoint_interval_steps=1, **facts)
    run(agent, 3)
    with pytest.raises(hds.AgentError, match="is open in another session, of process") as busy:
        hds.Agent.spawn(tmp_path, start="any", **facts)
    assert busy.value.code == "busy"
    agent._process.kill()
    for _ in range(2):
        with pytest.raises(hds.AgentError, match="was ended by signal 9.*start='resume'"):
            agent.step(observation(3))
    agent.close()
    with hds.Agent.spawn(tmp_path, start="resume", **facts) as again:
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
