"""What all benches share: options, runs that alternate, medians, ratios, and printing.

A bench measures shmjet and its peers in one process tree and in turn (ours, peer, peer, ours, ...), so that a machine
that gets slower half way is slow for all. The median of the rounds counts. Nothing in here knows what is
measured.

A script looks like this:

    def main() -> int:
        options = parse_options(__doc__, benches=["ring_64B"])
        report = Report(options)
        if options.wants("ring_64B"):
            with Bench("ring_64B", "msg/s") as bench:
                bench.ours(lambda: rate(100_000, send_all))
                bench.peer("multiprocessing.Queue", lambda: rate(1_000, queue_all))
                bench.peer("faster-fifo", run_faster_fifo, needs="faster_fifo")
                report.add(bench.measure(rounds=options.rounds))
        return report.finish()
"""

from __future__ import annotations

import argparse
import dataclasses
import gc
import importlib.util
import json
import math
import os
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from types import TracebackType
from typing import Any

Contender = Callable[[], float]
"""Runs once and returns the figure measured, in the unit of its bench."""


class PeerSkipped(Exception):
    """Raised by a peer's function, or while it is being set up, when the peer cannot run on this machine."""


@dataclasses.dataclass(frozen=True)
class Options:
    """The command line that every bench understands."""

    json: bool = False
    quick: bool = False
    workers: int = 2
    only: tuple[str, ...] = ()
    without: tuple[str, ...] = ()

    @property
    def rounds(self) -> int:
        """How often each contender runs: 5, or 3 with `--quick`."""
        return 3 if self.quick else 5

    def wants(self, bench: str) -> bool:
        """Whether `bench` was asked for (all are, unless `--only` named some)."""
        return not self.only or bench in self.only

    def wants_peer(self, peer: str) -> bool:
        """Whether `peer` takes part (`--without NAME` leaves one out)."""
        return peer not in self.without


def parse_options(doc: str | None, benches: Sequence[str], argv: Sequence[str] | None = None) -> Options:
    """Parse `[--json] [--quick] [--workers N] [--only BENCH] [--without PEER]`."""
    parser = argparse.ArgumentParser(description=(doc or "").strip().splitlines()[0] if doc else None)
    parser.add_argument("--json", action="store_true", help="print one JSON object a line")
    parser.add_argument("--quick", action="store_true", help="under two minutes in all")
    parser.add_argument("--workers", type=int, default=default_workers(), help="processes or cores to use")
    parser.add_argument("--only", action="append", default=[], choices=list(benches), help="this bench (repeatable)")
    parser.add_argument("--without", action="append", default=[], metavar="PEER", help="not this peer (repeatable)")
    found = parser.parse_args(argv)
    if found.workers < 1:
        parser.error(f"--workers must be at least 1, got {found.workers}")
    return Options(found.json, found.quick, found.workers, tuple(found.only), tuple(found.without))


def default_workers() -> int:
    """The number of cores that this process may use."""
    return len(os.sched_getaffinity(0))


@dataclasses.dataclass(frozen=True)
class Result:
    """The medians of one bench. A ratio above 1 always means that shmjet is better."""

    bench: str
    unit: str
    shmjet: float | None
    peers: Mapping[str, float]
    ratio: Mapping[str, float]
    skipped: Mapping[str, str]
    spread: Mapping[str, tuple[float, float]]
    facts: Mapping[str, Any]

    def to_json(self) -> str:
        """One line of JSON: bench, unit, shmjet, peers, ratio; skipped, spread and facts when there are any."""
        shown: dict[str, Any] = {
            "bench": self.bench,
            "unit": self.unit,
            "shmjet": _rounded(self.shmjet),
            "peers": {name: _rounded(value) for name, value in self.peers.items()},
            "ratio": {name: _rounded(value, 3) for name, value in self.ratio.items()},
        }
        if self.skipped:
            shown["skipped"] = dict(self.skipped)
        if self.spread:
            shown["spread"] = {name: [_rounded(low), _rounded(high)] for name, (low, high) in self.spread.items()}
        if self.facts:
            shown["facts"] = dict(self.facts)
        return json.dumps(shown)


