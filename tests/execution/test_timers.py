"""`Processor.next_call`: when the engine calls again where nothing new has come."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Any

import pytest

from shmjet import DAG, JetConfig, JobFailedError, Processor, Watermark, between, new_instance, processors
from shmjet.core.inbox import Inbox
from shmjet.execution.runnable import due
from shmjet.execution.tasklet import ProcessorTasklet
from tests.execution.harness import LocalRun
from tests.execution.vertices import Collect, Emit

MS = 1_000_000


class Timed(Processor):
    """Notes its calls."""

    def __init__(self, next_call: Any) -> None:
        self.next_call = next_call
        self.calls: list[str] = []

    def try_process(self) -> bool:
        self.calls.append("try")
        return True

    def process(self, ordinal: int, inbox: Inbox) -> None:
        self.calls.append("process")
        inbox.clear()


class Refusing(Timed):
    """Answers False until it is told that it may go on."""

    def __init__(self, next_call: Any, callback: str) -> None:
        super().__init__(next_call)
        self.may_go_on = False
        setattr(self, callback, self._answer)

    try_process = Processor.try_process

    def _answer(self, *_: object) -> bool:
        self.calls.append("asked")
        return self.may_go_on


class Clock:
    """A clock in the test's hand."""

    def __init__(self) -> None:
        self.now = 1_000 * MS

    def __call__(self) -> int:
        return self.now


def driven(make: Callable[[], Processor], items: list[Any]) -> tuple[LocalRun, Any, Any, Clock]:
    """Return a run, its source's and the tested processor's tasklet, and the clock of the second."""
    dag = DAG()
    source, tested = (
        dag.new_vertex("source", lambda: Emit(lambda i, n: iter(items)), 1),
        dag.new_vertex("tested", make, 1),
    )
    dag.edge(between(source, tested)).edge(between(tested, dag.new_vertex("sink", Collect, 1)))
    run = LocalRun(dag, 1)
    tasklets = {tasklet.context.vertex_name: tasklet for tasklet in run.deployments[0].tasklets}
    clock = Clock()
    tasklets["tested"].clock = clock
    return run, tasklets["source"], tasklets["tested"], clock


def run_until_idle(tasklet: ProcessorTasklet) -> None:
    """Call a tasklet as often as an engine would that has nothing else to do."""
    while not tasklet.done and tasklet.call():
        pass


@pytest.mark.parametrize("callback", ["complete", "complete_edge", "try_process_watermark"])
def test_a_callback_that_answered_false_is_called_when_its_timer_runs_out(callback: str) -> None:
    def make() -> Processor:
        return Refusing(0.5, callback)

    run, source, tested, clock = driven(make, [Watermark(7)] if callback == "try_process_watermark" else [])
    run_until_idle(source)
    run_until_idle(tested)
    run_until_idle(tested)
    assert tested.processor.calls == ["asked"]
    assert tested.due_ns == clock.now + 500 * MS
    assert not tested.polling
    clock.now += 499 * MS
    run_until_idle(tested)
    assert tested.processor.calls == ["asked"]
    clock.now += 1 * MS
    assert tested.is_due()
    run_until_idle(tested)
    assert tested.processor.calls == ["asked"] * 2
    tested.processor.may_go_on = True
    clock.now += 500 * MS
    run.run()


def test_work_that_no_item_asks_for_waits_for_its_timer_or_for_items() -> None:
    def make() -> Processor:
        return Timed(0.5)

    run, source, tested, clock = driven(make, [1])
    run_until_idle(tested)
    run_until_idle(tested)
    assert tested.processor.calls == ["try"]
    clock.now += 500 * MS
    run_until_idle(tested)
    run_until_idle(tested)
    assert tested.processor.calls == ["try", "try"]
    run_until_idle(source)
    run_until_idle(tested)
    assert tested.processor.calls[2:4] == ["try", "process"], "the item does not wait"
    run.run()


def test_a_processor_that_waits_for_items_only_is_not_called_without() -> None:
    def make() -> Processor:
        return Timed(math.inf)

    run, source, tested, clock = driven(make, [1])
    run_until_idle(tested)
    clock.now += 3600 * 1000 * MS
    run_until_idle(tested)
    assert tested.processor.calls == ["try"]
    assert not tested.is_due()
    assert not tested.polling
    run_until_idle(source)
    run_until_idle(tested)
    assert "process" in tested.processor.calls
    run.run()


