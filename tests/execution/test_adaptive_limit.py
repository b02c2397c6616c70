"""How much a processor is given at once: what takes a millisecond, however much of it is kept."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from shmjet import Batch, column, processors
from shmjet.aggregate_ops import AggregateOperation
from shmjet.core import DAG, Inbox, Processor, between, from_
from shmjet.core.edge import EdgeConfig
from shmjet.core.latency_policy import THROUGHPUT
from shmjet.execution import counters as words
from shmjet.execution.adaptive_limit import AdaptiveLimit
from shmjet.processors.general.fused_steps import Step, fused
from shmjet.processors.general.service_use import using_service
from shmjet.processors.general.services import ServiceFactory
from shmjet.processors.general.stateful import filter_stateful, flat_map_stateful, rolling_aggregate
from tests.execution.harness import LocalRun
from tests.execution.vertices import Collect, Emit
from tests.processors.driving import Driver, processors_of

ITEMS = 20_000
SHARES = (1.0, 0.5, 0.1, 0.01, 0.001, 0.0)
Keeps = Callable[[int], bool]


def keeping(share: float) -> Keeps:
    """Return a predicate that keeps a share of the ints, evenly spread."""
    every = round(1 / share) if share else ITEMS + 1
    return lambda n: n % every == every - 1


class ByRoom(Processor):
    """A bulk processor as a user writes it: it takes what there is room for."""

    def __init__(self, keep: Keeps) -> None:
        self._keep = keep

    def process(self, ordinal: int, inbox: Inbox) -> None:
        self.outbox.offer_all([n for n in inbox.take(self.outbox.room()) if self._keep(n)])


class OneByOne(Processor):
    """Takes an item, offers it, and leaves when it is refused."""

    def __init__(self, keep: Keeps) -> None:
        self._keep = keep

    def process(self, ordinal: int, inbox: Inbox) -> None:
        while inbox and (not self._keep(inbox.peek()) or self.outbox.offer(inbox.peek())):
            inbox.poll()


def service(kind: str, fn: Callable[..., Any]) -> Any:
    return using_service(kind, ServiceFactory(lambda: None), fn)


def latest(keep: Keeps) -> AggregateOperation[int, int, int | None]:
    """The latest item; without a result when it is not kept."""
    return AggregateOperation(lambda: 0, lambda _, n: n, export=lambda n: n if keep(n) else None)


DROPPING: dict[str, Callable[[Keeps], Any]] = {
    "filter": lambda keep: processors.filter_(keep),
    "map": lambda keep: processors.map_(lambda n: n if keep(n) else None),
    "flat_map": lambda keep: processors.flat_map(lambda n: [n] if keep(n) else []),
    "flat_map_lazy": lambda keep: processors.flat_map(lambda n: iter([n] if keep(n) else [])),
    "fused": lambda keep: fused([Step("filter", keep, "f"), Step("map", lambda n: n + 1, "m")]),
    "fused_flat_map": lambda keep: fused([Step("flat_map", lambda n: [n], "e"), Step("filter", keep, "f")]),
    "map_stateful": lambda keep: processors.map_stateful(list, lambda _, n: n if keep(n) else None),
    "filter_stateful": lambda keep: filter_stateful(list, lambda _, n: keep(n)),
    "flat_map_stateful": lambda keep: flat_map_stateful(list, lambda _, n: [n] if keep(n) else []),
    "rolling_aggregate": lambda keep: rolling_aggregate(latest(keep)),
    "distinct": lambda keep: processors.distinct(lambda n: n if keep(n) else 0),
    "map_using_service": lambda keep: service("map", lambda _, n: n if keep(n) else None),
    "filter_using_service": lambda keep: service("filter", lambda _, n: keep(n)),
    "flat_map_using_service": lambda keep: service("flat_map", lambda _, n: [n] if keep(n) else []),
    "of_one's_own": lambda keep: lambda: ByRoom(keep),
    "of_one's_own_item_by_item": lambda keep: lambda: OneByOne(keep),
}


class Calls:
    """Runs a vertex with a clock that goes on by `cost_ns` for each item taken, and keeps what each call took."""

    def __init__(self, dag: DAG, cost_ns: int) -> None:
        self.now = 0
        self.taken: list[int] = []
        run = LocalRun(dag, 1)
        (tasklet,) = [t for t in run.deployments[0].tasklets if t.context.vertex_name == "tested"]
        process = tasklet.processor.process
        for each in run.deployments[0].tasklets:  # the source, too: a slow one gives few items to a call
            each.clock = lambda: self.now

        def timed(ordinal: int, inbox: Inbox) -> None:
            before = len(inbox)
            process(ordinal, inbox)
            if ordinal == 0:
                self.taken.append(before - len(inbox))
                self.now += (before - len(inbox)) * cost_ns

        tasklet.processor.process = timed  # type: ignore[method-assign]
        self.output = [item for _, _, item in run.run().grid.get_list("out")]


def calls_of(supplier: Any, cost_ns: int, items: int = ITEMS, high_water_mark: int = 2048) -> Calls:
    """Run ints through a vertex."""
    dag = DAG()
    source = dag.new_vertex("source", lambda: Emit(lambda i, n: range(items)), 1)
    tested = dag.new_vertex("tested", supplier, 1)
    sink = dag.new_vertex("sink", Collect, 1)
    out = between(tested, sink).configure(EdgeConfig(high_water_mark=high_water_mark))
    return Calls(dag.edge(between(source, tested)).edge(out), cost_ns)


@pytest.mark.parametrize("name", DROPPING)
def test_a_processor_needs_no_more_calls_when_it_drops_nearly_everything(name: str) -> None:
    needed = {}
    for share in (1.0, 0.001, 0.0):
        keep = keeping(share)
        calls = calls_of(DROPPING[name](keep), 300)
        assert len(calls.output) == sum(map(keep, range(ITEMS))) + (name == "distinct" and share < 1)
        assert sum(calls.taken) == ITEMS
        needed[share] = len(calls.taken)
    assert needed[0.0] <= 1.2 * needed[1.0]
    assert needed[0.001] <= 1.2 * needed[1.0]


@pytest.mark.parametrize("share", SHARES)
@pytest.mark.parametrize("cost_ns", [300, 20_000, THROUGHPUT.call_ns, 20 * THROUGHPUT.call_ns])
def test_a_call_takes_about_a_millisecond_whatever_share_is_kept(share: float, cost_ns: int) -> None:
    items = min(ITEMS, 200 * THROUGHPUT.call_ns // cost_ns)
    calls = calls_of(DROPPING["filter"](keeping(share)), cost_ns, items)
    affordable = max(1, THROUGHPUT.call_ns // cost_ns)
    assert max(calls.taken) <= 1.1 * affordable
    assert len(calls.taken) <= 6 + 1.2 * items / min(affordable, 2048)


@pytest.mark.parametrize("drops", ["nothing", "everything"])
def test_an_outbox_with_little_room_bounds_what_is_emitted_and_not_what_is_dropped(drops: str) -> None:
    calls = calls_of(processors.filter_(lambda n: drops == "nothing"), 300, 2000, high_water_mark=8)
    if drops == "nothing":
        assert calls.output == list(range(2000))
        assert max(calls.taken) == 8
    else:
        assert max(calls.taken) > 500


def test_a_join_without_matches_needs_no_more_calls_than_one_where_all_match() -> None:
    needed = []
    for right in (range(ITEMS), [-1]):
        dag = DAG()
        left = dag.new_vertex("left", lambda: Emit(lambda i, n: range(ITEMS)), 1)
        side = dag.new_vertex("side", lambda right=right: Emit(lambda i, n: right), 1)
        tested = dag.new_vertex("tested", processors.hash_join((None, None), inner=True), 1)
        dag.edge(between(left, tested)).edge(from_(side).to(tested, 1).broadcast().priority(-1))
        dag.edge(between(tested, dag.new_vertex("sink", Collect, 1)))
        calls = Calls(dag, 300)
        assert len(calls.output) == (ITEMS if len(right) > 1 else 0)
        needed.append(len(calls.taken))
    assert needed[1] <= 1.2 * needed[0]


def test_map_batches_needs_no_more_calls_when_it_drops_every_batch() -> None:
    needed = []
    for keeps in (True, False):
        dag = DAG()
        source = dag.new_vertex("source", lambda: Emit(lambda i, n: [Batch({"n": [k]}) for k in range(1000)]), 1)
        tested = dag.new_vertex(
            "tested", processors.map_batches(lambda batch, keeps=keeps: batch if keeps else None), 1
        )
        dag.edge(between(source, tested)).edge(between(tested, dag.new_vertex("sink", Collect, 1)))
        needed.append(len(Calls(dag, 300).taken))
    assert needed[1] <= 1.2 * needed[0]


def test_a_short_call_with_one_item_does_not_make_the_next_ones_small() -> None:
    limit = AdaptiveLimit(THROUGHPUT.call_items, THROUGHPUT)
    for _ in range(6):
        limit.update(limit.value, limit.value * 100)
    limit.update(1, 9_000)
    assert limit.value == THROUGHPUT.call_items
    limit.update(1, 35_000)
    assert limit.value == 40, "a dear item does"


def test_items_that_become_dear_are_given_in_small_numbers_at_once() -> None:
    limit = AdaptiveLimit(THROUGHPUT.call_items, THROUGHPUT)
    for _ in range(6):
        limit.update(limit.value, limit.value * 100)
    assert limit.value == THROUGHPUT.call_items
    limit.update(THROUGHPUT.call_items, THROUGHPUT.call_items * THROUGHPUT.call_ns // 4)
    assert limit.value == 4
    limit.update(1, 50 * THROUGHPUT.call_ns)
    assert limit.value == 1


class Stopwatch:
    """A clock that a test reads `counters` by: each call of the processor takes a microsecond, other jobs a second."""

    def __init__(self, dag: DAG) -> None:
        self.now = 0
        run = LocalRun(dag, 1)
        (tasklet,) = [t for t in run.deployments[0].tasklets if t.context.vertex_name == "tested"]
        process, call = tasklet.processor.process, tasklet.call
        tasklet.clock = lambda: self.now
        self.lag: list[int] = []

        def short(ordinal: int, inbox: Inbox) -> None:
            process(ordinal, inbox)
            self.now += 1000

        def seldom() -> bool:
            self.now += 1_000_000_000
            progress = call()
            self.lag.append(tasklet.busy_ns - tasklet.counters.words[words.BUSY_NS])
            return progress

        tasklet.processor.process, tasklet.call = short, seldom  # type: ignore[method-assign]
        run.run()


@pytest.mark.parametrize("keeps", [True, False])
def test_a_processor_that_is_seldom_called_publishes_what_it_does_at_each_call(keeps: bool) -> None:
    dag = DAG()
    source = dag.new_vertex("source", lambda: Emit(lambda i, n: range(100_000)), 1)
    tested = dag.new_vertex("tested", processors.filter_(lambda n: keeps), 1)
    dag.edge(between(source, tested)).edge(between(tested, dag.new_vertex("sink", Collect, 1)))
    lag = Stopwatch(dag).lag
    assert len(lag) > 40
    assert not any(lag)


class Silent(Processor):
    """Answers False some times, each after a while, before it says that it is through."""

    def __init__(self, cost_ns: int) -> None:
        self.cost_ns = cost_ns
        self.left = 20
        self.clock = 0

    def _wait(self) -> bool:
        self.clock += self.cost_ns
        self.left -= 1
        return self.left <= 0

    def complete(self) -> bool:
        return self._wait()


class SilentAtTheEdge(Silent):
    def process(self, ordinal: int, inbox: Inbox) -> None:
        self.outbox.offer_all(inbox.take())

    def complete_edge(self, ordinal: int) -> bool:
        return self._wait()

    def complete(self) -> bool:
        return True


@pytest.mark.parametrize("kind", [Silent, SilentAtTheEdge])
@pytest.mark.parametrize("works", [True, False])
def test_a_worker_sleeps_between_looks_and_not_between_calls_that_work(kind: type[Silent], works: bool) -> None:
    dag = DAG()
    tested = dag.new_vertex("tested", lambda: kind(2 * THROUGHPUT.worked_ns if works else THROUGHPUT.worked_ns // 2), 1)
    if kind is SilentAtTheEdge:
        dag.edge(between(dag.new_vertex("source", lambda: Emit(lambda i, n: range(10)), 1), tested))
    dag.edge(between(tested, dag.new_vertex("sink", Collect, 1)))
    run = LocalRun(dag, 1)
    (tasklet,) = [t for t in run.deployments[0].tasklets if t.context.vertex_name == "tested"]
    tasklet.clock = lambda: tasklet.processor.clock if not tasklet.done else 0
    call, answers = tasklet.call, []

    def seen() -> bool:
        before = tasklet.processor.left
        progress = call()
        if 0 < tasklet.processor.left < before:
            answers.append((progress, tasklet.polling))
        return progress

    tasklet.call = seen  # type: ignore[method-assign]
    run.run()
    assert len(answers) == 19
    assert set(answers) == {(works, True)}


def test_rows_of_batches_go_on_while_the_processor_works_in_silence() -> None:
    class Small(SilentAtTheEdge):
        def complete_edge(self, ordinal: int) -> bool:
            if self.left == 1:
                self.arrived = sum(batch.num_rows for _, _, batch in self.context.grid.get_list("out"))
            return super().complete_edge(ordinal)

        def complete(self) -> bool:
            self.context.grid.get_list("arrived").append(self.arrived)
            return True

    dag = DAG()
    source = dag.new_vertex("source", lambda: Emit(lambda i, n: [Batch({"n": list(range(10))})]), 1)
    tested = dag.new_vertex("tested", lambda: Small(2 * THROUGHPUT.worked_ns), 1)
    dag.edge(between(source, tested))
    dag.edge(between(tested, dag.new_vertex("sink", Collect, 2)).partitioned(column("n")))
    run = LocalRun(dag, 1)
    (tasklet,) = [t for t in run.deployments[0].tasklets if t.context.vertex_name == "tested"]
    tasklet.clock = lambda: tasklet.processor.clock if not tasklet.done else 0
    assert run.run().grid.get_list("arrived") == [10]


def test_a_source_that_reads_what_it_may_and_keeps_nothing_is_allowed_more() -> None:
    limit = AdaptiveLimit(THROUGHPUT.call_items, THROUGHPUT)
    for _ in range(10):
        limit.update_without_items(limit.value * 100)
    assert limit.value == 256, "short calls may have found nothing: what items cost is not known"
    for _ in range(10):
        limit.update_without_items(limit.value * 2000)
    assert 500 <= limit.value <= 510, "calls that worked have read what they were allowed to"
    limit.update_without_items(100 * THROUGHPUT.call_ns)
    assert limit.value == 5
    limit.update_without_items(100)
    assert limit.value == 40


def test_items_whose_results_just_fit_are_taken_in_one_call() -> None:
    (processor,) = processors_of(fused([Step("flat_map", lambda n: [n], "e")]))
    driver = Driver(processor, room=64)
    for _ in range(30):
        driver.feed(range(64))
    before = driver.calls
    for _ in range(100):
        driver.feed(range(64))
    assert driver.calls == before + 2 * 100, "try_process() and process(), once for each batch"
    assert driver.complete() == [*range(64)] * 130
