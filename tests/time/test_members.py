"""Event time on two members: keyed edges go from host to host, and so do watermarks; the answers are those of one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from operator import itemgetter
from typing import Any

import pytest

import shmjet
from shmjet import JetConfig, JetInstance, Pipeline, aggregate_ops, session, sinks, sliding, sources, tumbling
from tests.time import interpreter
from tests.time.interpreter import Event

SECRET = "a secret of these tests"
COUNT = 900
STAMP, KEY, NUMBER = map(itemgetter, range(3))

pytestmark = pytest.mark.slow


def event(number: int) -> tuple[int, int, int]:
    """Return timestamp, key and number; the disorder is below the lag."""
    return 10 * number - number * 7919 % 200, number * number % 11, number


EVENTS = [Event(STAMP(item), item) for item in map(event, range(COUNT))]


@pytest.fixture(scope="module")
def jet() -> Iterator[JetInstance]:
    with shmjet.new_instance(JetConfig(cores=1, bind="127.0.0.1:0", secret=SECRET)) as first:
        addresses = [member.address for member in first.cluster.members]
        config = JetConfig(cores=1, bind="127.0.0.1:0", secret=SECRET, members=addresses)
        with shmjet.new_instance(config):
            yield first


def events(parallelism: int = 0) -> Any:
    """Return a stream of the events; with parallelism, each processor on each member has its share."""

    def create(context: Any) -> list[int]:
        return [context.global_index, context.total_parallelism] if parallelism else [0, 1]

    def fill(position: list[int], buffer: Any) -> None:
        at, step = position
        if at >= COUNT:
            buffer.close()
            return
        buffer.add_all([event(number) for number in range(at, min(COUNT, at + 7 * step), step)])
        position[0] += 7 * step

    built = sources.builder("events", create).fill_buffer_fn(fill)
    return (built.distributed(parallelism) if parallelism else built).stream()


@pytest.mark.parametrize("parallelism", [0, 2])
@pytest.mark.parametrize(
    ("window", "expected"),
    [
        (tumbling(0.5), interpreter.sliding(EVENTS, 500, None, KEY)),
        (sliding(1, 0.25), interpreter.sliding(EVENTS, 1000, 250, KEY)),
        (session(0.1), interpreter.sessions(EVENTS, 100, KEY)),
    ],
)
def test_windows(jet: JetInstance, window: Any, expected: interpreter.Found, parallelism: int) -> None:
    p, results, late = Pipeline(), sinks.collect("results"), sinks.collect("late")
    stage = p.read_from(events(parallelism)).with_timestamps(STAMP, 0.2).window(window).late_to(late)
    stage.grouping_key(KEY).aggregate(aggregate_ops.mapping(NUMBER, aggregate_ops.to_list())).write_to(results)
    jet.new_job(p).run(timeout=60)
    found = Counter((start, end, key, tuple(sorted(numbers))) for start, end, key, numbers, _ in results)
    wanted = Counter((*where, tuple(sorted(map(NUMBER, items)))) for where, items in expected.results.items())
    assert found == wanted
    assert list(late) == []


def test_joins_and_states(jet: JetInstance) -> None:
    p, pairs, lives = Pipeline(), sinks.collect("pairs"), sinks.collect("lives")
    stage, other = (p.read_from(events(parallelism)).with_timestamps(STAMP, 0.2) for parallelism in (2, 0))
    stage.join(other, KEY, KEY, lambda left, right: (NUMBER(left), NUMBER(right)), within=0.05).write_to(pairs)
    stage.grouping_key(KEY).map_stateful(
        list,
        lambda state, key, item: state.append(NUMBER(item)),
        ttl=0.1,
        on_evict=lambda state, key, watermark: (key, tuple(sorted(state))),
    ).write_to(lives)
    jet.new_job(p).run(timeout=60)
    found = interpreter.joined(EVENTS, EVENTS, 50, KEY).results
    assert Counter(pairs) == Counter((NUMBER(left), NUMBER(right)) for _, left, right in found)
    assert Counter(number for _, numbers in lives for number in numbers) == Counter(range(COUNT))
    assert all(event(number)[1] == key for key, numbers in lives for number in numbers)