class OneEach(Processor):
    """Takes one item, then none for a tenth of a second."""

    next_call = 0.1
    calls = 0

    def process(self, ordinal: int, inbox: Inbox) -> None:
        self.calls += 1
        if inbox and self.outbox.offer(inbox.peek()):
            inbox.remove()


def test_items_that_a_processor_has_left_wait_for_its_timer() -> None:
    run, source, tested, clock = driven(OneEach, list(range(20)))
    run_until_idle(source)
    run_until_idle(tested)
    for _ in range(3):
        before = tested.processor.calls
        run_until_idle(tested)
        assert tested.processor.calls == before, "nothing new has come"
        clock.now += 100 * MS
        run_until_idle(tested)
        assert tested.processor.calls == before + 1
    tested.clock = time.perf_counter_ns
    tested.processor.next_call = None
    tested.due_ns = 0
    tested.wake()
    assert [item for _, _, item in run.run().grid.get_list("out")] == list(range(20))


class Full(Processor):
    """Emits more than there is room for, while it asks for no call."""

    next_call = math.inf

    def complete(self) -> bool:
        self.at = getattr(self, "at", 0)
        while self.at < 5_000 and self.outbox.offer(self.at):
            self.at += 1
        return self.at == 5_000


def test_a_timer_does_not_hold_up_a_callback_that_the_outbox_has_refused() -> None:
    dag = DAG()
    dag.edge(between(dag.new_vertex("source", Full, 1), dag.new_vertex("sink", Collect, 1)))
    assert len(LocalRun(dag, 1).run().grid.get_list("out")) == 5_000


class Ticks(Processor):
    """A source that emits a number every few milliseconds, and how often it was called."""

    def __init__(self) -> None:
        self.calls = 0

    def complete(self) -> bool:
        self.next_call = 0.02
        self.calls += 1
        return self.outbox.offer(self.calls) and self.calls == 10


def test_a_worker_sleeps_until_the_first_timer() -> None:
    dag = DAG()
    dag.edge(between(dag.new_vertex("ticks", Ticks, 1), dag.new_vertex("sink", processors.write_list("out"), 1)))
    with new_instance(JetConfig(cores=1)) as jet:
        jet.new_job(dag).run()
        assert list(jet.get_list("out")) == list(range(1, 11)), "each call had its own time"


@pytest.mark.parametrize("wrong", [-1, math.nan, "soon", True])
def test_a_timer_that_is_no_number_of_seconds_is_refused(wrong: Any) -> None:
    class Wrong(Processor):
        next_call = wrong

        def complete(self) -> bool:
            return False

    dag = DAG()
    dag.new_vertex("wrong", Wrong, 1)
    with (
        new_instance(JetConfig(cores=1)) as jet,
        pytest.raises(JobFailedError, match=r"next_call must be None, seconds"),
    ):
        jet.new_job(dag).run(60)


class Pulse(Processor):
    """Emits a number and a watermark each half second."""

    next_call = 0.5
    count = 0

    def complete(self) -> bool:
        self.count += 1
        self.outbox.offer_all([self.count, Watermark(self.count)])
        return False


class Passing(Processor):
    """Hands all on at once."""

    def process(self, ordinal: int, inbox: Inbox) -> None:
        self.outbox.offer_all(inbox.take())


def test_what_comes_now_and_then_costs_one_call_of_each_tasklet() -> None:
    dag = DAG()
    source, passing = dag.new_vertex("source", Pulse, 1), dag.new_vertex("passing", Passing, 1)
    dag.edge(between(source, passing)).edge(between(passing, dag.new_vertex("sink", Collect, 1)))
    run = LocalRun(dag, 1)
    tasklets = run.deployments[0].tasklets
    clock = Clock()
    for tasklet in tasklets:
        tasklet.clock = clock
    calls = []
    for _ in range(3):
        before = len(calls)
        while called := list(due((tasklet, None) for tasklet in tasklets)):
            calls += [(tasklet.context.vertex_name, tasklet.call()) for tasklet, _ in called]
            assert len(calls) < 100, "they do not come to rest"
        if before:  # in the first round each finds out that it has nothing to do yet
            assert calls[before:] == [("source", True), ("passing", True), ("sink", True)]
        clock.now += 500 * MS
    run.close()
