"""Real instances whose workers steal from each other all the time, with random jobs that check themselves.

Each run makes a random DAG (routings, priorities, buffered edges, small queues, watermarks, generators that cannot
move) and runs it while every worker asks every other one for its tasklets at each chance. Every item carries its way:
each must arrive as often as the routings say, in order on each way, after no watermark that it should be before. Some
runs are cancelled, fail, or have a worker killed half way: that must end in the error that belongs to it, never hang.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import sys
import time
from collections import Counter, defaultdict
from concurrent.futures import CancelledError
from concurrent.futures import TimeoutError as FutureTimeout
from typing import Any

from _stress import (
    HANG_S,
    Options,
    Tally,
    all_gone,
    mark_processes,
    marked,
    names,
    parse_options,
    private_shm,
    wait_until,
    watch,
)

import shmjet
from shmjet import (
    DAG,
    EdgeConfig,
    Inbox,
    JetConfig,
    JobFailedError,
    Outbox,
    Processor,
    ProcessorContext,
    Watermark,
    WorkerLostError,
    between,
)

os.environ["SHMJET_STEAL_MARGIN"] = "-1000"

RENEW_AFTER = 15
"""Runs of one instance."""

WATERMARK_EVERY = 50


class Source(Processor):
    """Emits (source, number, way) and now and then a watermark: no smaller number comes after it."""

    def __init__(self, index: int, count: int, pause: float) -> None:
        self._index, self._count, self._pause = index, count, pause
        self._next = 0

    def init(self, outbox: Outbox, context: ProcessorContext) -> None:
        super().init(outbox, context)
        self._way = ((self._index, context.global_index),)

    def complete(self) -> bool:
        if self._pause:
            time.sleep(self._pause)
        while self._next < 2 * self._count:
            number, is_mark = divmod(self._next, 2)
            if is_mark and number % WATERMARK_EVERY != WATERMARK_EVERY - 1:
                self._next += 1
                continue
            if not self.outbox.offer(Watermark(number) if is_mark else (number, self._way)):
                return False
            self._next += 1
        return True


class Stage(Processor):
    """Adds itself to the way of each item; counts what it has seen, which has to survive every move."""

    def __init__(self, index: int, seed: int, fails_at: int) -> None:
        self._index, self._fails_at = index, fails_at
        self._rng = random.Random(seed)
        self._seen = 0
        self._watermark = -1
        self._holding = (i for i in range(3)) if seed % 5 == 0 else None  # what cannot be pickled stays

    def process(self, ordinal: int, inbox: Inbox) -> None:
        for _ in range(self._rng.randint(1, 200)):
            if not inbox or not self._hand_on(inbox.peek()):
                return
            inbox.remove()

    def _hand_on(self, item: Any) -> bool:
        number, way = item
        if number == "seen":
            return self.outbox.offer(item)
        if number <= self._watermark:
            raise AssertionError(f"{item} came after watermark {self._watermark}")
        if not self.outbox.offer((number, (*way, (self._index, self.context.global_index)))):
            return False
        self._seen += 1
        if self._seen == self._fails_at:
            raise ValueError("as planned")
        return True

    def try_process_watermark(self, watermark: Watermark) -> bool:
        if watermark.timestamp <= self._watermark:
            raise AssertionError(f"watermark {watermark.timestamp} came after {self._watermark}")
        if not self.outbox.offer(watermark):
            return False
        self._watermark = watermark.timestamp
        return True

    def complete(self) -> bool:
        return self.outbox.offer(("seen", self._seen))


class Sink(Processor):
    """Appends (sink, ordinal, item) and watermarks to a list."""

    def __init__(self, name: str) -> None:
        self._name = name

    def init(self, outbox: Outbox, context: ProcessorContext) -> None:
        super().init(outbox, context)
        assert context.grid is not None
        self._list = context.grid.get_list(self._name)

    def process(self, ordinal: int, inbox: Inbox) -> None:
        self._list.extend([(self.context.global_index, ordinal, item) for item in inbox.take()])

    def try_process_watermark(self, watermark: Watermark) -> bool:
        self._list.append((self.context.global_index, -1, watermark.timestamp))
        return True


class Case:
    """A random DAG, and what has to come out of it.

    One or two chains of stages, each from a source of its own, meet in the sink; the second chain may have a lower
    priority there, so that all of the first one's items have to come before.
    """

    def __init__(self, rng: random.Random, name: str, workers: int, slow: bool, fails: bool) -> None:
        self.dag, self.name = DAG(), name
        self.expected: Counter[tuple[int, int, int]] = Counter()
        self.description: list[str] = []
        sinks = rng.randint(1, 3)
        self.sinks = sinks
        sink = self.dag.new_vertex("sink", lambda: Sink(name), sinks)
        chains = rng.choice([1, 1, 2])
        self.prioritised = chains == 2 and rng.random() < 0.7
        for chain in range(chains):
            self._chain(rng, chain, sink, sinks, workers, slow, fails and chain == 0)

    def _chain(
        self, rng: random.Random, chain: int, sink: Any, sinks: int, workers: int, slow: bool, fails: bool
    ) -> None:
        count = rng.choice([1, 50, 500, 2000])
        sources = rng.randint(1, 3)
        pause = 0.002 if slow else 0.0
        above = self.dag.new_vertex(f"source{chain}", lambda: Source(chain, 10**6 if slow else count, pause), sources)
        copies = 1
        self.description.append(f"{sources} sources of {count}")
        length = rng.randint(1, 4)
        for number in range(length):
            parallelism = rng.randint(1, 2 * workers)
            seed, fails_at = rng.randrange(1000), rng.randint(1, count) if fails and number == 0 else 0
            stage = self.dag.new_vertex(
                f"stage{chain}.{number}",
                lambda number=number, seed=seed, fails_at=fails_at: Stage(number, seed, fails_at),
                parallelism,
            )
            copies *= self._edge(rng, above, stage, parallelism, 0)
            above = stage
        copies *= self._edge(rng, above, sink, sinks, chain)
        for source in range(sources):
            for i in range(count):
                self.expected[chain, source, i] = copies

    def _edge(self, rng: random.Random, above: Any, below: Any, parallelism: int, ordinal: int) -> int:
        """Join two vertices in a random way; returns how often each item goes along."""
        edge = between(above, below) if ordinal == 0 else shmjet.from_(above).to(below, ordinal)
        queue = rng.choice([8, 64, 1024])
        edge.configure(EdgeConfig(queue_size=queue, high_water_mark=rng.choice([8, 256, 2048])))
        route = rng.choice(["unicast", "unicast", "partitioned", "broadcast", "all_to_one", "isolated"])
        same = above.local_parallelism == below.local_parallelism
        if route == "isolated" and not same:
            route = "unicast"
        if route == "partitioned":
            edge.partitioned(lambda item: item[0])
        elif route != "unicast":
            getattr(edge, route)()
        if ordinal and self.prioritised:
            edge.priority(1)
        elif rng.random() < 0.3:
            edge.buffered()
        self.dag.edge(edge)
        self.description.append(f"{route}({queue}) to {below.name}*{parallelism}")
        return parallelism if route == "broadcast" else 1

    def problems(self, found: list[Any]) -> list[str]:
        """Return what is wrong with what has come out."""
        counts: Counter[tuple[int, int, int]] = Counter()
        latest: dict[Any, int] = {}
        watermarks: dict[int, int] = defaultdict(lambda: -1)
        wrong = []
        second_begun: dict[int, bool] = defaultdict(bool)
        for sink, ordinal, item in found:
            if ordinal < 0:
                if item <= watermarks[sink]:
                    wrong.append(f"sink {sink}: watermark {item} after {watermarks[sink]}")
                watermarks[sink] = item
                continue
            second_begun[sink] |= ordinal == 1
            if ordinal == 0 and second_begun[sink] and self.prioritised:
                wrong.append(f"sink {sink}: {item} of the first priority came after the second had begun")
            number, way = item
            if number == "seen":
                continue
            chain, source = way[0]
            counts[chain, source, number] += 1
            key = sink, ordinal, way
            if latest.get(key, -1) >= number:
                wrong.append(f"{number} came after {latest[key]} on the way {key}")
            latest[key] = number
            if number <= watermarks[sink]:
                wrong.append(f"sink {sink}: {number} came after watermark {watermarks[sink]}")
        if counts != self.expected:
            lost, more = self.expected - counts, counts - self.expected
            wrong.append(f"lost {sum(lost.values())} {list(lost)[:3]}, too many {sum(more.values())} {list(more)[:3]}")
        return wrong[:5]


class Runner:
    """One instance, and random jobs on it."""

    def __init__(self, options: Options, rng: random.Random, tally: Tally) -> None:
        self.options, self.rng, self.tally = options, rng, tally
        self.workers = rng.randint(2, 4)
        self.jet = shmjet.new_instance(JetConfig(cores=self.workers))
        self.runs = 0
        self.ended = tally.times[0]

    def one(self, number: int) -> None:
        """Run one or a few jobs at once, each with its fate."""
        rng = self.rng
        fates = [
            rng.choice(["done", "done", "done", "cancel", "fail", "kill"]) for _ in range(rng.choice([1, 1, 2, 3]))
        ]
        if "kill" in fates:
            fates = ["kill"] * len(fates)
        cases = [
            Case(rng, f"out{number}.{i}", self.workers, fate in ("cancel", "kill"), fate == "fail")
            for i, fate in enumerate(fates)
        ]
        executions = [self.jet.new_job(case.dag).execute() for case in cases]
        self.ends: dict[Any, float] = {}
        for execution in executions:
            execution.add_done_callback(lambda done: self.ends.setdefault(done, time.perf_counter()))
        if "kill" in fates or "cancel" in fates:
            time.sleep(rng.random() * 0.2)
        victim, at = 0, time.perf_counter()
        if "kill" in fates:
            victim = rng.choice(self.jet.cluster.members[0].workers)
            at = time.perf_counter()
            with contextlib.suppress(ProcessLookupError):  # killed a moment ago, and about to be replaced
                os.kill(victim, signal.SIGKILL)
        for case, fate, execution in zip(cases, fates, executions, strict=True):
            what = f"run {number} ({fate}, {self.workers} workers: {'; '.join(case.description)})"
            if fate == "cancel":
                at = time.perf_counter()
                execution.cancel()
            self.outcome(case, fate, execution, what, victim, at)
        replaced = not victim or wait_until(lambda: victim not in self.jet.cluster.members[0].workers)
        self.tally.check(replaced, f"run {number}: worker {victim} is not replaced")
        self.runs += 1
        self.tally.done += 1
        self.options.say(f"run {number}: {fates}")

    def outcome(self, case: Case, fate: str, execution: shmjet.Execution, what: str, victim: int, at: float) -> None:
        """Wait for a job's end and compare it with its fate."""
        tally = self.tally
        error: BaseException | None = None
        try:
            error = execution.exception(1.0 if victim else 4 * HANG_S)
        except CancelledError as cancelled:
            error = cancelled
        except FutureTimeout:
            if victim:  # it may not have used the worker; then it goes on and can be cancelled
                self.cancel(execution, what)
                return
            tally.complain(f"{what}: HANG: {execution}: {self.state(execution)}")
            self.cancel(execution, what)
            return
        if not tally.check(wait_until(lambda: execution in self.ends), f"{what}: no callback was called"):
            return
        took = self.ends[execution] - at
        if fate in ("cancel", "kill") and took > self.ended.target:
            self.options.say(f"SLOW: {what}: {took:.3f} s: {error!r}")
        if fate == "cancel":
            self.ended.add(took)
            tally.check(isinstance(error, CancelledError), f"{what}: got {error!r}")
        elif fate == "kill":
            self.ended.add(took)
            good = isinstance(error, WorkerLostError) and error.pid == victim
            tally.check(good, f"{what}: killed {victim}, got {error!r}")
        elif fate == "fail" and error is not None:
            good = isinstance(error, JobFailedError) and "as planned" in str(error)
            tally.check(good, f"{what}: got {error!r}")
        elif tally.check(error is None, f"{what}: got {error!r}"):
            found = self.jet.get_list(case.name)
            for problem in case.problems(list(found)):
                tally.complain(f"{what}: {problem}")
        self.jet.get_list(case.name).destroy()

    def cancel(self, execution: shmjet.Execution, what: str) -> None:
        execution.cancel()
        try:
            execution.exception(HANG_S)
        except CancelledError:
            pass
        except FutureTimeout:
            self.tally.complain(f"{what}: HANG: cancel() does not end {execution}")

    def state(self, execution: shmjet.Execution) -> str:
        """What a hanging job looks like."""
        metrics = execution.metrics()
        vertices = {
            name: (v.received_count, v.emitted_count, [p.worker for p in v.processors])
            for name, v in metrics.vertices.items()
        }
        return f"{vertices} {[(w.index, w.tasklets) for w in metrics.workers]}"

    def close(self) -> None:
        """End the instance."""
        self.jet.shutdown()


def main() -> int:
    options = parse_options(__doc__, count=400, ci=40)
    alone = private_shm()
    rng = random.Random(options.seed)
    tally = Tally("stealing", options)
    tally.timing("killed or cancelled to the end of the job", 0.5)
    mark = mark_processes()
    runner: Runner | None = None
    for number in range(options.count):
        watch(20 * HANG_S)
        if runner is None:
            runner = Runner(options, rng, tally)
        runner.one(number)
        if runner.runs == RENEW_AFTER or number == options.count - 1:
            runner.close()
            runner = None
    gone = all_gone(mark)
    tally.check(gone, f"processes left behind: {list(marked(mark))}")
    if alone:
        tally.check(not names(), f"left in /dev/shm: {names()}")
    return tally.finish()


if __name__ == "__main__":
    sys.exit(main())
