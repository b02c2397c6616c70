"""A processor that waits for something outside is called when a thread of its own says that it has come."""

from __future__ import annotations

import math
import threading

from shmjet import DAG, Processor, between
from shmjet.core.outbox import Outbox
from shmjet.core.processor import ProcessorContext
from shmjet.core.wake_up import wake_up_in
from tests.execution.harness import LocalRun
from tests.execution.vertices import Collect

LAST = 3


class Woken(Processor):
    """Emits a number each time that it is called after it has been woken."""

    next_call = math.inf
    made: Woken | None = None

    def init(self, outbox: Outbox, context: ProcessorContext) -> None:
        super().init(outbox, context)
        self.wake_up = wake_up_in(context)
        self.calls = 0
        Woken.made = self

    def complete(self) -> bool:
        self.calls += 1
        return self.outbox.offer(self.calls) and self.calls == LAST


class Waking(LocalRun):
    """Wakes the source from another thread whenever nothing can go on."""

    def between_rounds(self) -> bool:
        source = self.deployments[0].tasklets[0]
        if source.done or not self._sleepers[0].sleeps:
            return False
        assert Woken.made is not None
        thread = threading.Thread(target=Woken.made.wake_up)
        thread.start()
        thread.join()
        assert not self._sleepers[0].sleeps
        return True


def test_a_processor_without_a_timer_is_called_for_each_wake_up_and_not_otherwise() -> None:
    dag = DAG()
    dag.edge(between(dag.new_vertex("source", Woken, 1), dag.new_vertex("sink", Collect, 1)))
    run = Waking(dag, 1)
    run.run()
    assert [item for _, _, item in run.grid.get_list("out")] == [1, 2, 3]
    made, Woken.made = Woken.made, None
    assert made is not None
    assert made.calls == LAST
    made.wake_up()  # too late: it does nothing


def test_without_an_engine_nobody_is_woken() -> None:
    assert wake_up_in(ProcessorContext())() is None
