"""Observables of two members: written on both, observed by each, and by clients of the member that lacks them."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import shmjet
from shmjet import DAG, ClientConfig, JetConfig, JetInstance, MemberLostError, between, processors, sinks

SECRET = "a secret of these tests"
SOON_S = 60.0

pytestmark = pytest.mark.slow


@pytest.fixture
def members(eventually: Callable[..., None]) -> Iterator[list[JetInstance]]:
    """Two members; the first coordinates."""
    settings: dict[str, Any] = {"cores": 1, "bind": "127.0.0.1:0", "secret": SECRET}
    with shmjet.new_instance(JetConfig(**settings)) as first:
        seeds = (first.cluster.members[0].address,)
        with shmjet.new_instance(JetConfig(**settings, members=seeds)) as second:
            eventually(lambda: len(first.cluster.members) == 2)
            yield [first, second]


def writing(count: int, name: str) -> DAG:
    """Items that go to a sink on each member."""
    dag = DAG()
    source = dag.new_vertex("source", processors.read_items(range(count)))
    sink = dag.new_vertex("sink", sinks.observable(name).supplier)
    return dag.edge(between(source, sink).partitioned(lambda item: item).distributed())


def test_items_of_all_members_reach_observers_anywhere(members: list[JetInstance]) -> None:
    ended, heard = threading.Semaphore(0), list[int]()
    with shmjet.new_client([members[1].cluster.members[1].address], ClientConfig(secret=SECRET)) as client:
        futures = [jet.get_observable("x").to_future(sorted) for jet in (*members, client)]
        client.get_observable("x").add_observer(heard.append, on_complete=ended.release)
        client.new_job(writing(2000, "x")).run(SOON_S)
        for future in futures:
            assert future.result(SOON_S) == list(range(2000))
        assert ended.acquire(timeout=SOON_S)
        assert sorted(heard) == list(range(2000))
        client.get_observable("y").configure_capacity(10)
        with pytest.raises(shmjet.ConfigError, match="capacity of 10 items"):
            members[1].get_observable("y").configure_capacity(11)
        left = client.get_observable("y").add_observer(heard.append)
    members[1].new_job(writing(100, "y")).run(SOON_S)  # the client is gone, and nothing waits for it
    assert len(list(members[0].get_observable("y"))) == 10
    assert left is not None
    assert len(heard) == 2000


def test_items_are_lost_with_the_member_that_keeps_them_and_observing_goes_on(
    members: list[JetInstance], eventually: Callable[..., None]
) -> None:
    observable, errors, heard = members[1].get_observable("x"), list[BaseException](), list[int]()
    observable.add_observer(heard.append, errors.append)
    items = iter(observable)
    members[1].new_job(writing(10, "x")).run(SOON_S)
    assert sorted(next(items) for _ in range(10)) == list(range(10))
    first = next(member for member in members[0].cluster.members if member.is_coordinator)
    os.kill(first.pid, signal.SIGKILL)
    eventually(lambda: len(errors) == 1)
    assert isinstance(errors[0], MemberLostError)
    members[1].new_job(writing(5, "x")).run(SOON_S)
    eventually(lambda: len(heard) == 15)
    assert sorted(members[1].get_observable("x")) == list(range(5))
