"""NEXMark on this engine and on Hazelcast Jet 5: answers, maximum rates, latencies.

`q1` ... `q18`: events a second in Python functions, `q1_columns` ... on batches of columns. The events of a span of
event time are read as fast as they are taken; the time is that of a whole job, its start and its last windows included.
Both engines get the same events, as many as the slower one needs some seconds for. A million events a second of event
time, 10,000 keys, windows of 10 s (with `--quick` of 2 s) that slide by 500 ms. Before, both engines answer the query
over fewer events, and the answers have to be equal. The facts tell how fast the events alone are made, and the CPU time
an event, which depends less on what else runs on the machine.

`q1_columns_latency` ...: p99 of the latency by Jet's method, in milliseconds, of events by schedule: half as many a
second as Jet's maximum; `q1_latency` ...: half of shmjet's own maximum in functions. p50, p99.99 and the maximum are
facts. Windows of 1 s slide by 20 ms in columns and by 100 ms in functions; in query 7 they are as short as that. With
`--quick` there are two of them, unless `--only` names others.

Targets: columns at least 2 times the rate of Jet (queries 1, 2, 5, 7, 8) or as much (3, 4, 6, 13, 18), functions 0.15
times; the latency of columns at most that of Jet.

Hazelcast comes from Maven Central; without Java or Maven it is named as skipped. The events and the queries are in
`examples/nexmark`; for Hazelcast they are in `bench/peers/hazelcast`.
"""

from __future__ import annotations

import contextlib
import os
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
from _harness import Bench, Options, PeerSkipped, Report, parse_options
from _hazelcast import Hazelcast, member

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "examples"))

from nexmark import answers, columns, latency, queries
from nexmark.events import STREAMS, Load
from nexmark.replay import Replay, Schedule

from shmjet import JetConfig, JetInstance, Pipeline, new_instance, sinks

FUNCTIONS, COLUMNS = tuple(queries.QUERIES), tuple(columns.QUERIES)
LOAD, QUICK_LOAD = Load(), Load(window_ms=2000)
ANSWER_LOAD = Load(rate=20_000, keys=100, window_ms=400, slide_ms=100)
ANSWER_MS = 1000
ONE_CORE = (6,)
"""Queries whose answer is the same in each run with one processor only."""
TUMBLING = 7
"""The query with windows that do not overlap."""
FIRST_SPAN_MS = 250
LONGEST_SPAN_MS = 60_000
SOON_S = 600
JVM_RUNS = 4


@dataclass
class Engines:
    """What runs, and what has been measured.

    Args:
        jet: shmjet.
        hazelcast: None where it was left out or cannot run.
        why: it does not.
        seconds: that a run should take.
        load: parameters of the runs whose rate is measured.
        rates: events a second, by contender and query.
    """

    jet: JetInstance
    hazelcast: Hazelcast | None
    why: str
    seconds: float
    load: Load = LOAD
    rates: dict[tuple[str, int], float] = field(default_factory=dict)


def events_in(number: int, load: Load, span_ms: int) -> int:
    """The events of all streams of a query."""
    replay = Replay(Pipeline(), span_ms)
    return sum(replay.count(stream(load)) for stream in STREAMS[number])


def replayed(jet: JetInstance, number: int, load: Load, span_ms: int, in_columns: bool) -> float:
    """Run a query over the events of a span; return the seconds that it took."""
    p = Pipeline()
    (columns if in_columns else queries).QUERIES[number](Replay(p, span_ms), load).write_to(sinks.noop())
    return timed(jet, p)


def generated(jet: JetInstance, number: int, load: Load, span_ms: int, in_columns: bool) -> float:
    """Make the events of a span, and nothing else; return the seconds that it took."""
    p = Pipeline()
    read = Replay(p, span_ms)
    for stream in STREAMS[number]:
        (read.batches if in_columns else read.items)(stream(load)).write_to(sinks.noop())
    return timed(jet, p)


def timed(jet: JetInstance, p: Pipeline) -> float:
    """Run a job; return the seconds that it took."""
    begin = time.perf_counter()
    jet.new_job(p).run(SOON_S)
    return time.perf_counter() - begin


def workers_cpu_seconds() -> float:
    """Return the CPU time that the processes of shmjet below this one have used, those of Java left out."""
    total = 0.0
    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):
            if process.name() != "java":
                times = process.cpu_times()
                total += times.user + times.system
    return total


