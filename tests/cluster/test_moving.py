"""Maps and lists on members that come and leave: each partition on one of them, and nothing lost."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

import shmjet
from shmjet import JetConfig, JetInstance, MapConfig, Pipeline, sinks, sources

COUNT = 31
SECRET = "a secret of these tests"
ENTRIES = {number: str(number) for number in range(2000)}

pytestmark = pytest.mark.slow


def member(*addresses: str) -> JetInstance:
    maps = {"journal": MapConfig(journal_capacity=1000)}
    return shmjet.new_instance(
        JetConfig(cores=1, bind="127.0.0.1:0", members=addresses, secret=SECRET, partition_count=COUNT, maps=maps)
    )


def shares(jet: JetInstance) -> list[int]:
    return sorted(Counter(row[0] for row in jet.cluster.partition_table()).values())


def contents(jet: JetInstance) -> list[Any]:
    entries, large, journal = jet.get_map("entries"), jet.get_map("large"), jet.get_map("journal")
    return [dict(entries.items()), len(entries), list(jet.get_list("items")), large["x"], dict(journal)]


def test_what_members_have_goes_to_others_when_members_come_and_leave(
    eventually: Callable[[Callable[[], object]], None],
) -> None:
    with member() as first:
        large = os.urandom(200_000)
        first.get_map("entries").put_all(ENTRIES)
        first.get_list("items").extend(range(3000))
        first.get_map("large")["x"] = large
        journal = first.get_map("journal")
        journal.update({"a": 1, "b": 2})
        events = iter(journal.journal())
        assert {next(events).key, next(events).key} == {"a", "b"}
        there = [ENTRIES, len(ENTRIES), list(range(3000)), large, {"a": 1, "b": 2}]
        (address,) = [found.address for found in first.cluster.members]
        with member(address) as second:
            eventually(lambda: shares(first) == [COUNT // 2, COUNT - COUNT // 2])
            assert contents(first) == contents(second) == there
            parts = [set(jet.get_map("entries").local_partitions) for jet in (first, second)]
            assert parts[0] | parts[1] == set(range(COUNT))
            assert not parts[0] & parts[1]
            whole = [jet.get_map("journal").local_partitions for jet in (first, second)]
            assert sorted(map(len, whole)) == [0, COUNT], "all of it lies on one of them"
            pipeline = Pipeline()
            pipeline.read_from(sources.map("entries")).map(lambda pair: (pair[0], pair[1] + "!")).write_to(
                sinks.map("copied")
            )
            first.new_job(pipeline).run(60)
            assert dict(second.get_map("copied")) == {key: value + "!" for key, value in ENTRIES.items()}
            second.get_map("journal")["c"] = 3
            assert next(events).key == "c"
        eventually(lambda: shares(first) == [COUNT])
        there[-1] = {"a": 1, "b": 2, "c": 3}
        assert contents(first) == there
        assert len(first.get_map("copied")) == len(ENTRIES)
