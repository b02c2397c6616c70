"""Maps with settings of their own, as an instance, its workers and a client that brings no code see them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import shmjet
from shmjet import (
    ClientConfig,
    ConfigError,
    JetConfig,
    JetInstance,
    JobConfig,
    JobFailedError,
    JobStatus,
    MapConfig,
    Pipeline,
    ProcessingGuarantee,
    aggregate_ops,
    new_client,
    new_instance,
    sinks,
    sources,
    tumbling,
)
from shmjet.grid import GridError, GridFullError

Eventually = Callable[..., None]

pytestmark = pytest.mark.slow

JOURNAL = MapConfig(journal_capacity=100_000)
MAPS = {
    "journal-*": JOURNAL,
    "full-*": MapConfig(max_bytes=20_000),
    "recent": MapConfig(max_bytes=20_000, eviction="lru"),
}


@pytest.fixture(scope="module")
def member() -> Iterator[JetInstance]:
    config = JetConfig(cores=1, bind="127.0.0.1:0", secret="hush", member_secret="members", allow_code=False, maps=MAPS)
    with new_instance(config) as jet:
        yield jet


@pytest.fixture
def client(member: JetInstance) -> Iterator[JetInstance]:
    with new_client([member.cluster.members[0].address], ClientConfig(secret="hush")) as jet:
        yield jet


def test_a_client_without_code_has_all_operations(member: JetInstance, client: JetInstance) -> None:
    jet = client.get_map("m")
    assert jet.put("a", 1, ttl=1000) is None
    assert jet.compute("a", lambda old: old + 1) == 2
    assert (jet.replace("a", 3), jet.replace("b", 3)) == (2, None)
    assert jet.setdefault("c", 4) == 4
    assert member.get_map("m") == {"a": 3, "c": 4}
    assert jet.popitem()[0] in ("a", "c")
    assert jet.compute(next(iter(jet)), lambda _: None) is None
    assert len(jet) == 0
    with pytest.raises(shmjet.AuthenticationError, match="takes no code"):
        jet.compute("a", lambda _: [1])
    assert jet.get("a") is None


def test_limits_hold_for_clients(client: JetInstance) -> None:
    full, recent = client.get_map("full-1"), client.get_map("recent")
    for key in range(19):
        full[key] = recent[key] = "x" * 1000
    with pytest.raises(GridFullError, match=r"map 'full-1'.*limit is 20000"):
        full[19] = "x" * 1000
    assert recent[0] == "x" * 1000
    recent[19] = recent[20] = "x" * 1000
    assert 0 in recent
    assert 1 not in recent
    full.destroy()
    recent.destroy()


def test_a_job_that_fills_a_map_says_so() -> None:
    with new_instance(JetConfig(cores=1, maps=MAPS)) as jet:
        p = Pipeline()
        p.read_from(sources.items([(number, "x" * 1000) for number in range(100)])).write_to(sinks.map("full-2"))
        with pytest.raises(JobFailedError, match=r"map 'full-2'.*MapConfig.max_bytes") as failed:
            jet.new_job(p).run(60)
        assert isinstance(failed.value.cause, GridFullError)
        p = Pipeline()
        p.read_from(sources.items([(number, "x" * 1000) for number in range(100)])).write_to(sinks.map("recent"))
        jet.new_job(p).run(60)
        assert 15 < len(jet.get_map("recent")) < 20


def test_a_time_of_its_own_that_a_client_sends_is_refused(client: JetInstance) -> None:
    assert issubclass(GridFullError, GridError)
    with pytest.raises(ConfigError, match="ttl"):
        client.get_map("m").put("a", 1, ttl=0)


def test_a_client_reads_the_journal_and_listens(
    member: JetInstance, client: JetInstance, eventually: Eventually
) -> None:
    here, there = member.get_map("journal-1"), client.get_map("journal-1")
    events, heard = there.journal(), []
    remove = there.add_listener(heard.append, key=5)
    here.put_all((number, number) for number in range(20))
    assert sorted(next(events).key for _ in range(20)) == list(range(20))
    eventually(lambda: [event.new for event in heard] == [5])
    remove()
    with pytest.raises(ConfigError, match="map 'plain' has no journal"):
        client.get_map("plain").journal()


@pytest.fixture
def two_workers() -> Iterator[JetInstance]:
    with new_instance(JetConfig(cores=2, maps=MAPS)) as jet:
        yield jet


def test_a_listener_that_is_not_removed_ends_with_the_instance(eventually: Eventually) -> None:
    heard: list[Any] = []
    before = set(threading.enumerate())
    with new_instance(JetConfig(cores=1, maps=MAPS)) as jet:
        jet.get_map("journal-1").add_listener(heard.append)
        jet.get_map("journal-1")["k"] = 1
        eventually(lambda: len(heard) == 1)
    eventually(lambda: set(threading.enumerate()) <= before)


def test_a_job_counts_the_changes_of_a_map_in_windows(two_workers: JetInstance, eventually: Eventually) -> None:
    jet = two_workers.get_map("journal-1")
    for key in range(1000):
        jet[key] = key * 10
    p = Pipeline()
    changes = p.read_from(sources.map_journal("journal-1")).with_timestamps(lambda event: event.new)
    counts = changes.grouping_key(lambda event: event.key % 2).window(tumbling(1)).aggregate(aggregate_ops.counting())
    counts.write_to(sinks.list("counts"))
    job = two_workers.new_job(p)
    job.execute()
    jet[10_000] = 60_000
    results = two_workers.get_list("counts")
    eventually(lambda: len(results) >= 20)
    job.cancel()
    assert sorted((found.start, found.key, found.result) for found in results) == [
        (start, key, 50) for start in range(0, 10_000, 1000) for key in (0, 1)
    ]


def test_a_restarted_job_reads_each_change_once(two_workers: JetInstance, eventually: Eventually) -> None:
    jet = two_workers.get_map("journal-1")
    p = Pipeline()
    changes = p.read_from(sources.map_journal("journal-1")).without_timestamps()
    changes.map(lambda event: (event.key, event.new)).write_to(sinks.list("seen"))
    guarantee = ProcessingGuarantee.EXACTLY_ONCE
    job = two_workers.new_job(p, JobConfig(processing_guarantee=guarantee, snapshot_interval=0.05))
    job.execute()
    seen = two_workers.get_list("seen")
    for number in range(3):
        jet.put_all((key, number) for key in range(500))
        eventually(lambda number=number: len(seen) > number * 500)
        job.restart(graceful=number == 1)
        eventually(lambda: job.status is JobStatus.RUNNING)
    eventually(lambda: len(seen) >= 1500)
    job.cancel()
    assert sorted(seen) == sorted((key, number) for number in range(3) for key in range(500))