class Paced:
    """Measures how fast a contender goes through the events of a query.

    Args:
        events: `events(span_ms)` is how many there are in a span of event time.
        run: `run(span_ms)` goes through them and returns the seconds that it took.
        cpu: gives the CPU seconds that the contender has used so far.
        warm_up: how often it runs before the first time; a JVM compiles while it runs.
    """

    def __init__(
        self,
        events: Callable[[int], int],
        run: Callable[[int], float],
        cpu: Callable[[], float] = time.process_time,
        warm_up: int = 0,
    ) -> None:
        self._events = events
        self._run = run
        self._cpu = cpu
        self._warm_up = warm_up
        self.span_ms = FIRST_SPAN_MS
        self.cpu_ns: list[float] = []
        """CPU time an event, in nanoseconds, of each run."""

    def find_span(self, seconds: float) -> None:
        """Make the span so long that a run takes about so many seconds."""
        took = self._run(self.span_ms)
        while took < seconds / 2 and self.span_ms < LONGEST_SPAN_MS:
            more = min(8.0, seconds / took)
            self.span_ms = min(LONGEST_SPAN_MS, int(self.span_ms * more))
            took = self._run(self.span_ms)

    def __call__(self) -> float:
        """Return the events a second."""
        while self._warm_up:
            self._warm_up -= 1
            self._run(self.span_ms)
        before, events = self._cpu(), self._events(self.span_ms)
        took = self._run(self.span_ms)
        self.cpu_ns.append((self._cpu() - before) * 1e9 / events)
        return events / took


def paced(engines: Engines, who: str, command: str, number: int) -> Paced:
    """Return what measures a contender ("shmjet", "shmjet columns" or "hazelcast") at "replay" or "generate"."""
    load = engines.load
    if who == "hazelcast":
        hazelcast = engines.hazelcast
        assert hazelcast is not None
        return Paced(
            lambda span: events_in(number, load, span),
            lambda span: float(hazelcast.ask(command, number, load, span)[0]),
            hazelcast.cpu_seconds,
            JVM_RUNS,
        )
    run = replayed if command == "replay" else generated
    in_columns = who == "shmjet columns"
    return Paced(
        lambda span: events_in(number, load, span),
        lambda span: run(engines.jet, number, load, span, in_columns),
        workers_cpu_seconds,
    )


def compare_answers(engines: Engines, number: int, in_columns: bool, cores: Sequence[int]) -> str:
    """Have both engines answer a query; return what is found, for people.

    Raises:
        AssertionError: they differ.
    """
    if engines.hazelcast is None:
        return f"not compared: {engines.why}"
    if number not in ONE_CORE:
        mine = answers.answer(engines.jet, number, ANSWER_LOAD, ANSWER_MS, in_columns=in_columns)
        _, rows = engines.hazelcast.ask("answers", number, ANSWER_LOAD, ANSWER_MS)
    else:
        with new_instance(JetConfig(cores=cores[:1])) as jet, member(cores[:1]) as hazelcast:
            mine = answers.answer(jet, number, ANSWER_LOAD, ANSWER_MS, in_columns=in_columns)
            _, rows = hazelcast.ask("answers", number, ANSWER_LOAD, ANSWER_MS)
    theirs = answers.settled(number, rows)
    if not mine or mine != theirs:
        differ = [(one, other) for one, other in zip(mine, theirs, strict=False) if one != other][:3]
        raise AssertionError(f"query {number}: {len(mine)} and {len(theirs)} rows; differences: {differ}")
    return f"equal to those of Hazelcast, {len(mine):,} rows"


def rate(engines: Engines, number: int, in_columns: bool, options: Options, cores: Sequence[int]) -> Any:
    """Measure one query."""
    name = f"q{number}{'_columns' if in_columns else ''}"
    with Bench(name, "events/s") as bench:
        bench.facts["answers"] = compare_answers(engines, number, in_columns, cores)
        mine = "shmjet columns" if in_columns else "shmjet"
        contenders = {mine: paced(engines, mine, "replay", number)}
        bench.ours(contenders[mine])
        if engines.hazelcast is not None:
            contenders["hazelcast"] = paced(engines, "hazelcast", "replay", number)
            bench.peer("hazelcast", contenders["hazelcast"])
        else:
            bench.skip("hazelcast", engines.why)
        for one in contenders.values():
            one.find_span(engines.seconds)
        span_ms = min(one.span_ms for one in contenders.values())
        bare = {who: paced(engines, who, "generate", number) for who in contenders}
        for one in (*contenders.values(), *bare.values()):
            one.span_ms = span_ms
        bench.facts["events"] = events_in(number, engines.load, span_ms)
        bench.facts["events alone, a second"] = {who: round(max(one(), one())) for who, one in bare.items()}
        found = bench.measure(rounds=options.rounds)
        used = {who: round(statistics.median(one.cpu_ns)) for who, one in contenders.items()}
        bench.facts["CPU ns an event"] = used
        engines.rates[mine, number] = found.shmjet or 0.0
        if "hazelcast" in found.peers:
            engines.rates["hazelcast", number] = found.peers["hazelcast"]
        return found


