"""What is made of a job's readings, and of minutes of them, by hand: no member, no clock."""

from __future__ import annotations

from typing import Any

import msgspec

from shmjet.cluster.lifecycle_messages import LastRestart, LastSnapshot, SuspensionCause, VertexState
from shmjet.cluster.protocol import ExecutionRow, JobReply
from shmjet.console.history import History
from shmjet.console.job_tracker import JobTrack
from shmjet.console.membership import ExecutionTotals, busy_share, program_name
from shmjet.console.snapshot import RestartCard, SnapshotCard, SuspensionCard
from shmjet.execution.job_plan import EdgePlan, JobShape, VertexShape
from shmjet.execution.messages import Failure, Frame
from shmjet.execution.metrics import EdgeMetrics, Metrics, ProcessorMetrics, VertexMetrics, WorkerMetrics

SHAPE = JobShape(
    [VertexShape(name, 1, -1, True, False, None) for name in ("source", "sink")],
    [EdgePlan(0, 0, 1, 0, "partitioned", 0, False, False, 1024, 2048, True)],
)
FAILURE = Failure(
    "error", "sink", 3, 1, 77, "ValueError", "no <b>", [Frame("job.py", 7, "parse", "raise ValueError")], None
)


def row(execution: int = 1, status: str = "running", **more: Any) -> ExecutionRow:
    known = ExecutionRow(execution, "abc", None, status, False, 100.0, None, None, None, None)
    return msgspec.structs.replace(known, **more)


def processor(*, received: int = 0, emitted: int = 0, busy_ns: int = 0) -> ProcessorMetrics:
    return ProcessorMetrics(0, 0, received, 0, emitted, 0, 0, busy_ns, None, None, None, 0)


def reading(emitted: int, received: int, *, busy_ns: int = 0, waited_ns: int = 0, end: float | None = None) -> Metrics:
    return Metrics(
        {
            "source": VertexMetrics("source", [processor(emitted=emitted)]),
            "sink": VertexMetrics("sink", [processor(received=received, busy_ns=busy_ns)]),
        },
        [EdgeMetrics("source", 0, "sink", 0, emitted, received, emitted - received, 1024, 0, waited_ns)],
        [],
        100.0,
        end,
    )


def test_a_job_that_is_only_starting_is_drawn_at_rest() -> None:
    track = JobTrack("m", row(status="starting"), 1)
    assert track.detail().vertices == []
    track.describe(JobReply(0, SHAPE, None))
    detail = track.detail()
    assert [vertex.flow.name for vertex in detail.vertices] == ["source", "sink"]
    assert [vertex.flow.processors for vertex in detail.vertices] == [0, 0]
    assert (detail.edges[0].routing, detail.edges[0].distributed, detail.edges[0].fill) == ("partitioned", True, 0.0)
    assert (detail.card.name, detail.card.status, detail.bottleneck) == ("abc", "starting", None)


def test_rates_the_bottleneck_and_history_come_from_two_readings() -> None:
    track = JobTrack("m", row(job_name="job"), 1)
    track.describe(JobReply(0, SHAPE, None))
    track.read(reading(1000, 400), 110.0)
    track.read(reading(3000, 2000, busy_ns=10**9, waited_ns=10**9), 112.0)
    detail = track.detail()
    assert (detail.source_rate, detail.sink_rate) == (1000.0, 800.0)
    assert (detail.vertices[1].flow.busy, detail.vertices[0].waiting) == (0.5, 0.5)
    assert (detail.bottleneck, detail.edges[0].is_full, detail.averaged) == ("sink", True, False)
    assert detail.edges[0].fill == 1000 / 1024
    assert detail.history.times == [110.0, 112.0]
    assert detail.history.values["in"][-1] == 1000.0
    assert detail.card.rate == 1000.0


def test_a_job_that_has_ended_shows_the_averages_of_its_whole_run_and_why_it_failed() -> None:
    track = JobTrack("m", row(), 1)
    track.describe(JobReply(0, SHAPE, None))
    track.read(reading(1000, 400), 110.0)
    track.follow(row(status="failed", completed_at=120.0), 1)
    assert track.is_followed
    assert not track.is_described
    track.describe(JobReply(0, SHAPE, FAILURE))
    track.read(reading(4000, 4000, busy_ns=5 * 10**9, waited_ns=20 * 10**9, end=120.0), 121.0)
    assert not track.is_followed
    assert track.is_described
    detail = track.detail()
    assert (detail.averaged, detail.source_rate, detail.vertices[1].flow.busy) == (True, 200.0, 0.25)
    assert (detail.bottleneck, detail.card.status, detail.card.rate) == (None, "failed", 0.0)
    failure = detail.failure
    assert failure is not None
    assert (failure.error, failure.vertex, failure.processor, failure.worker) == ("ValueError", "sink", 3, 1)
    assert failure.text.endswith("ValueError: no <b>")
    assert 'File "job.py", line 7, in parse' in failure.text


def test_another_run_begins_anew_and_keeps_the_minutes() -> None:
    track = JobTrack("m", row(), 1)
    track.describe(JobReply(0, SHAPE, FAILURE))
    track.read(reading(1000, 400), 110.0)
    track.follow(row(2), 2)
    detail = track.detail()
    assert (detail.card.execution, detail.card.executions, detail.failure) == (2, 2, None)
    assert detail.vertices[0].flow.emitted == 0
    assert detail.history.times == [110.0]


