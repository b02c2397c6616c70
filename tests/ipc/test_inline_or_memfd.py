"""Large values of messages lie in sealed files that all share."""

from __future__ import annotations

import errno
import os

import pytest

from shmjet.ipc.inline_or_memfd import InlineOrMemfd


def test_a_small_value_stays_in_its_message() -> None:
    large = InlineOrMemfd.of(b"small", 5)
    assert (large.inline, large.size, large.fds) == (b"small", 0, ())
    assert bytes(InlineOrMemfd.received(large.inline, large.size, ()).view()) == b"small"
    large.close()


def test_a_large_value_goes_as_a_descriptor_and_is_read_in_place() -> None:
    data = os.urandom(100_000)
    large = InlineOrMemfd.of(data, 99_999)
    (fd,) = large.fds
    assert (large.inline, large.size) == (b"", len(data))
    came = InlineOrMemfd.received(large.inline, large.size, [os.dup(fd), 12345])
    view = came.view()
    came.close()
    large.close()
    assert view == data
    assert view.readonly


def test_nobody_can_change_what_others_read() -> None:
    large = InlineOrMemfd.of(bytes(100), 10)
    with pytest.raises(PermissionError):
        os.pwrite(large.fd, b"x", 0)
    with pytest.raises(PermissionError):
        os.ftruncate(large.fd, 0)
    large.close()


def test_where_no_file_can_be_made_the_value_goes_through_the_socket(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> int:
        raise OSError(errno.EMFILE, "too many")

    monkeypatch.setattr(os, "memfd_create", refuse)
    assert InlineOrMemfd.of(b"xx", 1) == InlineOrMemfd(b"xx")
