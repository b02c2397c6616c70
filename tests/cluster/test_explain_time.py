"""What a running job says it waits for, from the first of its processes to the client."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable

from shmjet import DAG, JetInstance, JobConfig, between, processors
from shmjet.core.event_time import EventTimePolicy
from shmjet.processors.time.timed_items import PartitionItems
from shmjet.processors.time.timed_source import TimedSource

POLICY = EventTimePolicy(timestamp_fn=int, stride=10, timed=False)


class HalfSilent(TimedSource):
    """A source with two partitions, of which the second says nothing."""

    read_again = 0.001

    def first_partitions(self) -> list[str]:
        return ["loud", "silent"]

    def start(self, context: object) -> None:
        self.number = 0

    def read(self) -> Iterable[PartitionItems]:
        self.number += 1
        return [PartitionItems([self.number], 0)]


class Silent(TimedSource):
    """A source that says nothing, and need not be asked again."""

    read_again = math.inf

    def read(self) -> Iterable[PartitionItems]:
        return ()


def test_a_job_names_a_source_that_has_had_no_event(jet: JetInstance, eventually: Callable[..., None]) -> None:
    dag = DAG()
    source = dag.new_vertex("quiet", lambda: Silent(POLICY), 1)
    dag.edge(between(source, dag.new_vertex("sink", processors.noop(), 1)))
    job = jet.new_job(dag)
    execution = job.execute()
    eventually(lambda: "source partition 0 of 'quiet' #0 (no event yet; 1 in all)" in str(job.explain_time()))
    execution.cancel()


def test_a_job_names_the_silent_partition_that_its_sink_waits_for(jet: JetInstance) -> None:
    dag = DAG()
    source = dag.new_vertex("ticks", lambda: HalfSilent(POLICY), 2)
    sink = dag.new_vertex("sink", processors.noop(), 1)
    dag.edge(between(source, sink))
    job = jet.new_job(dag, JobConfig(name="half-silent"))
    assert job.explain_time().vertices == {}
    execution = job.execute()
    deadline = time.monotonic() + 60
    while True:
        found = job.explain_time().vertices.get("sink")
        if found is not None and found.partitions is not None:
            break
        assert time.monotonic() < deadline, job.explain_time()
    assert (found.watermark, found.input, found.origin) == (None, "ticks", "ticks")
    assert (found.partitions.count, found.partitions.slowest, found.partitions.slowest_wm) == (2, 1, None)
    assert str(job.explain_time()).startswith("job 'half-silent' is ")
    execution.cancel()
