"""An index behind a URL is the index in the folder: read over HTTP from nginx, in process and in workers."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import hds

ROOT = Path(__file__).resolve().parents[2]


def nginx() -> str | None:
    own = ROOT / ".servers" / "bin" / "nginx"
    return str(own) if own.is_file() else shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin")


@pytest.fixture(scope="module")
def url(index: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    program = nginx()
    if program is None:
        pytest.skip("nginx is not installed; on Debian: apt-get install nginx-light")
    folder = tmp_path_factory.mktemp("nginx")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    paths = " ".join(f"{n}_temp_path {folder}/{n};" for n in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
    (folder / "nginx.conf").write_text(
        f"daemon off; master_process off; pid {folder}/pid; error_log {folder}/error.log;\n"
        f"events {{ worker_connections 256; }}\n"
        f"http {{ access_log off; {paths} server {{ listen 127.0.0.1:{port}; root {index.parent}; }} }}\n"
    )
    command = [program, "-p", folder, "-c", folder / "nginx.conf", "-e", folder / "error.log"]
    server = subprocess.Popen(command, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    for _ in range(1000):
        try:
            socket.create_connection(("127.0.0.1", port)).close()
            break
        except OSError:
            assert server.poll() is None
            time.sleep(0.01)
    yield f"http://127.0.0.1:{port}/{index.name}"
    server.kill()
    server.wait()


OPTIONS = {"seq_len": 32, "batch_size": 6, "seed": 5, "weights": "uniform", "output": "numpy"}


def batches(data: hds.StreamingDataset, count: int) -> list[dict[str, np.ndarray]]:
    """The first batches, with other weights for each; copies, as their memory is used again."""
    read, names = [], data.domains
    stream = iter(data)
    for step in range(count):
        batch = next(stream)
        read.append({key: np.copy(value) for key, value in batch.items()})
        raw = [1.0 + (step + number) % 3 for number in range(len(names))]
        data.set_weights([weight / sum(raw) for weight in raw])
    return read


def equal(got: list[dict[str, np.ndarray]], want: list[dict[str, np.ndarray]]) -> None:
    assert len(got) == len(want)
    for one, other in zip(got, want):
        assert one.keys() == other.keys()
        for key, value in one.items():
            np.testing.assert_array_equal(value, other[key])


@pytest.mark.parametrize("fetch", ["pieces", "files"])
def test_batches_over_http_are_those_of_the_folder(index: Path, url: str, tmp_path: Path, fetch: str) -> None:
    want = batches(hds.StreamingDataset(index, **OPTIONS), 60)
    remote = {"cache_dir": tmp_path / "cache", "cache_piece": 4096, "fetch": fetch}
    data = hds.StreamingDataset(url, **OPTIONS, **remote)
    assert data.fingerprint == hds.StreamingDataset(index, **OPTIONS).fingerprint
    equal(batches(data, 60), want)
    state = data.state_dict()
    assert any((tmp_path / "cache" / "files").iterdir())
    # A state goes on in the folder, as it is the same index.
    local = hds.StreamingDataset(index, **OPTIONS)
    local.load_state_dict(state)
    equal(batches(local, 5), batches(data, 5))


def test_a_forked_process_goes_on_by_itself(index: Path, url: str, tmp_path: Path) -> None:
    want = batches(hds.StreamingDataset(index, **OPTIONS), 40)
    data = hds.StreamingDataset(url, **OPTIONS, cache_dir=tmp_path, cache_piece=4096)
    equal(batches(data, 39), want[:39])
    child = os.fork()
    if child == 0:
        # Neither threads nor connections came along; the cache is gone, so that both are needed.
        code = 1
        try:
            os.rename(tmp_path / "files", tmp_path / "away")
            equal([{key: np.copy(value) for key, value in next(iter(data)).items()}], want[39:])
            code = 0
        finally:
            os._exit(code)
    for _ in range(600):
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            break
        time.sleep(0.05)
    else:
        os.kill(child, 9)
        os.waitpid(child, 0)
        pytest.fail("the forked process hangs")
    assert status == 0


@pytest.mark.parametrize("start", ["fork", "spawn"])
def test_workers_read_over_http_too(index: Path, url: str, tmp_path: Path, start: str) -> None:
    pytest.importorskip("torch", reason="torch is not installed")
    options = {**OPTIONS, "output": "torch", "length": 20}

    def read(place: str | os.PathLike[str], **more: object) -> list[dict[str, np.ndarray]]:
        data = hds.StreamingDataset(place, **options, **more)
        if more:  # connections and threads that a forked worker must not use
            next(iter(hds.StreamingDataset(place, **options, **more)))
        loader = hds.DataLoader(data, num_workers=2, multiprocessing_context=start)
        return [{key: np.asarray(value) for key, value in batch.items()} for batch in loader]

    equal(read(url, cache_dir=tmp_path, cache_piece="16KiB"), read(index))


def test_what_cannot_be_read_is_said(url: str, tmp_path: Path) -> None:
    for options, words in [
        ({"cache_piece": "5KB"}, "cache_piece: is 5KB, must be a power of two"),
        ({"cache_limit": "much"}, 'cache_limit: "much" is no size'),
        ({"cache_limit": "1MB"}, "cache_limit: is 1MB, must hold at least 8 pieces of 1MiB"),
        ({"fetch": "all"}, "fetch: 'all', must be"),
    ]:
        with pytest.raises(ValueError, match=words):
            hds.StreamingDataset(url, **OPTIONS, cache_dir=tmp_path, **options)
    with pytest.raises(ValueError, match="cache_limit: is 32KiB, but a batch of 6 sequences may touch"):
        hds.StreamingDataset(url, **OPTIONS, cache_dir=tmp_path, cache_limit="32KiB", cache_piece="4KiB")
    with pytest.raises(hds.HdsError, match="/elsewhere/manifest.json: there is no index"):
        hds.StreamingDataset(url + "/elsewhere", **OPTIONS, cache_dir=tmp_path)
    with pytest.raises(hds.HdsError, match="in the cache of a remote index"):
        (tmp_path / "file").write_text("x")
        hds.StreamingDataset(url, **OPTIONS, cache_dir=tmp_path / "file" / "cache")


def test_a_damaged_cache_is_mended_and_counted(index: Path, url: str, tmp_path: Path) -> None:
    want = batches(hds.StreamingDataset(index, **OPTIONS), 60)
    remote = {"cache_dir": tmp_path, "cache_piece": 4096}
    data = hds.StreamingDataset(url, **OPTIONS, **remote)
    equal(batches(data, 60), want)
    assert data.cache_troubles == {"damaged": 0, "disk_full": 0, "not_kept": 0}
    damaged = 0
    for file in (tmp_path / "files").glob("*/*"):
        content = bytearray(file.read_bytes())
        content[len(content) // 2] ^= 1
        file.write_bytes(content)
        damaged += 1
    assert damaged > 10
    data = hds.StreamingDataset(url, **OPTIONS, **remote)
    equal(batches(data, 60), want)
    assert data.cache_troubles["damaged"] > 10
    assert hds.StreamingDataset(index, **OPTIONS).cache_troubles["damaged"] == 0


def test_what_is_no_url_of_an_index_is_said(tmp_path):
    for place, words in [
        ("s3:/bucket/index", "s3://bucket/index"),
        ("ftp://host/index", "not of ftp://"),
        ("http:///index", "names no server"),
    ]:
        with pytest.raises(hds.HdsError) as error:
            hds.StreamingDataset(place, **OPTIONS, cache_dir=tmp_path)
        assert words in str(error.value) and place in str(error.value)


def opened_in_a_process(url: str, cache: Path, environment: dict[str, str] | None = None) -> subprocess.Popen:
    """A process that opens a URL, once it is about to; it says which exception came of it."""
    code = (
        "import hds, signal\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "print('ready', flush=True)\n"
        "try:\n"
        f"    hds.StreamingDataset({url!r}, seq_len=8, batch_size=2, cache_dir={str(cache)!r})\n"
        "except BaseException as error:\n"
        "    print(type(error).__name__, error)\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, env=os.environ | (environment or {})
    )
    assert process.stdout is not None and process.stdout.readline() == "ready\n"
    return process


def test_ctrl_c_ends_waiting_for_a_server_that_says_nothing(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as server:
        process = opened_in_a_process(f"http://127.0.0.1:{server.getsockname()[1]}/index", tmp_path)
        server.accept()
        process.send_signal(signal.SIGINT)
        said, _ = process.communicate(timeout=10)
    assert said.startswith("KeyboardInterrupt")


def test_a_wrong_s3_server_is_named_and_no_password_is_shown(tmp_path):
    keys = {"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b", "AWS_REGION": "us-east-1"}
    for server, said in [("127.0.0.1:1", "no URL"), ("http://127.0.0.1:1", "AWS_ALLOW_HTTP=true")]:
        process = opened_in_a_process("s3://bucket/index", tmp_path, keys | {"AWS_ENDPOINT": server})
        error, _ = process.communicate(timeout=30)
        assert error.startswith("HdsError") and f"AWS_ENDPOINT={server}" in error and said in error
    with pytest.raises(hds.HdsError) as refused:
        hds.StreamingDataset("http://me:secret@127.0.0.1:1/index", seq_len=8, batch_size=2, cache_dir=tmp_path)
    assert "secret" not in str(refused.value) and "REDACTED" in str(refused.value)
