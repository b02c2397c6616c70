"""A client's first look at the maps of a cluster, while members are lost."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from shmjet.cluster.client.connection import refusal
from shmjet.cluster.client.grid_access import GridAccess
from shmjet.cluster.member.grid_requests import refused
from shmjet.cluster.protocol import GridReply, Refused
from shmjet.data.errors import MemberLostError
from shmjet.grid.errors import NotOnDiskError
from shmjet.grid.operations import Describe, Operation, Pop
from shmjet.grid.remote import ask


class Members:
    """Members of which some are lost before they answer; they know what maps there are.

    Args:
        lost: how many.
    """

    def __init__(self, lost: int) -> None:
        self.asked: list[Any] = []
        self._lost = lost

    def ask(self, make: Callable[[int], Any]) -> GridReply:
        self.asked.append(make(len(self.asked) + 1))
        if len(self.asked) <= self._lost:
            raise MemberLostError("the member was lost before it answered")
        return GridReply(self.asked[-1].request, msgspec.msgpack.encode((13, 1, {})), 0)


def test_another_member_is_asked_what_maps_there_are() -> None:
    members = Members(2)
    GridAccess(None, members.ask, lambda: None).open().get_map("m")
    assert [msgspec.msgpack.decode(call.body, type=Operation) for call in members.asked] == [Describe()] * 3
    assert {call.member for call in members.asked} == {""}


def test_where_all_are_lost_the_client_is_told() -> None:
    members = Members(100)
    access = GridAccess(None, members.ask, lambda: None)
    with pytest.raises(MemberLostError, match="before it answered"):
        access.open().get_map("m")
    assert len(members.asked) == 3


def test_an_error_of_the_disk_brings_what_the_change_has_returned() -> None:
    error = NotOnDiskError("the disk is full")
    error.result = msgspec.msgpack.encode(b"before")  # as `GridService.perform` does
    sent = msgspec.msgpack.encode(refused(1, error))

    def by_network(body: bytes) -> bytes:
        raise refusal(msgspec.msgpack.decode(sent, type=Refused))

    with pytest.raises(NotOnDiskError, match="the disk is full") as raised:
        ask(by_network, Pop(0, b"record", b"key"), bytes)
    assert raised.value.result == b"before"