def late(engines: Engines, number: int, in_columns: bool, options: Options) -> Any:
    """Measure the latency of one query."""
    name = f"q{number}{'_columns' if in_columns else ''}_latency"
    length_ms, warm_up_ms = (4000, 1500) if options.quick else (20_000, 5000)
    with Bench(name, "ms p99") as bench:
        who = ("hazelcast" if engines.hazelcast is not None else "shmjet columns") if in_columns else "shmjet"
        known = engines.rates.get((who, number)) or _quick_rate(engines, who, number)
        slide_ms = 20 if in_columns else 100
        window_ms = slide_ms if number == TUMBLING else 1000
        load = Load(max(1000, int(known / 2) // 1000 * 1000), window_ms=window_ms, slide_ms=slide_ms)
        bench.facts["events a second"] = load.rate

        def contender(who: str, run: Callable[[], list[Any]]) -> Callable[[], float]:
            def once() -> float:
                begin = int(time.time() * 1000)
                samples = [one for due, one in run() if due >= begin + warm_up_ms]
                if not samples:
                    bench.facts[f"{who}, last round"] = "no result: it falls behind"
                    return float(length_ms)
                shares = {f"p{100 * share:g}": quantile(samples, share) for share in (0.5, 0.99, 0.9999, 1.0)}
                bench.facts[f"{who}, last round"] = {**shares, "samples": len(samples)}
                return max(0.5, quantile(samples, 0.99))

            return once

        bench.ours(contender("shmjet", lambda: latencies(engines.jet, number, load, in_columns, length_ms)))
        if engines.hazelcast is not None:
            said = engines.hazelcast
            bench.peer("hazelcast", contender("hazelcast", lambda: said.ask("latency", number, load, length_ms)[1]))
        else:
            bench.skip("hazelcast", engines.why)
        return bench.measure(rounds=1 if options.quick else 3, warm_up=0)


def _quick_rate(engines: Engines, who: str, number: int) -> float:
    run = paced(engines, who, "replay", number)
    run.find_span(engines.seconds)
    return run()


def latencies(jet: JetInstance, number: int, load: Load, in_columns: bool, length_ms: int) -> list[Any]:
    """Run a query by schedule for some time; return its latencies: `(due, latency)`, in milliseconds."""
    p = Pipeline()
    name = f"latencies {time.monotonic_ns()}"
    latency.latencies(number, Schedule(p), load, in_columns=in_columns).write_to(sinks.list(name))
    execution = jet.new_job(p).execute()
    try:
        time.sleep(length_ms / 1000)
        if execution.done():
            execution.result()
    finally:
        execution.cancel()
    deadline = time.monotonic() + 10
    while not execution.done() and time.monotonic() < deadline:
        time.sleep(0.01)
    found = jet.get_list(name)
    rows = list(found)
    found.destroy()
    return rows


def quantile(samples: Sequence[float], share: float) -> float:
    """Return the value that so large a share of the samples does not exceed."""
    ordered = sorted(samples)
    return ordered[max(0, -int(-share * len(ordered) // 1) - 1)]


def main() -> int:
    rows = [(number, in_columns) for number in FUNCTIONS for in_columns in (False, True)]
    rows = [(number, in_columns) for number, in_columns in rows if not in_columns or number in COLUMNS]
    names = {f"q{number}{'_columns' if in_columns else ''}": (number, in_columns) for number, in_columns in rows}
    options = parse_options(__doc__, [*names, *(f"{name}_latency" for name in names)])
    report = Report(options)
    cores = sorted(os.sched_getaffinity(0))[: options.workers]
    seconds = 0.5 if options.quick else 3.0
    with Bench("nexmark", "events/s") as shared:
        hazelcast, why = None, "left out"
        if options.wants_peer("hazelcast"):
            try:
                hazelcast = shared.resources.enter_context(member(cores))
            except PeerSkipped as reason:
                why = str(reason)
        jet = shared.resources.enter_context(new_instance(JetConfig(cores=cores)))
        engines = Engines(jet, hazelcast, why, seconds, QUICK_LOAD if options.quick else LOAD)
        for name, (number, in_columns) in names.items():
            if options.wants(name):
                report.add(rate(engines, number, in_columns, options, cores))
        for name, (number, in_columns) in names.items():
            short = options.quick and not options.only and name not in ("q1_columns", "q5")
            if options.wants(f"{name}_latency") and not short:
                report.add(late(engines, number, in_columns, options))
    return report.finish()


if __name__ == "__main__":
    sys.exit(main())
