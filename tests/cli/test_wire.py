"""`shmjet secret` and `shmjet wire-dump`."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from shmjet.cli.app import run_application
from shmjet.cli.outcome import CommandError
from shmjet.core.secret import read_secret
from shmjet.net.handshake import MEMBER, Dialing, Identity
from shmjet.net.packets import GOODBYE, HEADER, HEARTBEAT
from tests.net.test_captures import BEAT, FAR, NEAR, pcap, segment


def test_a_secret_is_printed_or_written_for_its_owner(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_application(["secret"]) == 0
    assert len(bytes.fromhex(capsys.readouterr().out.strip())) == 32
    path = tmp_path / "secret"
    assert run_application(["secret", "-o", str(path)]) == 0
    assert capsys.readouterr().out == ""
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert len(read_secret(path)) == 64
    with pytest.raises(CommandError, match="cannot make"):
        run_application(["secret", "-o", str(path)])


def test_a_capture_is_shown_line_by_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    identity = Identity(MEMBER, "dev", "a" * 32, "10.0.0.1:5701", b"never shown")
    hello = Dialing(identity, bytes(32), b"").start()
    proof = b"\x00\x00\x92\xc4\x20" + bytes(32) + b"\xc4\x00"
    proof = (len(proof) - 2).to_bytes(2, "little") + proof[2:]
    packets = HEADER.pack(0, HEARTBEAT, 0, 0, 0, 0, 0, 0, 0) + HEADER.pack(3, GOODBYE, 0, 0, 0, 0, 0, 0, 0) + b"bye"
    path = tmp_path / "capture"
    path.write_bytes(hello + proof + packets)
    assert run_application(["wire-dump", str(path)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "preamble: version 2" in lines[0]
    assert "Hello: role 'member', cluster 'dev'" in lines[1]
    assert "Proof: mac 0000" in lines[2]
    assert [line.split()[1] for line in lines[3:]] == ["HEARTBEAT", "GOODBYE:", "end"]
    with pytest.raises(CommandError, match="cannot read"):
        run_application(["wire-dump", str(tmp_path / "none")])


def test_what_tcpdump_wrote_is_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "members.pcap"
    path.write_bytes(pcap([segment(NEAR, FAR, 10, BEAT)]))
    assert run_application(["wire-dump", str(path)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "10.0.0.1:40000 -> 10.0.0.2:5701: 32 bytes"
    assert [line.split()[1] for line in lines[2:]] == ["HEARTBEAT", "end"]