def test_a_job_is_lost_with_its_member_and_one_that_had_ended_is_not() -> None:
    running, ended = JobTrack("m", row(), 1), JobTrack("m", row(status="completed", completed_at=105.0), 1)
    for track in (running, ended):
        track.lose(130.0)
    assert (running.card().status, running.card().completed_at, running.is_running) == ("lost", 130.0, False)
    assert (ended.card().status, ended.card().completed_at) == ("completed", 105.0)


def test_cancelling_and_cancelled() -> None:
    assert JobTrack("m", row(cancelled=True), 1).card().status == "cancelling"
    assert JobTrack("m", row(status="failed", cancelled=True, completed_at=1.0), 1).card().status == "cancelled"


def test_totals_count_each_execution_once_also_when_it_is_forgotten() -> None:
    totals = ExecutionTotals()
    totals.take([row(1, "completed"), row(2), row(3, "failed")])
    totals.take([row(2, "failed", cancelled=True), row(3, "failed"), row(4), row(5, "completed")])
    totals.take([row(4), row(5, "completed")])
    assert totals.started == 5
    assert totals.ended == {"completed": 2, "failed": 1, "cancelled": 1}


def test_totals_of_a_member_of_a_cluster_are_those_of_what_it_leads() -> None:
    totals = ExecutionTotals()
    its, another = 5 << 32, 9 << 32
    totals.take([row(its + 1, "completed"), row(its + 2), row(another + 8, leads=False)])
    totals.take([row(its + 2, "failed"), row(another + 8, "failed", leads=False)])
    assert totals.started == 2
    assert totals.ended == {"completed": 1, "failed": 1}


def test_further_attempts_are_not_counted_as_executions() -> None:
    totals = ExecutionTotals()
    totals.take([row(1, attempts=4)])
    assert totals.started == 1
    totals.take([row(1, attempts=4), row(5)])
    assert totals.started == 2
    totals.take([row(1, "completed", attempts=6), row(5, attempts=2), row(9, "failed")])
    assert totals.started == 3
    assert totals.ended == {"completed": 1, "failed": 1}
    late = ExecutionTotals()
    late.take([row(1000, attempts=3), row(1003)])
    assert late.started == 1001, "what it has forgotten counts"


def test_a_job_tells_its_attempts_its_last_snapshot_and_why_it_is_suspended() -> None:
    last = LastSnapshot(12, 105.0, 0.25, 4096, 7, {"sink": VertexState(7, 4096)})
    track = JobTrack("m", row(), 1)
    track.describe(JobReply(0, SHAPE, None))
    track.read(reading(1000, 400), 110.0)
    track.follow(row(attempts=2, guarantee="exactly_once", snapshot=last), 1)
    assert track.detail().card.rate == 0.0, "what was read of the attempt before does not count"
    track.read(reading(10, 4), 111.0)
    detail = track.detail()
    assert (detail.card.attempts, detail.guarantee, detail.suspension) == (2, "exactly_once", None)
    assert detail.snapshot == SnapshotCard(12, 105.0, 0.25, 4096, 7)
    assert [(vertex.state_keys, vertex.state_bytes) for vertex in detail.vertices] == [(0, 0), (7, 4096)]
    track.follow(row(status="suspended", attempts=2, cause=SuspensionCause(False, "job failed\nin sink")), 1)
    assert track.is_running
    detail = track.detail()
    assert (detail.card.status, detail.card.rate) == ("suspended", 0.0)
    assert detail.suspension == SuspensionCard(False, "job failed\nin sink")


def test_a_job_tells_why_it_was_restarted_and_what_it_waits_for() -> None:
    track = JobTrack("m", row(), 1)
    track.describe(JobReply(0, SHAPE, None))
    track.follow(row(status="not_running", waits_for="2 members", restart=LastRestart("a member was lost")), 1)
    assert (track.detail().waits_for, track.detail().restart) == ("2 members", RestartCard("a member was lost", None))
    track.follow(row(attempts=2, restart=LastRestart("a member was lost", 0.5)), 1)
    assert (track.detail().waits_for, track.detail().restart) == ("", RestartCard("a member was lost", 0.5))


def test_a_worker_that_has_counted_nothing_sleeps_unless_it_uses_its_core() -> None:
    before, later = WorkerMetrics(0, 7, 0, 0.5, 1000, 1000, 0), WorkerMetrics(0, 7, 0, 0.4, 1300, 1900, 0)
    assert busy_share(later, before, 0.9) == 0.25
    assert busy_share(before, before, 0.0) == 0.0
    assert busy_share(before, before, 1.02) == 1.0
    assert busy_share(later, msgspec.structs.replace(before, pid=6), 0.3) == 0.3


def test_a_program_is_named_without_its_arguments() -> None:
    assert program_name(["/opt/py/bin/python", "jobs/job.py", "--password", "x"]) == "python job.py"
    assert program_name(["python", "-u", "-m", "pytest", "secret"]) == "python -m pytest"
    assert program_name(["python", "-c", "secret"]) == "python -c"
    assert (program_name(["jupyter"]), program_name([])) == ("jupyter", "")


def test_history_forgets_what_is_too_old() -> None:
    history = History(("a", "b"), seconds=10, most=100)
    for time in range(30):
        history.add(float(time), time, 2 * time)
    series = history.series()
    assert series.times == [float(t) for t in range(19, 30)]
    assert series.values["b"][-1] == 58
    bounded = History(("a",), seconds=10, most=5)
    for _ in range(9):
        bounded.add(1.0, 1.0)
    assert len(bounded.series().times) == 5
    assert History(("a",)).series().values == {"a": []}
