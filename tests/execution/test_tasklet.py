"""The tasklet's state machine with a hand-driven clock: how much it asks of a processor, and when."""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from typing import Any

import pytest

from shmjet.core import (
    DAG,
    AbstractProcessor,
    EdgeConfig,
    Inbox,
    OutboxError,
    Processor,
    ProcessorError,
    Watermark,
    between,
    from_,
)
from shmjet.core.latency_policy import THROUGHPUT
from shmjet.execution.adaptive_limit import AdaptiveLimit
from shmjet.execution.collect import Reading
from shmjet.execution.tasklet import State
from tests.execution.harness import LocalRun
from tests.execution.vertices import Collect, Emit, Pass


def two_vertices(source: Any, sink: Any, parallelism: int = 1) -> DAG:
    dag = DAG()
    return dag.edge(between(dag.new_vertex("source", source, 1), dag.new_vertex("sink", sink, parallelism)))


class Clock:
    """Nanoseconds that pass only when told to."""

    def __init__(self) -> None:
        self.now = 0

    def __call__(self) -> int:
        return self.now


def test_the_limit_follows_what_items_cost_and_starts_at_one() -> None:
    limit = AdaptiveLimit(10_000, THROUGHPUT)
    assert limit.value == 1
    limit.update(1, 100)
    assert limit.value == 8, "it grows eightfold at most"
    for _ in range(10):
        limit.update(limit.value, limit.value * 100)
    assert limit.value == 10_000
    limit.update(100, 100 * 50 * THROUGHPUT.call_ns)
    assert limit.value == 1, "an item that costs 50 ms is handed over alone"


def test_a_slow_consumer_gets_one_item_at_a_time_and_a_fast_one_many() -> None:
    sizes: dict[int, list[int]] = {10 * THROUGHPUT.call_ns: [], 1000: []}
    for cost in sizes:
        clock = Clock()
        run = LocalRun(two_vertices(lambda: Emit(lambda i, n: range(2000)), Collect), 1)
        sink = run.deployments[0].tasklets[1]
        for each in run.deployments[0].tasklets:  # the source, too: a slow one gives few items to a call
            each.clock = clock

        def spy(ordinal: int, inbox: Any, sink: Any = sink, clock: Any = clock, cost: int = cost) -> None:
            sizes[cost].append(len(inbox))
            clock.now += len(inbox.take()) * cost

        sink.processor.process = spy
        run.run()
    slow, fast = sizes.values()
    assert set(slow) == {1}
    assert max(fast) >= 500
    assert len(fast) < 20


def test_a_source_that_is_slow_is_refused_after_the_first_item_and_a_fast_one_is_not() -> None:
    for cost, expected in [(60_000_000, 1), (10, 1000)]:
        clock = Clock()
        calls: list[int] = []

        class Source(Processor):
            left = 1000

            def complete(self) -> bool:
                raise AssertionError("replaced below")

        run = LocalRun(two_vertices(Source, Collect), 1)
        tasklet = run.deployments[0].tasklets[0]
        tasklet.clock = clock

        def complete(
            source: Any = tasklet.processor, clock: Any = clock, cost: int = cost, calls: list[int] = calls
        ) -> bool:
            calls.append(0)
            while source.left:
                clock.now += cost
                if not source.outbox.offer(source.left):
                    return False
                source.left -= 1
                calls[-1] += 1
            return True

        tasklet.processor.complete = complete
        run.run()
        assert max(calls) == expected
        assert len(run.grid.get_list("out")) == 1000


def test_a_processor_that_claims_to_be_through_with_a_refused_item_is_told_so() -> None:
    class Careless(Processor):
        def complete(self) -> bool:
            for i in range(5000):
                if not self.outbox.offer(i):
                    break
            return True

    with pytest.raises(OutboxError, match="was refused by the outbox and never offered again"):
        LocalRun(two_vertices(Careless, Collect), 1).run()


class Forgetful(AbstractProcessor):
    """Forgets to answer in one callback."""

    def __init__(self, callback: str) -> None:
        setattr(self, callback, self._silent)

    def _silent(self, *arguments: Any) -> None:
        pass

    def try_process_any(self, ordinal: int, item: Any) -> bool:
        return True

    def try_process(self) -> bool:
        return True


@pytest.mark.parametrize("callback", ["complete", "complete_edge", "try_process", "try_process_watermark"])
def test_a_callback_that_forgets_its_answer_is_told_so_and_not_called_for_ever(callback: str) -> None:
    run = LocalRun(two_vertices(lambda: Emit(lambda i, n: [1, Watermark(5)]), lambda: Forgetful(callback)), 1)
    with pytest.raises(ProcessorError, match=rf"{callback}\(\) of Forgetful returned None; return True when"):
        run.run()


