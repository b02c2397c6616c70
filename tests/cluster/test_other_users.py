"""Other users of the host neither stop a start nor pass for a member; shared memory that shrinks kills no process."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from shmjet.cluster import folder
from shmjet.cluster.folder import InstanceFolder, is_locked, running_folders, sweep
from shmjet.cluster.monitor import local
from shmjet.cluster.monitor.local import AttachedMember
from shmjet.core import MemberLostError
from shmjet.ipc import unix_sockets

OTHER = 65534
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can make files of another user")


@contextlib.contextmanager
def as_other(work: Callable[[], None]) -> Iterator[None]:
    """Have another user do something first, and keep its process until the end."""
    ready, say = os.pipe()
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            os.close(ready)
            os.setgid(OTHER)
            os.setuid(OTHER)
            work()
            os.write(say, b"x")
            signal.pause()
        finally:
            os._exit(status)
    os.close(say)
    try:
        assert os.read(ready, 1) == b"x", "the other user failed"
        yield
    finally:
        os.close(ready)
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def in_a_process(program: str, *arguments: str) -> str:
    """Run a program that may hang."""
    command = [sys.executable, "-c", program, *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout.strip()


@needs_root
def test_a_fifo_of_another_user_holds_nobody_up(tmp_path: Path) -> None:
    base = tmp_path / "shm"
    base.mkdir()
    base.chmod(0o1777)
    for parent in (tmp_path, *tmp_path.parents[:3]):
        parent.chmod(parent.stat().st_mode | 0o111)

    def leave_debris() -> None:
        for name in ("fifo", "link", "locked"):
            (base / f"shmjet-0-{name}").mkdir(mode=0o777)
        os.mkfifo(base / "shmjet-0-fifo" / "lock", 0o666)
        (base / "shmjet-0-link" / "lock").symlink_to("/dev/zero")
        import fcntl

        fcntl.flock(os.open(base / "shmjet-0-locked" / "lock", os.O_CREAT | os.O_RDWR, 0o666), fcntl.LOCK_EX)
        (base / "shmjet-0-to-a-folder").symlink_to("/etc")
        os.mkfifo(base / "shmjet-0-a-fifo", 0o666)

    with as_other(leave_debris):
        there = sorted(os.listdir(base))
        program = (
            "import sys, pathlib, tempfile; from shmjet.cluster import folder\n"
            "base = pathlib.Path(sys.argv[1]); tempfile.tempdir = str(base)\n"
            "print(folder.sweep(base), [found for found in folder.running_folders() if found.parent == base])"
        )
        assert in_a_process(program, str(base)) == "[] []"
        assert sorted(os.listdir(base)) == there
        assert not is_locked(base / "shmjet-0-fifo")


def test_only_plain_locks_in_real_folders_of_this_user_count(tmp_path: Path) -> None:
    mine = InstanceFolder(tmp_path)
    prefix = f"shmjet-{os.geteuid()}-"
    (tmp_path / f"{prefix}link").symlink_to(mine.path)
    odd = tmp_path / f"{prefix}odd"
    odd.mkdir()
    os.mkfifo(odd / "lock")
    linked = tmp_path / f"{prefix}linked"
    linked.mkdir()
    (linked / "lock").symlink_to(mine.path / "lock")
    assert [each.name for each, _ in folder.own_folders(tmp_path) if is_locked(each)] == [mine.path.name]
    assert sweep(tmp_path) == []
    mine.remove()


def test_a_folder_that_a_sweep_has_taken_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[str] = []
    real_open = os.open

    def sweep_first(path: str, flags: int, mode: int = 0o777, **options: int) -> int:
        """Open the lock; the first time another process sweeps before it is taken."""
        fd = real_open(path, flags, mode, **options)
        if flags & os.O_CREAT and not made:
            made.append(str(path))
            assert [str(swept / "lock") for swept in sweep(tmp_path)] == made
        return fd

    monkeypatch.setattr(folder.os, "open", sweep_first)
    mine = InstanceFolder(tmp_path)
    assert made
    assert str(mine.path / "lock") != made[0]
    assert os.listdir(tmp_path) == [mine.path.name]
    assert is_locked(mine.path)
    mine.remove()


@needs_root
def test_a_member_of_another_user_is_not_believed(tmp_path: Path) -> None:
    for parent in (tmp_path, *tmp_path.parents[:3]):
        parent.chmod(parent.stat().st_mode | 0o111)
    tmp_path.chmod(0o777)

    def listen() -> None:
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(str(tmp_path / "member.sock"))
        (tmp_path / "member.sock").chmod(0o777)
        listener.listen()
        globals()["kept"] = listener

    with as_other(listen), pytest.raises(MemberLostError, match=r"belongs to another user \(uid 65534\)"):
        AttachedMember(tmp_path)


def test_shared_memory_that_is_cut_off_is_an_error() -> None:
    fd = os.memfd_create("cut")
    os.ftruncate(fd, 1 << 16)
    os.pwrite(fd, b"here", 100)
    copy = local.MemoryCopy(os.dup(fd), 1 << 16)
    copy.refresh(100, 4)
    assert bytes(copy.memory[100:104]) == b"here"
    os.ftruncate(fd, 50)
    with pytest.raises(MemberLostError, match="was cut off"):
        copy.refresh()
    copy.close()
    with pytest.raises(MemberLostError, match="has 50 bytes where it said 4096"):
        local.MemoryCopy(fd, 4096)


def test_a_socket_may_lie_in_a_folder_with_a_long_name(tmp_path: Path) -> None:
    path = tmp_path.joinpath(*["ä" * 60] * 3) / "member.sock"
    path.parent.mkdir(parents=True)
    with socket.socket(socket.AF_UNIX) as listener, socket.socket(socket.AF_UNIX) as client:
        unix_sockets.bind(listener, path)
        listener.listen()
        unix_sockets.connect(client, path)
        assert unix_sockets.peer_user(client) == os.geteuid()
        with pytest.raises(FileNotFoundError):
            unix_sockets.connect(listener, path.with_name("not there"))


def test_without_a_temporary_folder_nothing_is_found_there(monkeypatch: pytest.MonkeyPatch) -> None:
    def nowhere() -> str:
        raise FileNotFoundError("No usable temporary directory found")

    monkeypatch.setattr("tempfile.gettempdir", nowhere)
    assert all(each.parent == Path("/dev/shm") for each in running_folders())
