"""Clients ask the members that have what they want themselves, over lines of their own, as long as these hold."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from shmjet.cluster.client import direct_lines
from shmjet.cluster.client.direct_lines import DirectLines, LineLost
from shmjet.cluster.protocol import DescribePartitions, GridCall, GridReply, PartitionsReply, Request
from shmjet.ipc.channel import Channel, ChannelClosed


class Member:
    """Answers over sockets of its own, in threads; can be held up, and ended."""

    def __init__(self) -> None:
        self.name = "a"
        self.dialled: list[str] = []
        self.may_answer = threading.Event()
        self.may_answer.set()
        self.asked = threading.Event()
        self.asking: set[object] = set()
        self._ends: list[socket.socket] = []

    def dial(self, address: str) -> tuple[socket.socket, bytes, Callable[[], None]]:
        self.dialled.append(address)
        ours, theirs = socket.socketpair()
        self._ends.append(theirs)
        threading.Thread(target=self._serve, args=(theirs,)).start()
        return ours, b"", ours.close

    def _serve(self, sock: socket.socket) -> None:
        channel = Channel(sock, Request)
        try:
            while True:
                request, _ = channel.receive()
                if isinstance(request, DescribePartitions):
                    channel.send(PartitionsReply(request.request, ["a"], [(0,)], True, self.name))
                else:
                    self.asked.set()
                    self.asking.add(channel)
                    self.may_answer.wait(60)
                    self.asking.discard(channel)
                    channel.send(GridReply(request.request, b"by a line", 1))
        except ChannelClosed:
            pass
        finally:
            channel.close()

    def end(self) -> None:
        """Break all connections."""
        for end in self._ends:
            end.shutdown(socket.SHUT_RDWR)


@pytest.fixture
def member(monkeypatch: pytest.MonkeyPatch) -> Member:
    monkeypatch.setattr(direct_lines, "OFTEN", 3)
    return Member()


@pytest.fixture
def lines(member: Member) -> Iterator[DirectLines]:
    """Lines to the member "a"; another one, "b", has no address."""
    found = DirectLines(member.dial, lambda: {"a": "there:1"})
    yield found
    found.close()


def ask(lines: DirectLines, name: str = "a") -> Any:
    reply = lines.ask(name, lambda number: GridCall(number, b"", 0, False, name))
    return None if reply is None else reply.body


def test_a_member_that_is_often_asked_gets_a_line(
    lines: DirectLines, member: Member, eventually: Callable[..., Any]
) -> None:
    assert [ask(lines) for _ in range(2)] == [None, None]
    assert member.dialled == []
    eventually(lambda: ask(lines) == b"by a line")
    assert member.dialled == ["there:1"]
    for _ in range(5):
        assert ask(lines, "b") is None
    assert member.dialled == ["there:1"]


def test_a_line_that_breaks_is_not_used_again(
    lines: DirectLines, member: Member, eventually: Callable[..., Any]
) -> None:
    eventually(lambda: ask(lines))
    member.end()
    with pytest.raises(LineLost):
        ask(lines)
    assert [ask(lines) for _ in range(9)] == [None] * 9, "not at once"


def test_a_line_serves_one_thread_at_a_time(lines: DirectLines, member: Member, eventually: Callable[..., Any]) -> None:
    eventually(lambda: ask(lines))
    member.may_answer.clear()
    member.asked.clear()
    answers: list[Any] = []
    other = threading.Thread(target=lambda: answers.append(ask(lines)))
    other.start()
    member.asked.wait(60)
    assert ask(lines) is None
    member.may_answer.set()
    other.join()
    assert answers == [b"by a line"]
    assert ask(lines) == b"by a line"


def test_threads_that_ask_at_the_same_time_get_lines_of_their_own(
    lines: DirectLines, member: Member, eventually: Callable[..., Any]
) -> None:
    eventually(lambda: ask(lines))
    member.may_answer.clear()
    others = [
        threading.Thread(target=lambda: eventually(lambda: ask(lines) == b"by a line"))
        for _ in range(direct_lines.LINES_EACH)
    ]
    for other in others:
        other.start()
    eventually(lambda: len(member.asking) == direct_lines.LINES_EACH)
    assert [ask(lines) for _ in range(9)] == [None] * 9
    member.may_answer.set()
    for other in others:
        other.join()
    assert len(member.dialled) == direct_lines.LINES_EACH


def test_an_address_that_leads_to_another_member_gets_no_line(
    lines: DirectLines, member: Member, eventually: Callable[..., Any]
) -> None:
    member.name = "of another cluster"
    eventually(lambda: ask(lines) or member.dialled)
    lines.close()
    assert ask(lines) is None
    assert len(member.dialled) == 1