@pytest.mark.parametrize("work", [None, (1,), (0.5, 1), (1 << 63, 1), "ab"])
def test_progress_that_is_no_pair_of_ints_is_told_so(work: Any) -> None:
    class Source(Processor):
        def progress(self) -> Any:
            return work

    run = LocalRun(two_vertices(Source, Collect), 1)
    with pytest.raises(
        ProcessorError, match=rf"progress\(\) of Source returned {re.escape(repr(work))}; return the pair"
    ):
        run.run()


def test_an_unknown_unit_of_work_is_told_so() -> None:
    class Source(Processor):
        work_unit = "lines"

    with pytest.raises(ProcessorError, match="work_unit of Source is 'lines'; use 'items' or 'bytes'"):
        LocalRun(two_vertices(Source, Collect), 1).run()


@pytest.mark.parametrize("error", [ValueError, SystemExit, asyncio.CancelledError, GeneratorExit, KeyboardInterrupt])
def test_what_close_raises_is_logged_and_fails_nothing(
    error: type[BaseException], caplog: pytest.LogCaptureFixture
) -> None:
    class Source(Emit):
        def close(self) -> None:
            raise error("in close")

    run = LocalRun(two_vertices(lambda: Source(lambda i, n: [1, 2]), Collect), 1).run()
    assert [item for _, _, item in run.grid.get_list("out")] == [1, 2]
    messages = [record.getMessage() for record in caplog.records]
    caplog.clear()  # the records' tracebacks hold the run
    assert messages == ["close() of vertex 'source' failed"]


def test_try_process_is_called_before_every_batch_and_can_hold_it_back() -> None:
    class Early(AbstractProcessor):
        calls = 0

        def try_process(self) -> bool:
            self.calls += 1
            return self.calls % 3 == 0

        def try_process_any(self, ordinal: int, item: Any) -> bool:
            assert self.calls % 3 == 0, "an item came although try_process() had said no"
            return self.try_emit(item)

    dag = DAG()
    source = dag.new_vertex("source", lambda: Emit(lambda i, n: range(100)), 1)
    early = dag.new_vertex("early", Early, 1)
    dag.edge(between(source, early)).edge(between(early, dag.new_vertex("sink", Collect, 1)))
    assert len(LocalRun(dag, 1).run().grid.get_list("out")) == 100


def test_complete_edge_is_called_once_per_edge_and_until_it_says_true() -> None:
    calls: list[int] = []

    class Ends(Collect):
        def complete_edge(self, ordinal: int) -> bool:
            self.context.grid.get_list("edges").append(ordinal)
            return len(self.context.grid.get_list("edges")) % 2 == 0

    run = LocalRun(two_vertices(lambda: Emit(lambda i, n: []), Ends), 1).run()
    assert run.grid.get_list("edges") == [0, 0]
    assert calls == []


def test_a_watermark_is_offered_again_until_it_is_taken() -> None:
    class Reluctant(Collect):
        asked = 0

        def try_process_watermark(self, watermark: Watermark) -> bool:
            self.asked += 1
            return self.asked % 3 == 0 and super().try_process_watermark(watermark)

    run = LocalRun(two_vertices(lambda: Emit(lambda i, n: [1, Watermark(5), 2, Watermark(9)]), Reluctant), 1).run()
    assert [item for _, _, item in run.grid.get_list("out")] == [1, Watermark(5), 2, Watermark(9)]


def test_a_processor_with_hundreds_of_edges_publishes_its_numbers_rarely() -> None:
    edges, clock, published = 400, Clock(), []
    dag = DAG()
    source = dag.new_vertex("source", lambda: Emit(lambda i, n: [1]), 1)
    sink = dag.new_vertex("sink", Collect, 1)
    for i in range(edges):
        dag.edge(from_(source, i).to(sink, i))
    run = LocalRun(dag, 1)
    tasklet = run.deployments[0].tasklets[1]
    publish = tasklet.meter.publish

    def spy(*arguments: Any) -> None:
        published.append(clock.now)
        publish(*arguments)

    def ticks() -> int:
        clock.now += 100_000
        return clock.now

    tasklet.clock, tasklet.meter.publish = ticks, spy
    run.run()
    assert len(run.grid.get_list("out")) == edges
    calls = tasklet.meter.calls
    assert calls >= 2 * edges
    assert len(published) < calls / 20, "each costs something for every edge"


