"""The secret: made, written for its owner alone, refused from a file that others can read."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from shmjet.core import ConfigError, JetConfig
from shmjet.core.secret import (
    new_secret,
    read_secret,
    receive_secrets,
    secret_bytes,
    send_secrets,
    write_secret,
)


def test_a_new_secret_has_256_bits_and_differs_each_time() -> None:
    first, second = new_secret(), new_secret()
    assert len(bytes.fromhex(first)) == 32
    assert first != second


def test_a_file_is_for_its_owner_and_is_read_back(tmp_path: Path) -> None:
    path = tmp_path / "secret"
    write_secret(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert read_secret(path) == path.read_bytes().strip()
    with pytest.raises(ConfigError, match="cannot make"):
        write_secret(path)


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o606, 0o602])
def test_a_file_that_others_may_read_is_refused_without_showing_it(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "secret"
    path.write_text("hush hush")
    path.chmod(mode)
    with pytest.raises(ConfigError, match=f"{mode:04o}.*chmod 600") as raised:
        read_secret(path)
    assert "hush" not in str(raised.value)


def test_an_empty_or_missing_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "secret"
    with pytest.raises(ConfigError, match="cannot read"):
        read_secret(path)
    path.write_text("\n")
    path.chmod(0o600)
    with pytest.raises(ConfigError, match="1 to 4096"):
        read_secret(path)


def test_a_config_takes_it_from_the_file_unless_it_has_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "secret"
    path.write_text("from the file\n")
    path.chmod(0o600)
    monkeypatch.setenv("SHMJET_SECRET_FILE", str(path))
    assert JetConfig().secret == b"from the file"
    assert JetConfig(secret="given").secret == "given"
    monkeypatch.setenv("SHMJET_SECRET", "from the environment")
    assert JetConfig().secret == "from the environment"
    (tmp_path / "jet.toml").write_text("secret = 'file:/no/such/file'\n")
    assert JetConfig.from_toml(tmp_path / "jet.toml").secret == "from the environment"
    monkeypatch.delenv("SHMJET_SECRET")
    assert JetConfig.from_toml(tmp_path / "jet.toml").secret == b"from the file", "the environment is stronger"
    assert "from the" not in repr(JetConfig())
    assert os.environ["SHMJET_SECRET_FILE"]


def test_the_secret_of_members_comes_in_the_same_ways(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "members"
    path.write_text("from the file\n")
    path.chmod(0o600)
    monkeypatch.setenv("SHMJET_MEMBER_SECRET_FILE", str(path))
    assert JetConfig().member_secret == b"from the file"
    assert JetConfig().secret is None
    monkeypatch.setenv("SHMJET_MEMBER_SECRET", "from the environment")
    assert JetConfig().member_secret == "from the environment"
    (tmp_path / "jet.toml").write_text("member_secret = 'hunter2hunter2'\n")
    (tmp_path / "jet.toml").chmod(0o644)
    with pytest.raises(ConfigError, match="others may read it") as raised:
        JetConfig.from_toml(tmp_path / "jet.toml")
    assert "hunter2" not in str(raised.value)


def test_both_secrets_go_through_a_pipe() -> None:
    for secrets in ((b"one", b""), (b"one", b"two"), (b"x" * (4 * 4096), b"y" * (4 * 4096))):
        reader, writer = os.pipe()
        send_secrets(writer, *secrets)
        assert receive_secrets(reader) == secrets


@pytest.mark.parametrize("secret", ["x" * 4097, b"x" * (1 << 20)])
def test_a_secret_that_no_pipe_would_hold_is_refused(secret: str | bytes) -> None:
    with pytest.raises(ConfigError, match=r"JetConfig\.secret must have at most 4096 characters") as raised:
        JetConfig(secret=secret)
    assert "xx" not in str(raised.value)


def test_a_secret_of_the_environment_need_not_be_text(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(os.environb, b"SHMJET_SECRET", b"\xff\xfe")
    found = JetConfig().secret
    assert found is not None
    assert secret_bytes(found) == b"\xff\xfe"
