"""The console as users start it: in a thread of their program, and as a separate command."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

pytest.importorskip("starlette", reason="the extra `console` is not installed")
pytest.importorskip("uvicorn", reason="the extra `console` is not installed")
pytest.importorskip("prometheus_client", reason="the extra `console` is not installed")

import shmjet
from shmjet import ConfigError, JetConfig, JetInstance, JobConfig
from shmjet.cli.console import console
from shmjet.cli.outcome import CommandError
from tests.console.conftest import TOKEN, endless_dag

ROOT = Path(__file__).resolve().parents[2]


def ask(url: str, path: str, **headers: str) -> tuple[int, str]:
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=120)
    try:
        connection.request("GET", path, headers=headers)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    finally:
        connection.close()


def events(url: str, **headers: str) -> Iterator[dict[str, Any]]:
    """Yield the states of a stream, as the page reads them."""
    request = urllib.request.Request(url + "api/events", headers=headers)
    with urllib.request.urlopen(request, timeout=120) as answer:
        assert answer.headers["content-type"].startswith("text/event-stream")
        for line in answer:
            if line.startswith(b"data: "):
                yield json.loads(line[6:])


def test_a_program_serves_its_instance_and_the_console_sees_its_end(eventually: Callable[..., None]) -> None:
    with shmjet.new_instance(JetConfig(cores=1)) as jet:
        console = shmjet.console.serve(jet)
        stream = events(console.url)
        assert next(state for state in stream if state["members"])["members"][0]["pid"] == jet.cluster.members[0].pid
        execution = jet.new_job(endless_dag(), JobConfig(name="seen")).execute()
        state = next(state for state in stream if state["selected"] and state["selected"]["sink_rate"] > 0)
        assert [card["name"] for card in state["jobs"]] == ["seen"]
        assert not execution.done()
    state = next(state for state in stream if state["members"][0]["ended"])
    assert state["selected"]["card"]["status"] in ("lost", "cancelled", "cancelling")
    stream.close()
    console.close()
    console.close()
    with pytest.raises(ConnectionRefusedError):
        ask(console.url, "/")


def test_closing_the_console_ends_open_streams_and_leaves_the_instance(jet: JetInstance) -> None:
    with shmjet.console.serve(jet, token=TOKEN, private=True) as console:
        stream = events(console.url, Authorization=f"Bearer {TOKEN}")
        next(stream)
        assert ask(console.url, "/api/state")[0] == 401
        assert ask(console.url, "/")[0] == 200
    assert all(state["members"] is not None for state in stream)  # what was under way, then the end
    assert jet.cluster.members


def test_settings_that_cannot_be_served_raise(jet: JetInstance) -> None:
    with pytest.raises(ConfigError, match="needs a token"):
        shmjet.console.serve(jet, host="0.0.0.0")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(OSError, match="in use"):
            shmjet.console.serve(jet, port=taken.getsockname()[1])


@pytest.fixture
def command(tmp_path: Path) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """`command("--port", 0)` starts `shmjet console`; it is killed at the end of the test."""
    started = []

    def start(*arguments: object) -> subprocess.Popen[str]:
        child = subprocess.Popen(
            [sys.executable, "-m", "shmjet", "console", *map(str, arguments)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )
        started.append(child)
        return child

    yield start
    for child in started:
        with child:
            child.kill()


@pytest.mark.slow
def test_the_command_shows_the_instances_of_a_program_until_it_is_interrupted(
    jet: JetInstance, command: Callable[..., subprocess.Popen[str]], tmp_path: Path
) -> None:
    child = command("--port", 0, "--pid", os.getpid(), "--token-file", tmp_path / "token")
    assert child.stdout is not None
    url = child.stdout.readline().removeprefix("shmjet console: ").strip()
    assert "token" in child.stdout.readline()
    members = next(state["members"] for state in events(url) if state["members"])
    assert [member["pid"] for member in members] == [jet.cluster.members[0].pid]
    execution = jet.new_job(endless_dag(), JobConfig(name="from outside")).execute()
    job = next(state["selected"] for state in events(url) if state["selected"] is not None)
    request = urllib.request.Request(
        f"{url}api/jobs/{job['card']['id']}/cancel",
        method="POST",
        headers={"Authorization": f"Bearer {(tmp_path / 'token').read_text().strip()}"},
    )
    with urllib.request.urlopen(request, timeout=120) as answer:
        assert answer.status == 202
    with pytest.raises(CancelledError):
        execution.result(60)
    child.send_signal(signal.SIGINT)
    _, complaints = child.communicate(timeout=120)
    assert (child.returncode, complaints) == (130, "shmjet: interrupted\n")


def test_the_command_says_in_one_line_what_is_wrong(tmp_path: Path) -> None:
    readable = tmp_path / "readable"
    readable.write_text("0123456789abcdef")
    readable.chmod(0o644)

    def complaint(**options: Any) -> str:
        plain = {"host": "127.0.0.1", "port": 0, "token_file": None, "private": False, "allow_hosts": [], "pid": None}
        with pytest.raises((CommandError, ConfigError)) as caught:
            console(**{**plain, **options})
        return str(caught.value)

    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert complaint(port=port).startswith(f"port {port} is in use")
    assert "needs a token (--token-file)" in complaint(host="0.0.0.0")
    assert "needs a token" in complaint(private=True)
    assert "chmod 600" in complaint(token_file=readable)
    assert "cannot read" in complaint(token_file=tmp_path / "none" / "token")
    assert "cannot listen on 192.0.2.1" in complaint(host="192.0.2.1", token_file=tmp_path / "made")
    assert "cannot listen on no.such.host.invalid" in complaint(
        host="no.such.host.invalid", token_file=tmp_path / "made"
    )


def test_connections_that_ask_nothing_keep_nobody_out_of_the_console(
    monkeypatch: pytest.MonkeyPatch, eventually: Callable[..., None]
) -> None:
    monkeypatch.setattr("shmjet.console.connections.MOST_WAITING", 5)
    with shmjet.new_instance(JetConfig(cores=1)) as jet, shmjet.console.serve(jet) as console:
        where = urlsplit(console.url)
        kept = http.client.HTTPConnection(where.hostname or "", where.port, timeout=120)
        kept.request("GET", "/api/events")  # it is served, so it does not have to go
        assert kept.getresponse().status == 200
        silent = [socket.create_connection((where.hostname, where.port), 60) for _ in range(30)]
        try:
            for sock in silent[1::2]:
                sock.sendall(b"GET / HTTP/1.1\r\nHost: loc")
            assert ask(console.url, "/api/state")[0] == 200
            silent[0].settimeout(60)
            with contextlib.suppress(ConnectionResetError):
                assert silent[0].recv(1) == b""
            assert kept.sock is not None
            late = http.client.HTTPConnection(where.hostname or "", where.port, timeout=60)
            late.request("GET", "/api/state")
            assert late.getresponse().read()
            assert late.sock is not None
            silent.append(late.sock)
            monkeypatch.setattr("shmjet.console.connections.REQUEST_S", 0.05)  # from the next answer on
            late.request("GET", "/api/state")
            assert late.getresponse().read()
            with contextlib.suppress(ConnectionResetError, BrokenPipeError):
                late.sock.sendall(b"GET / HTTP/1.1\r\nHost: loc")  # half a request on a connection that has been served
                while late.sock.recv(1 << 20):
                    pass
        finally:
            for sock in silent:
                sock.close()
            kept.close()


def test_requests_that_are_none_do_not_fill_the_log(caplog: pytest.LogCaptureFixture) -> None:
    with shmjet.new_instance(JetConfig(cores=1)) as jet, shmjet.console.serve(jet) as console:
        port = urlsplit(console.url).port
        for _ in range(200):
            with socket.create_connection(("127.0.0.1", port), timeout=60) as sock:
                sock.sendall(b"no request\r\n\r\n")
                assert sock.recv(100).startswith(b"HTTP/1.1 400")
    said = [record for record in caplog.records if "Invalid HTTP request" in record.getMessage()]
    assert 1 <= len(said) < 100
    assert {record.name for record in said} == {"shmjet.console"}
