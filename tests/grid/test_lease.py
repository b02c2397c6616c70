"""What is in a member's store counts only while the member turns."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.msgpack import decode, encode

from shmjet.grid import lease, service
from shmjet.grid.commit_counters import NUMBERS, TURNED
from shmjet.grid.errors import PartitionMovedError
from shmjet.grid.layout import MAP_RECORD, record_key
from shmjet.grid.lease import LEASE_NS, Lease, holds
from shmjet.grid.operations import Describe, Size
from tests.grid.divided import COUNT, Losing, Stores

START = 10**15


def test_a_member_that_has_stood_still_waits_before_what_it_has_counts_again(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = START
    monkeypatch.setattr(lease, "now", lambda: clock)
    words = memoryview(bytearray(8 * NUMBERS)).cast("Q")
    member = Lease(words)
    assert not holds(words)
    seen = []
    turns = [0, 0.3, 0.6, 1.2, 2.0, 2.3, 2.6, 2.8, 3.0]  # it stands still between 1.2 and 2.0
    for seconds in turns:
        clock = START + int(seconds * 1e9)
        before = holds(words)
        member.renew(clock, is_member=seconds > 0)
        seen.append((before, holds(words)))
    assert seen == [
        (False, False),
        (False, True),
        (True, True),
        (True, True),
        (False, False),
        (False, False),
        (False, False),
        (False, True),
        (True, True),
    ]
    assert words[TURNED] == clock


def test_the_member_is_asked_when_it_has_not_said_that_it_turns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stores = Stores(tmp_path, 1)
    asked: list[str] = []
    ask = Losing.ask
    monkeypatch.setattr(Losing, "ask", lambda self, member, body: (asked.append(member), ask(self, member, body))[1])
    there = stores.grid(is_local=True).get_map("m")
    there.put_all(dict.fromkeys(range(COUNT), 1))
    asked.clear()
    assert there[3] == 1
    there.put(3, 2)
    assert asked == []
    stores.lend("0", lease.now() - LEASE_NS)
    monkeypatch.setattr(service, "holds", lambda _: True)
    assert there[3] == 2
    there.put(3, 3)
    there.put_all({4: 4})
    assert asked == ["0"] * 3
    monkeypatch.setattr(service, "holds", holds)
    ask_store = stores.services["0"].perform
    stores.lend("0", 0)
    with pytest.raises(PartitionMovedError, match="has stood still"):
        ask_store(encode(Size(0, record_key(MAP_RECORD, "m"))))
    assert decode(ask_store(encode(Describe())))[0] == COUNT, "what is not about partitions is told"
    stores.lend("0", 1 << 62)
    assert there.get_all([3, 4]) == {3: 3, 4: 4}
    assert len(there) == COUNT
    assert asked == ["0"] * 3
    stores.close()
