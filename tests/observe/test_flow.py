"""From counters to rates, shares and the bottleneck, by hand-made numbers and a hand-driven clock."""

from __future__ import annotations

import io
import json

import msgspec
import pytest
from rich.console import Console

from shmjet.execution.metrics import NO_METRICS, Metrics, ProcessorMetrics, TrafficMetrics, VertexMetrics, WorkerMetrics
from shmjet.observe.flow import FlowMeter, Work, network_rate
from shmjet.observe.html import flow_html
from shmjet.observe.table import flow_view
from tests.memory import held_bytes
from tests.observe.numbers import chain, edge, metrics, vertex

SECOND = 1_000_000_000


def test_rates_are_of_the_time_since_the_last_look() -> None:
    meter = FlowMeter()
    meter.take(chain(received=100), 110.0)
    flow = meter.take(chain(received=400, now=True), 111.0)
    by_name = {each.name: each for each in flow.vertices}
    assert (by_name["map"].received_rate, by_name["map"].emitted_rate, by_name["source"].emitted_rate) == (
        300,
        300,
        300,
    )
    assert [each.rate for each in flow.edges] == [300, 300]
    assert flow.seconds == 11


def test_the_first_look_is_of_the_time_since_the_start() -> None:
    flow = FlowMeter().take(chain(received=400), 104.0)
    assert [each.rate for each in flow.edges] == [100, 100]


def test_looks_in_quick_succession_are_compared_over_a_second() -> None:
    meter = FlowMeter()
    held = []
    for tenth in range(60):
        flow = meter.take(chain(received=100 * tenth), 110 + tenth / 10)
        held.append(held_bytes(meter))
    assert flow.edges[0].rate == pytest.approx(1000)
    assert max(held[30:]) < 1.1 * max(held[:20])


def test_busy_is_the_share_of_time_in_callbacks_mean_and_most() -> None:
    meter = FlowMeter()
    meter.take(chain(), 110.0)
    flow = meter.take(chain(now=True), 111.0)
    by_name = {each.name: each for each in flow.vertices}
    assert (by_name["map"].busy, by_name["map"].busiest, by_name["map"].processors) == (0.75, 1.0, 2)
    assert (by_name["source"].busy, by_name["sink"].busy) == (0.1, 0.0)
    assert flow.workers[0].busy == 1.0


