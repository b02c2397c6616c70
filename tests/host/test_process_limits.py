"""The limits behind an error are named."""

from __future__ import annotations

import errno
import os
import resource

import pytest

from shmjet.host.process_limits import lack_text


@pytest.mark.parametrize(
    ("number", "said"),
    [
        (errno.EAGAIN, "RLIMIT_NPROC"),
        (errno.EMFILE, "RLIMIT_NOFILE"),
        (errno.EFBIG, "RLIMIT_FSIZE"),
        (errno.ENOSPC, "no inode left"),
    ],
)
def test_a_lack_is_named_by_its_limit(number: int, said: str) -> None:
    error = OSError(number, os.strerror(number))
    text = lack_text(error)
    assert text.startswith(f"{error}; ")
    assert said in text


def test_another_error_is_as_it_is() -> None:
    assert lack_text(OSError(errno.EPERM, "no")) == f"[Errno {errno.EPERM}] no"


def test_threads_that_cannot_start_are_processes_too_many() -> None:
    assert "RLIMIT_NPROC" in lack_text(RuntimeError("can't start new thread"))


def test_threads_that_cannot_start_may_lack_address_space(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (1 << 30, 1 << 30))
    text = lack_text(RuntimeError("can't start new thread"))
    assert "RLIMIT_AS 1073741824" in text
    assert "RLIMIT_NPROC" in text
