"""Whether `hds-agent` serves a good client while bad ones besiege it, and what that costs the good one.

    HDS_AGENT=target/release/hds-agent python python/benches/agent_siege.py --connects 10000

Over a loopback address: clients that connect and leave, that say nothing, that send a byte now and then, garbage, deep or endless lines, and
that are stopped with their run open, all at once, while a good client trains. Prints the good client's longest wait, and the agent's threads, open files and
memory; then kills the agent while it writes checkpoints, several times, and resumes.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import hds

TOKEN = "0123456789abcdef-siege"
FACTS = {
    "domains": ["web", "code", "law"],
    "total_steps": 1_000_000,
    "sequence_length": 64,
    "layers": 1,
    "model_parameters": 1_000_000,
    "scheduler": {"policy": "hds", "hds": {"network": "small", "minibatch": 8, "warm_up_fraction": 0.0}},
}


def observation(step: int) -> hds.Observation:
    means = [[1.0, 0.1], [0.5, -1.0], []]
    return hds.Observation(
        samples=[2, 1 + step % 3, 0],
        losses=[5.0, 4.0, None],
        mtld=[50.0, 30.0, None],
        sketches={"means": means, "sequence_squares": [2.0, 3.0, 0.0]},
        weight_norms=[10.0],
        weight_change_norms=[0.1],
    )


def start(folder: Path) -> tuple[subprocess.Popen[str], str]:
    token = folder / "token"
    token.write_text(TOKEN)
    command = [os.environ.get("HDS_AGENT", "hds-agent"), "serve", "--state", str(folder / "state")]
    command += ["--listen", "127.0.0.1:0", "--token-file", str(token)]
    agent = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    assert agent.stdout is not None
    return agent, agent.stdout.readline().strip()


def besiege(address: tuple[str, int], until: threading.Event, connects: int) -> list[threading.Thread]:
    """Threads of bad clients; they go on until told, but for the connects, of which there are so many."""
    greeting = b'{"type":"hello","token":"%s"}\n' % TOKEN.encode()

    def connecting(count: int) -> None:
        for _ in range(count):
            if until.is_set():
                return
            socket.create_connection(address).close()

    def silent() -> None:
        held = []
        while not until.wait(0.01):
            held.append(socket.create_connection(address))
            del held[:-200]

    def speaking(line: bytes, trusted: bool, pause: float) -> None:
        while not until.is_set():
            try:
                with socket.create_connection(address) as connection:
                    connection.settimeout(1.0)
                    if trusted:
                        connection.sendall(greeting)
                    for at in range(0, len(line), 1 << 16):
                        if until.wait(pause):
                            return
                        connection.sendall(line[at : at + (1 << 16)])
                    connection.recv(1 << 16)
            except OSError:
                until.wait(0.01)

    def dripping() -> None:
        while not until.is_set():
            try:
                with socket.create_connection(address) as connection:
                    while not until.wait(0.05):
                        connection.sendall(b" ")
            except OSError:
                pass

    garbage = random.Random(1).randbytes(1 << 16) + b"\n"
    deep = b'{"type":' * 100_000 + b"\n"
    endless = b"[" * (80 << 20)
    work = [(connecting, (connects // 4,))] * 4 + [(silent, ()), (dripping, ()), (dripping, ())]
    work += [(speaking, (garbage, trusted, 0.0)) for trusted in (False, True)]
    work += [(speaking, (deep, True, 0.0)), (speaking, (endless, True, 0.001)), (speaking, (b"", True, 0.0))]
    threads = [threading.Thread(target=call, args=arguments, daemon=True) for call, arguments in work]
    for thread in threads:
        thread.start()
    return threads


def state_of(process: int) -> str:
    status = dict(line.split(":", 1) for line in Path(f"/proc/{process}/status").read_text().splitlines())
    files = len(os.listdir(f"/proc/{process}/fd"))
    return f"{status['Threads'].strip()} threads, {files} files, {status['VmRSS'].strip()} (peak {status['VmHWM'].strip()})"


def siege(folder: Path, connects: int, steps: int) -> dict[str, float]:
    """The good client's longest waits in seconds."""
    agent, place = start(folder)
    host, port = place.removeprefix("tcp:").rsplit(":", 1)
    stopped = subprocess.Popen(
        [sys.executable, "-c", f"import hds, time\na = hds.Agent({place!r}, run='stopped', token={TOKEN!r}, **{FACTS!r})\nprint(1, flush=True)\ntime.sleep(600)"],
        stdout=subprocess.PIPE,
    )
    assert stopped.stdout is not None
    stopped.stdout.readline()
    stopped.send_signal(signal.SIGSTOP)
    until = threading.Event()
    waits = {"open": 0.0, "step": 0.0}
    try:
        print("before:", state_of(agent.pid))
        threads = besiege((host, int(port)), until, connects)
        good = []
        for number in range(8):
            begin = time.monotonic()
            good.append(hds.Agent(place, run=f"good-{number}", token=TOKEN, timeout=30.0, **FACTS))
            waits["open"] = max(waits["open"], time.monotonic() - begin)
        done = 0
        while done < steps or any(thread.is_alive() for thread in threads[:4]):
            for one in good:
                begin = time.monotonic()
                one.step(observation(one.next_step))
                waits["step"] = max(waits["step"], time.monotonic() - begin)
            done += 1
        print("besieged:", state_of(agent.pid))
        until.set()
        for thread in threads:
            thread.join()
        time.sleep(6.0)
        print("after:", state_of(agent.pid))
        for one in good:
            one.close()
        agent.terminate()
        assert agent.wait(20) == 0
    finally:
        until.set()
        stopped.kill()
        agent.kill()
        stopped.wait()
        agent.wait()
    return waits


def kills(folder: Path, times: int) -> int:
    """Kills agents while they write checkpoints; gives the steps reached. Each resume must find what was saved."""
    saved = 0
    for number in range(times):
        agent = hds.Agent.spawn(folder, start="any", **FACTS)
        assert agent.next_step >= saved, f"step {agent.next_step} after {saved} was saved"
        process = agent._process
        assert process is not None
        threading.Timer(0.02 + 0.013 * number, process.kill).start()
        try:
            while True:
                agent.step(observation(agent.next_step))
                agent.save()
                saved = agent.next_step
        except hds.AgentError:
            agent.close()
    return saved


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--connects", type=int, default=10_000)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--kills", type=int, default=20)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        waits = siege(Path(folder), arguments.connects, arguments.steps)
        print(f"longest waits of the good clients: open {waits['open']:.3f} s, step {waits['step']:.3f} s")
        print(f"{arguments.kills} kills while saving: nothing saved was lost, {kills(Path(folder) / 'kills', arguments.kills)} steps")


if __name__ == "__main__":
    main()
