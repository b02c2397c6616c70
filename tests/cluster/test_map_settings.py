"""Maps with settings of their own, as an instance, its workers and a client that brings no code see them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import shmjet
from shmjet import (
    ClientConfig,
    ConfigError,
    JetConfig,
    JetInstance,
    JobFailedError,
    MapConfig,
    Pipeline,
    new_client,
    new_instance,
    sinks,
    sources,
)
from shmjet.grid import GridError, GridFullError

pytestmark = pytest.mark.slow

MAPS = {"full-*": MapConfig(max_bytes=20_000), "recent": MapConfig(max_bytes=20_000, eviction="lru")}


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


def test_a_member_refuses_backups_that_it_does_not_keep() -> None:
    with pytest.raises(ConfigError, match=r"maps\['m'\].backup_count"):
        new_instance(JetConfig(cores=1, bind="127.0.0.1:0", secret="s", maps={"m": MapConfig(backup_count=1)}))


def test_a_time_of_its_own_that_a_client_sends_is_refused(client: JetInstance) -> None:
    assert issubclass(GridFullError, GridError)
    with pytest.raises(ConfigError, match="ttl"):
        client.get_map("m").put("a", 1, ttl=0)