class Bench:
    """One figure of shmjet with the same figure of its peers.

    `unit` decides what is better: something per second (`"msg/s"`) more, anything else (`"s"`, `"us"`) less;
    `higher_is_better` overrules that. Whatever must be kept open over all rounds (an instance, a pool) is entered into
    `resources` and closed at the end of the `with`.
    """

    def __init__(self, name: str, unit: str, *, higher_is_better: bool | None = None) -> None:
        self.name = name
        self.unit = unit
        self.higher_is_better = unit.endswith("/s") if higher_is_better is None else higher_is_better
        self.resources = ExitStack()
        self.facts: dict[str, Any] = {}
        self._ours: Contender | None = None
        self._peers: dict[str, Contender] = {}
        self._skipped: dict[str, str] = {}

    def __enter__(self) -> Bench:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.resources.close()

    def ours(self, run: Contender) -> None:
        """shmjet's own run."""
        self._ours = run

    def peer(self, name: str, run: Contender, *, needs: str | None = None) -> None:
        """A peer's run. `needs` is the module to import; when it is not installed the peer is named as skipped."""
        if needs is not None and not installed(needs):
            self.skip(name, f"{needs} is not installed")
        else:
            self._peers[name] = run

    def skip(self, name: str, why: str) -> None:
        """Name a peer that does not take part, and why."""
        self._skipped[name] = why

    def measure(self, rounds: int = 5, warm_up: int = 1) -> Result:
        """Run all contenders in turn, `warm_up` + `rounds` times, and return the medians of the `rounds`.

        The order is turned round every other time. A peer that raises `PeerSkipped` or `ImportError` is named as
        skipped; any other error is a bug in the bench and ends it.
        """
        contenders: dict[str, Contender] = dict(self._peers)
        if self._ours is not None:
            contenders = {"shmjet": self._ours, **contenders}
        samples: dict[str, list[float]] = {name: [] for name in contenders}
        for turn in range(warm_up + rounds):
            names = list(contenders) if turn % 2 == 0 else list(reversed(contenders))
            for name in names:
                gc.collect()
                try:
                    figure = contenders[name]()
                except (PeerSkipped, ImportError) as reason:
                    if name == "shmjet":
                        raise
                    self.skip(name, str(reason))
                    del contenders[name], samples[name]
                    continue
                if turn >= warm_up:
                    samples[name].append(figure)
        medians = {name: statistics.median(figures) for name, figures in samples.items()}
        spread = {name: (min(figures), max(figures)) for name, figures in samples.items()}
        ours = medians.pop("shmjet", None)
        ratio = {name: self._ratio(ours, theirs) for name, theirs in medians.items()} if ours is not None else {}
        return Result(self.name, self.unit, ours, medians, ratio, self._skipped, spread, self.facts)

    def _ratio(self, ours: float, theirs: float) -> float:
        above, below = (ours, theirs) if self.higher_is_better else (theirs, ours)
        return above / below if below else math.inf


class Report:
    """Prints results as they come: one JSON object a line, or a table that a person can read."""

    def __init__(self, options: Options) -> None:
        self.results: list[Result] = []
        self._json = options.json

    def add(self, result: Result) -> None:
        """Print `result` now and keep it."""
        self.results.append(result)
        if self._json:
            print(result.to_json(), flush=True)
            return
        print(f"{result.bench} ({result.unit})")
        if result.shmjet is not None:
            print(f"  {'shmjet':<24} {human(result.shmjet):>10}{_range(result, 'shmjet')}")
        for name, theirs in result.peers.items():
            ratio = f"   ratio {result.ratio[name]:.3g}" if name in result.ratio else ""
            print(f"  {name:<24} {human(theirs):>10}{_range(result, name)}{ratio}")
        for name, why in result.skipped.items():
            print(f"  {name:<24}    skipped: {why}")
        for name, fact in result.facts.items():
            print(f"  {name}: {fact}")
        sys.stdout.flush()

    def finish(self) -> int:
        """The exit status of the script: 1 when nothing was measured."""
        return 0 if self.results else 1


def measure_each(doc: str | None, benches: Mapping[str, tuple[str, Callable[[Bench, Options], None]]]) -> int:
    """Be the `main` of a script with benches that need nothing but the options; return the exit status.

    Args:
        doc: of the script.
        benches: by name, the unit and what adds the contenders. What they need and find missing is a `PeerSkipped`,
            which ends the script.
    """
    options = parse_options(doc, benches=list(benches))
    report = Report(options)
    for name, (unit, prepare) in benches.items():
        if options.wants(name):
            with Bench(name, unit) as bench:
                try:
                    prepare(bench, options)
                except PeerSkipped as reason:
                    print(f"{os.path.basename(sys.argv[0])}: skipped: {reason}", file=sys.stderr)
                    return 0
                report.add(bench.measure(rounds=options.rounds))
    return report.finish()


def installed(module: str) -> bool:
    """Whether `module` can be imported; it is looked for, not imported."""
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:
        return False


def elapsed(run: Callable[[], object]) -> float:
    """Seconds that one call of `run` takes."""
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def rate(count: float, run: Callable[[], object]) -> float:
    """`count` things per second, where one call of `run` handles `count` of them."""
    return count / elapsed(run)


def human(value: float) -> str:
    """Four significant digits with the thousands' letter: `1.25M`, `310.4k`, `0.0032`."""
    for factor, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= factor:
            return f"{value / factor:.4g}{letter}"
    return f"{value:.4g}"


def _rounded(value: float | None, digits: int = 6) -> float | None:
    return None if value is None or not math.isfinite(value) else float(f"{value:.{digits}g}")


def _range(result: Result, name: str) -> str:
    low, high = result.spread[name]
    return f"   [{human(low)} .. {human(high)}]"
