"""The scheduler for a PyTorch (or any Python) training loop: a client of ``hds-agent``.

In: what each optimizer step showed. Out: the domain weights of the next batch. Speaks protocol 1 of
docs/agent.md. In a distributed run one process (rank 0) holds the agent and broadcasts the weights.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import socket
import subprocess
import tempfile
import threading
import warnings
import weakref
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from . import _observation, arguments
from ._observation import Observation

__all__ = ["Agent", "AgentError", "Observation"]

PROTOCOL = 1
#: Longest path of a Unix socket.
SOCKET_PATH = 107


# A forked child has copies of its parent's connections: it leaves them alone, and keeps no agent alive whose parent is gone.
_agents: weakref.WeakSet[Agent] = weakref.WeakSet()


def _leave_agents() -> None:
    for agent in list(_agents):
        agent._leave()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_leave_agents)


def _remove_folder(folder: str, process: int) -> None:
    if os.getpid() == process:
        shutil.rmtree(folder, ignore_errors=True)


class AgentError(RuntimeError):
    """The agent refused a request, or is gone. ``code`` is the protocol's, or ``"gone"``."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class Agent:
    """A run of the agent. One thread at a time asks it; a call that is interrupted ends the session.

    Example::

        agent = hds.Agent.spawn("runs/agent", domains=names, total_steps=1000, sequence_length=1024,
                                layers=3, model_parameters=160_000_000)
        loader.set_weights(agent.weights)
        for step in range(agent.next_step, 1000):
            ...
            loader.set_weights(agent.step(observation))
    """

    def __init__(
        self,
        place: str,
        *,
        domains: Sequence[str],
        total_steps: int,
        sequence_length: int,
        layers: int,
        model_parameters: int,
        run: str = "run",
        start: str = "new",
        at_step: int | None = None,
        checkpoint_interval_steps: int = 0,
        base_weights: Mapping[str, float] | Sequence[float] | None = None,
        natural_tokens: Sequence[int] | None = None,
        target: Mapping[str, float] | Sequence[float] | None = None,
        scheduler: Mapping[str, Any] | None = None,
        reward: Mapping[str, Any] | None = None,
        seed: int = 0,
        token: str | None = None,
        timeout: float | None = None,
    ) -> None:
        """Connects to an agent at ``place`` (``unix:PATH`` or ``tcp:ADDRESS:PORT``) and opens a run.

        ``start`` is ``"new"``, ``"resume"`` or ``"any"``; ``at_step`` picks the checkpoint to resume from.
        ``scheduler`` and ``reward`` hold options of ``[scheduler]`` and ``[reward]`` of ``hds-train``.
        ``timeout`` is the longest wait for an answer in seconds; None waits for ever.

        Raises:
            AgentError: if the agent refuses.
            OSError: if it cannot be reached.
        """
        self._process: subprocess.Popen[str] | None = None
        self._folder: weakref.finalize[..., Agent] | None = None
        self._lock = threading.Lock()
        self._broken: str | None = None
        if timeout is not None and not (not arguments.is_bool(timeout) and isinstance(timeout, (int, float)) and 0 < timeout < 1e9):
            raise ValueError(f"timeout: {arguments.shown(timeout)}, must be seconds above 0, or None")
        if isinstance(domains, (str, bytes)) or not isinstance(domains, Iterable):
            raise TypeError(f"domains: {arguments.shown(domains)}, must be a list of names")
        self.domains = [_observation.text(f"domains[{at}]", name) for at, name in enumerate(domains)]
        facts: dict[str, Any] = {
            "domains": self.domains,
            "base_weights": self._vector("base_weights", base_weights),
            "natural_tokens": None if natural_tokens is None else _observation.wholes("natural_tokens", natural_tokens),
            "total_steps": arguments.whole("total_steps", total_steps, least=1),
            "sequence_length": arguments.whole("sequence_length", sequence_length, least=1),
            "layers": arguments.whole("layers", layers, least=0),
            "model_parameters": arguments.whole("model_parameters", model_parameters, least=0),
            "seed": arguments.whole("seed", seed, least=0),
            "target": self._vector("target", target),
        }
        for name, options in (("scheduler", scheduler), ("reward", reward)):
            if options is not None:
                facts[name] = _observation.options(name, options)
        opening = {
            "type": "open",
            "protocol": PROTOCOL,
            "run": _observation.text("run", run),
            "start": arguments.word("start", start, ("new", "resume", "any")),
            "at_step": arguments.maybe_whole("at_step", at_step),
            "checkpoint_interval_steps": arguments.whole("checkpoint_interval_steps", checkpoint_interval_steps),
            "facts": facts,
        }
        hello = None if token is None else {"type": "hello", "token": _observation.text("token", token)}
        self._socket = _connect(place, timeout)
        self._socket.settimeout(timeout)
        self._lines = self._socket.makefile("r", encoding="utf-8", newline="\n")
        _agents.add(self)
        try:
            if hello is not None:
                self._ask(hello)
            opened = self._ask(opening)
        except BaseException:
            self._hang_up()
            raise
        self.policy: str = opened["policy"]
        self.next_step: int = opened["step"]
        self.weights: list[float] = opened["weights"]
        """Weights of the next batch, in the order of ``domains``."""
        self.version: int = opened["version"]
        self.notes: list[str] = opened["notes"]
        """What the agent told when the run was opened, such as a damaged checkpoint that was passed over."""
        for note in self.notes:
            warnings.warn(note, RuntimeWarning, stacklevel=2)
        self.rewards: dict[str, Any] = {}
        """The last step's rewards."""
        self.diagnostics: dict[str, float] = {}
        """What the policy showed of itself after the last step."""

    @classmethod
    def spawn(cls, state: str | os.PathLike[str], *, program: str | None = None, **facts: Any) -> Agent:
        """Starts an ``hds-agent`` of its own, which ends with this object or this process.

        ``program`` is its path; else the environment's ``HDS_AGENT``, else the one on ``PATH``. The other
        arguments are those of :class:`Agent`.

        Raises:
            FileNotFoundError: if there is no such program.
            AgentError: if it does not start or refuses.
        """
        found = program or os.environ.get("HDS_AGENT") or shutil.which("hds-agent")
        if found is None:
            raise FileNotFoundError(
                "no hds-agent: build it with `cargo build --release -p hds-trainer --bin hds-agent` and give "
                "its path as program=... or in HDS_AGENT"
            )
        state = arguments.path("state", state)
        # Paths of sockets are short, so not below the state folder, nor below a long TMPDIR.
        folder = tempfile.mkdtemp(prefix="hds-agent-")
        if len(os.fsencode(f"{folder}/socket")) > SOCKET_PATH:
            os.rmdir(folder)
            folder = tempfile.mkdtemp(prefix="hds-agent-", dir="/tmp")
        command = [found, "serve", "--state", state, "--socket", f"{folder}/socket"]
        try:
            process = subprocess.Popen(
                [*command, "--until-stdin-ends"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
        except OSError as error:
            shutil.rmtree(folder, ignore_errors=True)
            raise type(error)(error.errno, f"program: {found} cannot be run: {error.strerror}") from error
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise
        assert process.stdout is not None
        place = process.stdout.readline().strip()
        try:
            if not place:
                raise AgentError("gone", f"{found} {_ended(process.wait())}; see its standard error")
            if place != f"unix:{folder}/socket":
                raise AgentError("gone", f"{found} says {arguments.shown(place)} in place of where it listens: is it hds-agent?")
            agent = cls(place, **facts)
        except BaseException:
            process.kill()
            process.wait()
            shutil.rmtree(folder, ignore_errors=True)
            raise
        agent._process = process
        agent._folder = weakref.finalize(agent, _remove_folder, folder, os.getpid())
        return agent

    def step(self, observation: Observation) -> list[float]:
        """Sends what step ``next_step`` showed; gives the weights of the next batch, in the order of
        ``domains``.

        Raises:
            AgentError: if the observation does not fit the run (nothing has changed then), or the
                agent is gone.
            TypeError: if a field is of another kind.
            ValueError: if a norm is not finite. A loss or MTLD that is not counts as not known, a domain
                whose sketch is not as one without gradients in this step.
        """
        reply = self._ask(_observation.request(self.next_step, observation, self.domains))
        self.next_step, self.version = reply["step"], reply["version"]
        self.weights, self.rewards, self.diagnostics = reply["weights"], reply["rewards"], reply["diagnostics"]
        for note in reply.get("notes", []):
            warnings.warn(note, RuntimeWarning, stacklevel=2)
        return self.weights

    def save(self) -> Path:
        """Saves the agent as it is now; save the model at the same step. Gives the checkpoint's folder.

        Raises:
            AgentError: if it cannot be written.
        """
        return Path(self._ask({"type": "save"})["folder"])

    def close(self) -> None:
        """Ends the session, and the process if it is this object's. What was not saved is saved.

        Raises:
            AgentError: if it could not be saved; all is closed nevertheless.
        """
        failed: AgentError | None = None
        if self._socket.fileno() >= 0:
            try:
                self._ask({"type": "close"})
            except AgentError as error:
                # One that is gone already has saved its runs, or has said on its standard error why not.
                failed = None if error.code == "gone" else error
            self._hang_up()
            self._broken = self._broken or "this agent was closed; open the run again with start='resume'"
        if self._process is not None:
            assert self._process.stdin is not None and self._process.stdout is not None
            self._process.stdin.close()
            self._process.wait()
            self._process.stdout.close()
            self._process = None
        if self._folder is not None:
            self._folder()
            self._folder = None
        if failed is not None:
            raise failed

    def __enter__(self) -> Agent:
        return self

    def __exit__(self, kind: object, error: BaseException | None, _: object) -> None:
        try:
            self.close()
        except AgentError:
            # What ended the block comes first.
            if error is None:
                raise

    def _vector(self, name: str, values: Mapping[str, float] | Sequence[float] | None) -> list[float] | None:
        if values is None:
            return None
        if not isinstance(values, Mapping):
            return _observation.finite(name, values, "must be finite")
        unknown = sorted(map(str, set(values) - set(self.domains)))
        if unknown:
            raise ValueError(f"{name}: no domain {unknown[0]!r}; there are {self.domains}")
        return _observation.finite(name, [values.get(domain, 0.0) for domain in self.domains], "must be finite")

    def _hang_up(self) -> None:
        try:
            self._lines.close()
            self._socket.close()
        except OSError:
            pass

    def _leave(self) -> None:
        """In a forked child: the connection, and the process at its other end, are the parent's."""
        self._broken = "this is a copy in a forked process; the agent is its parent's"
        self._lock = threading.Lock()
        self._hang_up()
        if self._process is not None:
            for pipe in (self._process.stdin, self._process.stdout):
                if pipe is not None:
                    pipe.close()
            self._process.returncode = 0  # not this process's to wait for
            self._process = None
        self._folder = None

    def _ask(self, request: Mapping[str, Any]) -> dict[str, Any]:
        sent = json.dumps(request, allow_nan=False).encode() + b"\n"
        with self._lock:
            if self._broken is not None:
                raise AgentError("gone", self._broken)
            try:
                with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                    # It may have said why before it hung up.
                    self._socket.sendall(sent)
                line = self._lines.readline()
            except TimeoutError as error:
                self._broken = "the agent gave no answer in time: open the run again with start='resume'"
                self._hang_up()
                raise AgentError("timeout", self._broken) from error
            except (OSError, ValueError) as error:
                self._broken = self._gone(str(error))
                raise AgentError("gone", self._broken) from error
            except BaseException:
                # The answer would be taken for that of the next request. The agent saves the run as it is.
                self._broken = "a call to the agent was interrupted: open the run again with start='resume'"
                self._hang_up()
                raise
        if not line.endswith("\n"):
            self._broken = self._gone("it has closed the connection")
            raise AgentError("gone", self._broken)
        reply: dict[str, Any] = json.loads(line)
        if reply["type"] == "error":
            raise AgentError(reply["code"], reply["message"])
        return reply

    def _gone(self, why: str) -> str:
        status = None
        if self._process is not None:
            try:
                # It may be about to end.
                status = self._process.wait(1.0)
            except subprocess.TimeoutExpired:
                pass
        ended = "its standard error says why" if status is None else f"it {_ended(status)}"
        return f"the agent is gone ({why}; {ended}): open the run again with start='resume'"


def _ended(status: int) -> str:
    return f"ended with status {status}" if status >= 0 else f"was ended by signal {-status}"


def _connect(place: Any, timeout: float | None) -> socket.socket:
    """A socket that is connected to an agent."""
    if not isinstance(place, str):
        raise TypeError(f"place: {arguments.shown(place)}, must be unix:PATH or tcp:ADDRESS:PORT")
    kind, _, where = place.partition(":")
    try:
        if kind == "unix":
            size = len(os.fsencode(where))
            if not 0 < size <= SOCKET_PATH:
                raise ValueError(f"place: the socket's path has {size} bytes, must have 1 to {SOCKET_PATH}: {where}")
            connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            try:
                connection.settimeout(timeout)
                connection.connect(where)
            except BaseException:
                connection.close()
                raise
            return connection
        if kind == "tcp":
            address, _, port = where.rpartition(":")
            if not port.isdecimal() or not 0 < int(port) < 65536:
                raise ValueError(f"place: {place!r} ends with no port; tcp:ADDRESS:PORT is wanted")
            return socket.create_connection((address.strip("[]"), int(port)), timeout)
    except OSError as error:
        why = f"no agent answers at {place} ({error.strerror or error}): is `hds-agent serve` running, and that its place?"
        raise type(error)(error.errno, why) from error
    raise ValueError(f"place: {place!r}, must be unix:PATH or tcp:ADDRESS:PORT")