def test_what_waits_on_a_plain_edge_does_not_wake_a_processor_that_waits_for_room() -> None:
    dag = DAG()
    narrow = EdgeConfig(queue_size=1, high_water_mark=1)
    left = dag.new_vertex("left", lambda: Emit(lambda i, n: range(100)), 1)
    right = dag.new_vertex("right", lambda: Emit(lambda i, n: range(100)), 1)
    join, sink = dag.new_vertex("join", Pass, 1), dag.new_vertex("sink", Collect, 1)
    dag.edge(from_(left).to(join, 0).configure(narrow)).edge(from_(right).to(join, 1).buffered().configure(narrow))
    dag.edge(between(join, sink).configure(narrow))
    run = LocalRun(dag, 1, force_rings=True)
    tasklets = {tasklet.context.vertex_name: tasklet for tasklet in run.deployments[0].tasklets}
    for _ in range(20):
        tasklets["left"].call()
        tasklets["join"].call()
    assert not tasklets["join"].call()
    assert not tasklets["join"].poller.ready(), "its worker would not sleep"
    tasklets["right"].call()
    assert tasklets["join"].poller.ready(), "a buffered edge is emptied at any time"
    assert len(run.run().grid.get_list("out")) == 200


class Hesitant(AbstractProcessor):
    """Answers False twice in each callback, without emitting anything, before it does its work."""

    def __init__(self, next_call: float | None, has_nullary: bool) -> None:
        self.next_call = next_call
        self._asked: Counter[object] = Counter()
        if not has_nullary:
            self.__class__ = HesitantWithoutNullary

    def _refuses(self, *what: object) -> bool:
        self._asked[what] += 1
        return self._asked[what] % 3 > 0

    def process(self, ordinal: int, inbox: Inbox) -> None:
        while inbox:
            if self._refuses("process", inbox.peek()) or not self.outbox.offer(inbox.peek()):
                return
            inbox.remove()

    def try_process(self) -> bool:
        return not self._refuses("try_process")

    def try_process_watermark(self, watermark: Watermark) -> bool:
        return not self._refuses("watermark") and super().try_process_watermark(watermark)

    def complete_edge(self, ordinal: int) -> bool:
        return not self._refuses("edge", ordinal) and self.outbox.offer("edge")

    def complete(self) -> bool:
        return not self._refuses("complete") and self.outbox.offer("end")


class HesitantWithoutNullary(Hesitant):
    """The same without work that no item asks for."""

    try_process = Processor.try_process


@pytest.mark.parametrize("cooperative", [True, False], ids=["worker", "carrier"])
@pytest.mark.parametrize("force_rings", [False, True], ids=["lanes", "rings"])
@pytest.mark.parametrize("has_nullary", [True, False], ids=["nullary", "plain"])
@pytest.mark.parametrize("next_call", [None, 0, 0.0005], ids=["soon", "at once", "timer"])
def test_a_callback_that_answers_false_is_called_again_though_nothing_else_happens(
    next_call: float | None, has_nullary: bool, force_rings: bool, cooperative: bool
) -> None:
    def made() -> Hesitant:
        processor = Hesitant(next_call, has_nullary)
        processor.is_cooperative = cooperative
        return processor

    made.is_cooperative = cooperative  # type: ignore[attr-defined]
    items = [1, Watermark(5), 2, Watermark(9), 3]
    dag = DAG()
    source = dag.new_vertex("source", lambda: Emit(lambda i, n: items), 1)
    hesitant = dag.new_vertex("hesitant", made, 1)
    dag.edge(between(source, hesitant)).edge(between(hesitant, dag.new_vertex("sink", Collect, 1)))
    run = LocalRun(dag, 2, force_rings=force_rings).run()
    assert [item for _, _, item in run.grid.get_list("out")] == [*items, "edge", "end"]


def test_counters_say_what_went_through() -> None:
    dag = DAG()
    source = dag.new_vertex("source", lambda: Emit(lambda i, n: [*range(1000), Watermark(7)]), 2)
    middle = dag.new_vertex("middle", Pass, 2)
    dag.edge(between(source, middle)).edge(between(middle, dag.new_vertex("sink", Collect, 1)).broadcast())
    run = LocalRun(dag, 2).run()
    metrics = Reading.take(run.plan, run.layout, run.arena, run.control, (0, None)).metrics(1.0, 2.0)
    vertices = metrics.vertices
    assert vertices["middle"].received_count == 2000
    assert vertices["sink"].received_count == 2000
    assert [p.coalesced_wm for p in vertices["sink"].processors] == [7]
    assert [p.top_observed_wm for p in vertices["middle"].processors] == [7, 7]
    assert all(p.calls > 0 and p.busy_ns > 0 for p in vertices["middle"].processors)
    assert [(e.source, e.received_count, e.queues_size) for e in metrics.edges] == [
        ("source", 2000, 0),
        ("middle", 2000, 0),
    ]
    assert [(w.index, w.core) for w in metrics.workers] == [(0, 0), (1, None)]
    assert (metrics.execution_start_time, metrics.execution_completion_time) == (1.0, 2.0)
    assert all(t.state is State.END for d in run.deployments for t in d.tasklets)