def test_the_bottleneck_is_the_last_full_edge_of_a_row() -> None:
    meter = FlowMeter()
    meter.take(chain(), 110.0)
    flow = meter.take(chain(waited_ns=(9 * SECOND // 10, SECOND)), 111.0)  # map has two processors: half of their time
    assert [each.waiting for each in flow.edges] == [0.9, 0.5]
    assert flow.bottleneck is not None
    assert flow.bottleneck.text == "map → sink"


def test_an_edge_is_full_by_its_queues_or_by_who_waits() -> None:
    flow = FlowMeter().take(chain(), 110.0)
    assert [(each.fill, each.is_full) for each in flow.edges] == [(0.9, True), (0.1, False)]
    assert flow.bottleneck is not None
    assert flow.bottleneck.text == "source → map"


def test_nothing_is_full_when_nobody_waits_or_all_is_over() -> None:
    idle = metrics(vertex("a", 0), vertex("b", 0), edge("a", "b"))
    assert FlowMeter().take(idle, 110.0).bottleneck is None
    over = metrics(vertex("a", 0), vertex("b", 0), edge("a", "b", waited_ns=9 * SECOND), end=109.0)
    flow = FlowMeter().take(over, 200.0)
    assert (flow.bottleneck, flow.seconds) == (None, 9)


def test_time_to_go_follows_from_what_a_source_has_done() -> None:
    flow = FlowMeter().take(chain(received=250), 110.0)
    assert flow.vertices[0].work == Work(250, 1000, "bytes", pytest.approx(30.0))
    assert (flow.share, flow.eta) == (0.25, pytest.approx(30.0))
    assert FlowMeter().take(chain(received=0), 110.0).eta is None


def test_one_source_that_does_not_know_how_much_there_is_spoils_the_forecast() -> None:
    known = vertex("known", 0, work_done=1, work_total=2)
    flow = FlowMeter().take(metrics(known, vertex("endless", 0), vertex("sink", 0), edge("known", "sink")), 110.0)
    assert (flow.share, flow.eta) == (None, None)


def expanding(*, at: int, sink_busy: int = 0, full: float = 1.0) -> Metrics:
    """items -> flat_map -> sink, `at` seconds after the start: all is read, flat_map makes 1000 items a second."""
    made = 1000 * at
    return metrics(
        vertex("items", 1, emitted=5, work_done=5, work_total=5, state="end"),
        vertex("flat_map", at * SECOND * 8 // 10, received=5, emitted=made, state="process_inbox"),
        vertex("sink", sink_busy * at, received=made, state="process_inbox"),
        edge("items", "flat_map", 5),
        edge("flat_map", "sink", made, 95, at * SECOND // 2),
        WorkerMetrics(0, 11, 0, full, int(at * full * SECOND), int(at * (1 - full) * SECOND), 3),
    )


def test_a_job_that_goes_on_when_all_is_read_is_not_done() -> None:
    meter = FlowMeter()
    for at in (1, 2):
        flow = meter.take(expanding(at=at), 100.0 + at)
        assert (flow.is_read, flow.share, flow.eta, flow.rate) == (True, None, None, 1000)
    shown = io.StringIO()
    Console(file=shown, width=200).print(flow_view(flow, "expanding"))
    assert "all read" in shown.getvalue()
    assert "to go" not in shown.getvalue()
    assert "all read" in flow_html(flow, "expanding")
    assert "<progress" not in flow_html(flow, "expanding")
    over = metrics(vertex("items", 1, emitted=5, work_done=5, work_total=5, state="end"), end=105.0)
    assert FlowMeter().take(over, 110.0).share == 1.0


def test_a_job_that_reads_has_the_rate_of_its_sources() -> None:
    meter = FlowMeter()
    meter.take(chain(received=100), 110.0)
    flow = meter.take(chain(received=400, now=True), 111.0)
    assert (flow.is_read, flow.rate) == (False, 300)


def test_a_vertex_that_lacks_time_on_full_workers_is_not_to_blame() -> None:
    flow = FlowMeter().take(expanding(at=1), 101.0)
    assert flow.bottleneck is not None
    assert (flow.bottleneck.destination, flow.slowest, flow.is_crowded) == ("sink", "flat_map", True)
    shown = io.StringIO()
    Console(file=shown, width=200).print(flow_view(flow, "expanding"))
    assert "for sink, whose workers are full, mostly with flat_map" in shown.getvalue()
    assert "for sink, whose workers are full, mostly with flat_map" in flow_html(flow, "expanding")


def test_a_vertex_that_takes_most_of_its_full_worker_is_to_blame() -> None:
    flow = FlowMeter().take(expanding(at=1, sink_busy=9 * SECOND // 10), 101.0)
    assert (flow.slowest, flow.is_crowded, flow.crowding) == ("sink", False, "")


def test_a_vertex_whose_worker_sleeps_is_to_blame() -> None:
    assert FlowMeter().take(expanding(at=1, full=0.8), 101.0).slowest == "sink"


def test_other_jobs_may_fill_the_workers() -> None:
    numbers = expanding(at=1)
    lazy = {**numbers.vertices, "flat_map": vertex("flat_map", SECOND // 10, received=5, emitted=1000)}
    flow = FlowMeter().take(msgspec.structs.replace(numbers, vertices=lazy), 101.0)
    assert (flow.slowest, flow.is_crowded) == (None, True)
    assert flow.crowding.endswith("mostly with other jobs")


def test_a_vertex_has_ended_when_all_its_processors_have() -> None:
    flow = FlowMeter().take(metrics(vertex("a", 0, 0, state="end"), vertex("b", 0, 0, state="complete")), 110.0)
    assert [each.has_ended for each in flow.vertices] == [True, False]


def test_an_execution_without_a_plan_yet_is_an_empty_flow() -> None:
    flow = FlowMeter().take(NO_METRICS, 110.0)
    assert (flow.vertices, flow.edges, flow.seconds, flow.share) == ((), (), 0.0, None)


def test_a_new_worker_in_an_old_place_is_not_compared_with_the_dead_one() -> None:
    meter = FlowMeter()
    meter.take(metrics(vertex("a", 0), WorkerMetrics(0, 11, 0, 0.9, 9 * SECOND, SECOND, 3)), 110.0)
    flow = meter.take(metrics(vertex("a", 0), WorkerMetrics(0, 12, 0, 0.25, SECOND, 3 * SECOND, 3)), 111.0)
    assert flow.workers[0].busy == 0.25


def test_a_flow_is_fit_for_json() -> None:
    plain = json.loads(json.dumps(FlowMeter().take(chain(received=250), 110.0).to_dict()))
    assert plain["bottleneck"] == "source → map"
    assert plain["edges"][0]["fill"] == 0.9
    assert plain["vertices"][0]["work"]["unit"] == "bytes"


def test_what_comes_over_the_network_is_in_the_flow_and_in_the_table() -> None:
    def reading(sent: int) -> Metrics:
        traffic = [
            TrafficMetrics("a:1", "b:1", sent, 10 * sent, 0, 0),
            TrafficMetrics("b:1", "a:1", 0, 0, sent, 10 * sent),
        ]
        known = chain(received=sent, now=True)
        first = msgspec.structs.replace(known.edges[0], traffic=traffic)
        return msgspec.structs.replace(known, edges=[first, *known.edges[1:]])

    meter = FlowMeter()
    meter.take(reading(1000), 110.0)
    flow = meter.take(reading(3000), 111.0)
    crossing, local = flow.edges
    assert (crossing.network_items, crossing.network_bytes, crossing.network_rate) == (3000, 30_000, 20_000)
    assert (network_rate([crossing]), network_rate([local]), network_rate([])) == (20_000, None, None)
    console = Console(width=120, file=io.StringIO())
    console.print(flow_view(flow, "job"))
    shown = console.file.getvalue()  # type: ignore[attr-defined]
    assert "network" in shown
    assert "20 kB/s" in shown
    assert "20 kB/s" in flow_html(flow, "job")


def test_processors_of_a_member_that_was_late_are_new_in_the_next_look() -> None:
    late, whole = chain(received=100), chain(received=400, now=True)
    part = {name: VertexMetrics(name, v.processors[:1]) for name, v in late.vertices.items()}
    meter = FlowMeter()
    meter.take(msgspec.structs.replace(late, vertices=part), 110.0)
    assert [each.processors for each in meter.take(whole, 111.0).vertices] == [1, 2, 1]


def test_counts_that_have_gone_back_are_those_of_another_attempt() -> None:
    def counted(emitted: int, calls: int) -> Metrics:
        one = ProcessorMetrics(0, 0, 0, 0, emitted, calls, 0, 0, None, None, None, 0)
        return Metrics({"a": VertexMetrics("a", [one])}, [], [], 100.0)

    meter = FlowMeter()
    meter.take(counted(1000, 50), 110.0)
    flow = meter.take(counted(300, 20), 112.0)
    assert flow.vertices[0].emitted_rate == 150.0, "since the last look at the attempt before"
    flow = meter.take(counted(500, 30), 114.0)
    assert flow.vertices[0].emitted_rate == 100.0
