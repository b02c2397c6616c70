"""Joins on a real instance: what lies alike already crosses no worker, which the metrics of the edges show."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from operator import itemgetter
from typing import Any

import pytest

import shmjet
from shmjet import JetConfig, JetInstance, sources
from shmjet.pipeline import Pipeline, SinkDef, SourceDef, Table
from shmjet.processors import noop, read_map, write_list
from tests.pipeline.partitioned import partitioned, scattered

ORDERS = [(i % 700, f"order {i}") for i in range(5000)]
USERS = [(i, f"user {i}") for i in range(500)]
WANTED = Counter((user, order) for user, order in ORDERS if user < 500)


def user_of(order: tuple[int, str]) -> int:
    return order[0]


def key_and_text(order: tuple[int, str], user: tuple[int, str]) -> tuple[int, str]:
    assert order[0] == user[0]
    return order


@pytest.fixture(scope="module", params=[271, 5], ids=["271 partitions", "5 partitions"])
def jet(request: pytest.FixtureRequest) -> Iterator[JetInstance]:
    with shmjet.new_instance(JetConfig(cores=2, partition_count=request.param)) as instance:
        yield instance


Moved = dict[str, int]
Run = Callable[[Pipeline], tuple[Counter[Any], Moved]]


@pytest.fixture
def run(jet: JetInstance) -> Iterator[Run]:
    """Runs a pipeline that writes to the list "out"; gives what is there, and the bytes of each source's edge."""

    def run_it(pipeline: Pipeline) -> tuple[Counter[Any], Moved]:
        job = jet.new_job(pipeline)
        job.run(60)
        moved = {edge.source: edge.ring_bytes for edge in job.metrics().edges if edge.destination != "out"}
        return Counter(jet.get_list("out")), moved

    yield run_it
    jet.get_list("out").clear()


def out() -> SinkDef[Any]:
    return SinkDef("out", write_list("out"))


def test_two_sources_that_are_partitioned_alike_are_joined_without_moving_a_byte(run: Run) -> None:
    p = Pipeline()
    orders = p.read_from(partitioned("orders", ORDERS, 16, user_of))
    users = p.read_from(partitioned("users", USERS, 16, itemgetter(0)))
    orders.filter(bool).join(users, user_of, lambda user: user[0], key_and_text).write_to(out())
    found, moved = run(p)
    assert found == WANTED
    assert moved == {"orders": 0, "filter": 0, "users": 0}


def test_only_the_side_that_lies_otherwise_is_moved(run: Run) -> None:
    p = Pipeline()
    orders = p.read_from(partitioned("orders", ORDERS, 16, user_of))
    orders.join(p.read_from(scattered("users", USERS)), user_of, itemgetter(0), key_and_text).write_to(out())
    found, moved = run(p)
    assert found == WANTED
    assert moved["orders"] == 0
    assert moved["users"] > 1000


def test_streams_made_by_partition_by_move_once_and_never_again(run: Run) -> None:
    p = Pipeline()
    orders = p.read_from(scattered("orders", ORDERS)).partition_by(user_of).filter(bool)
    users = p.read_from(scattered("users", USERS)).partition_by(itemgetter(0)).filter(bool)
    orders.join(users, user_of, itemgetter(0), key_and_text).write_to(out())
    found, moved = run(p)
    assert found == WANTED
    assert (moved["filter"], moved["filter-2"]) == (0, 0)
    assert min(moved["orders"], moved["users"]) > 1000


def test_a_table_with_side_inputs_that_lie_alike_is_looked_up_without_moving_a_byte(run: Run) -> None:
    table = Table("users", side_inputs=(partitioned("users", USERS, 16, itemgetter(0)),))
    p = Pipeline()
    orders = p.read_from(partitioned("orders", ORDERS, 16, user_of))
    orders.join_table(table, user_of, lambda order, user: order if user else None).write_to(out())
    found, moved = run(p)
    assert found == WANTED
    assert moved == {"orders": 0, "users": 0}


def test_maps_are_joined_without_moving_a_byte(jet: JetInstance, run: Run) -> None:
    """A map's partitions are those of the instance, and its processors own them as those of any vertex do."""
    jet.get_map("users").put_all(USERS)
    jet.get_map("ages").put_all((user, user % 90) for user, _ in USERS)
    count = jet.config.partition_count
    p = Pipeline()
    users, ages = (p.read_from(SourceDef(name, read_map(name), -1, count, itemgetter(0))) for name in ("users", "ages"))
    users.join(ages, itemgetter(0), itemgetter(0), lambda user, age: (user[1], age[1])).write_to(out())
    found, moved = run(p)
    assert found == Counter((name, user % 90) for user, name in USERS)
    assert moved == {"users": 0, "ages": 0}


def test_public_sources_lie_as_they_say(jet: JetInstance, run: Run) -> None:
    jet.get_map("people").put_all(USERS)
    count = jet.config.partition_count
    p = Pipeline()
    orders = p.read_from(sources.items(ORDERS, partitions=count, key=user_of))
    users = p.read_from(sources.map("people", partitions=count))
    orders.join(users, user_of, lambda entry: entry[0], key_and_text).write_to(out())
    found, moved = run(p)
    assert found == WANTED
    assert set(moved.values()) == {0}


def test_a_map_with_another_number_of_partitions_than_its_source_says_is_joined_rightly(
    jet: JetInstance, run: Run
) -> None:
    jet.get_map("people").put_all(USERS)
    p = Pipeline()
    orders = p.read_from(sources.items(ORDERS, partitions=64, key=user_of))
    users = p.read_from(sources.map("people", partitions=64))
    orders.join(users, user_of, itemgetter(0), key_and_text).write_to(out())
    assert run(p)[0] == WANTED


def test_a_count_that_happens_to_be_the_usual_one_lies_as_it_says_on_any_instance(run: Run) -> None:
    p = Pipeline()
    orders = p.read_from(partitioned("orders", ORDERS, 271, user_of))
    users = p.read_from(scattered("users", USERS)).distinct(itemgetter(0))
    orders.join(users, user_of, itemgetter(0), key_and_text).write_to(out())
    found, moved = run(p)
    assert found == WANTED
    assert moved["orders"] == 0


def test_what_is_joined_stays_in_place_with_stealing_workers(run: Run) -> None:
    """One processor has all the work: the others may not take it, for its partitions are theirs to lose."""
    p = Pipeline()
    skewed = [(7, f"order {i}") for i in range(20_000)]
    orders = p.read_from(partitioned("orders", skewed, 16, user_of))
    users = p.read_from(partitioned("users", USERS, 16, user_of))
    orders.join(users, user_of, user_of, key_and_text).write_to(SinkDef("nothing", noop()))
    _, moved = run(p)
    assert (moved["orders"], moved["users"]) == (0, 0)
