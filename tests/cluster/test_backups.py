"""Members of a cluster are killed, and nothing that was acknowledged is lost, as its backups are on other members."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from typing import Any

import pytest

import shmjet
from shmjet import JetConfig, JetInstance, MapConfig, MemberLostError, Pipeline, sinks, sources
from shmjet.core.keys import partition_id
from shmjet.grid import GridError

COUNT = 31
SECRET = "a secret of these tests"
ENTRIES = {number: str(number) for number in range(2000)}
MAPS = {"journal": MapConfig(journal_capacity=10_000), "strict": MapConfig(min_backups=1)}

pytestmark = pytest.mark.slow


def member(*addresses: str, backup_count: int = 1) -> JetInstance:
    config = JetConfig(
        cores=1,
        bind="127.0.0.1:0",
        members=addresses,
        secret=SECRET,
        partition_count=COUNT,
        backup_count=backup_count,
        maps=MAPS,
    )
    return shmjet.new_instance(config)


def cluster(size: int, backup_count: int, eventually: Callable[[Callable[[], object]], None]) -> list[JetInstance]:
    members = [member(backup_count=backup_count)]
    for _ in range(size - 1):
        members.append(member(members[0].cluster.members[0].address, backup_count=backup_count))
    eventually(lambda: len({row[0] for row in members[0].cluster.partition_table()}) == size)
    eventually(lambda: members[0].cluster.is_safe)
    return members


def kill(pids: list[int]) -> None:
    for pid in pids:
        os.kill(pid, signal.SIGKILL)


def end(members: list[JetInstance]) -> None:
    for instance in members:
        try:
            instance.shutdown()
        except MemberLostError:
            continue


def fill(jet: JetInstance) -> list[Any]:
    """Put something of each kind into maps and lists; return what `contents` has to be then."""
    large = os.urandom(200_000)
    jet.get_map("entries").put_all(ENTRIES)
    jet.get_list("items").extend(range(3000))
    jet.get_list("items").append(large)
    jet.get_map("large").put_all({"x": large, "y": large[:100_000]})
    jet.get_map("large").pop("y")
    jet.get_map("ends").put("a", 1, ttl=600)
    journal = jet.get_map("journal")
    journal.update({"a": 1, "b": 2})
    journal.pop("a")
    pipeline = Pipeline()
    entries = pipeline.read_from(sources.map("entries", partitions=COUNT))
    entries.map(lambda pair: (pair[0], pair[1] + "!")).write_to(sinks.map("copied"))
    jet.new_job(pipeline).run(60)
    copied = {key: value + "!" for key, value in ENTRIES.items()}
    return [ENTRIES, len(ENTRIES), [*range(3000), large], {"x": large}, {"a": 1}, {"b": 2}, copied]


def contents(jet: JetInstance) -> list[Any]:
    entries, names = jet.get_map("entries"), ("large", "ends", "journal", "copied")
    return [dict(entries.items()), len(entries), list(jet.get_list("items")), *(dict(jet.get_map(n)) for n in names)]


def test_what_a_killed_member_had_is_on_the_other_one(eventually: Callable[[Callable[[], object]], None]) -> None:
    members = cluster(2, 1, eventually)
    first = members[0]
    there = fill(first)
    first.get_map("strict")["a"] = 1
    events = iter(first.get_map("journal").journal())
    assert {next(events).new for _ in range(2)} == {1, 2}
    under_way = iter(first.get_map("entries").items())
    seen = [next(under_way)]
    own = members[1].get_map("entries")
    here = [key for key in ENTRIES if partition_id(key, COUNT) in own.local_partitions]
    assert own[here[0]] == ENTRIES[here[0]]
    kill([first.cluster.members[1].pid])
    seen += under_way
    for use in (lambda: own[here[0]], lambda: own.put(here[0], "?"), lambda: list(own.items())):
        with pytest.raises(MemberLostError):
            use()
    assert dict(seen) == ENTRIES
    assert len(seen) == len(ENTRIES)
    assert contents(first) == there
    eventually(lambda: len(first.cluster.members) == 1)
    assert first.cluster.is_safe, "there is no other member for a backup"
    assert next(events).kind == "removed"
    first.get_map("journal")["c"] = 3
    assert next(events).key == "c"
    with pytest.raises(GridError, match="only with 1 backups"):
        first.get_map("strict")["a"] = 2
    third = member(first.cluster.members[0].address)
    eventually(lambda: first.cluster.is_safe)
    first.get_map("strict")["a"] = 3
    there[5] = {"b": 2, "c": 3}
    assert contents(third) == there
    end([*members, third])


def test_two_members_are_killed_at_once_under_load(eventually: Callable[[Callable[[], object]], None]) -> None:
    members = cluster(3, 2, eventually)
    first = members[0]
    there = fill(first)
    appended: list[int] = []
    counted: list[int] = []
    done = threading.Event()

    def use() -> None:
        items, counts = first.get_list("more"), first.get_map("counts")
        number = 0
        while not done.is_set():
            items.append(number)
            appended.append(number)
            counted.append(counts.compute("n", lambda old: (old or 0) + 1))
            number += 1

    user = threading.Thread(target=use)
    user.start()
    eventually(lambda: len(appended) > 20)
    kill([found.pid for found in first.cluster.members[1:]])
    before = len(appended)
    eventually(lambda: len(appended) > before + 20)
    done.set()
    user.join()
    assert contents(first) == there
    assert list(first.get_list("more")) == appended
    assert counted == list(range(1, len(counted) + 1))
    end(members)
