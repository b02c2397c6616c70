"""Sweeps: one job in many shapes, and where its cost per item makes a jump between neighbours.

A sweep has points in order: shares kept from 1 to 0, numbers of keys, sizes of items. All points are run in turn, round
by round, and medians count. Two neighbours are a cliff when one costs more than `CLIFF` times what is allowed next to
the other: what the other costs, and what the work itself costs more there. The latter is measured, not guessed. It is
what plain Python, or a library, takes for the same data (`Point.hand`); and an item that is kept may cost as much as
one does at the first point, where all are kept (`Point.kept`). A cliff is measured again before it is named, and named
only if the best runs show it, too.
"""

from __future__ import annotations

import dataclasses
import gc
import statistics
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from _harness import Options, Report, Result, human

CLIFF = 1.5
"""How much more than allowed a point may cost compared with its neighbour."""

KEPT_LIMIT = 1.2
"""How much more per item read a point may cost than the first, where a sweep says so."""


@dataclasses.dataclass(frozen=True)
class Point:
    """One shape.

    Args:
        label: what is printed.
        units: items, or rows, or bytes that one run reads.
        run: runs it once, and returns the seconds that it took.
        hand: does the same in plain Python or with another library; None where the work per unit is the same at all
            points.
        kept: share of the items that are emitted; None where that is the same at all points.
    """

    label: str
    units: float
    run: Callable[[], float]
    hand: Callable[[], object] | None = None
    kept: float | None = None


@dataclasses.dataclass(frozen=True)
class Sweep:
    """Points in order.

    Args:
        name: of the bench, without "shapes_".
        points: neighbours side by side.
        unit: of the figures.
        kept_limit: whether no point may cost more than `KEPT_LIMIT` times the first.
    """

    name: str
    points: Sequence[Point]
    unit: str = "ns/item"
    kept_limit: bool = False


@dataclasses.dataclass(frozen=True)
class Costs:
    """What one unit costs at each point, in nanoseconds: here, and by hand where that was measured."""

    ours: Sequence[float]
    hand: Sequence[float | None]


def cliffs(sweep: Sweep, costs: Costs) -> list[tuple[int, int]]:
    """Return the cliffs: pairs of the dear point and the neighbour that it is compared with.

    With `kept_limit` the first point is a neighbour of all others.
    """
    found = []
    for at in range(len(sweep.points)):
        for neighbour in (at - 1, at + 1):
            if 0 <= neighbour < len(sweep.points) and costs.ours[at] > CLIFF * allowed(sweep, costs, at, neighbour):
                found.append((at, neighbour))
        limit = KEPT_LIMIT * (costs.ours[0] + _by_hand_more(costs, at, 0))
        if sweep.kept_limit and costs.ours[at] > limit and (at, 0) not in found:
            found.append((at, 0))
    return found


def allowed(sweep: Sweep, costs: Costs, at: int, neighbour: int) -> float:
    """Return what a unit may cost at a point: as much as at its neighbour, and what the work itself costs more."""
    base = costs.ours[neighbour]
    kept, kept_neighbour = sweep.points[at].kept, sweep.points[neighbour].kept
    if kept is not None and kept_neighbour is not None:
        return base + max((kept - kept_neighbour) * costs.ours[0], _by_hand_more(costs, at, neighbour))
    hand, hand_neighbour = costs.hand[at], costs.hand[neighbour]
    if hand is None or hand_neighbour is None or hand <= hand_neighbour:
        return base
    return max(base * hand / hand_neighbour, base + hand - hand_neighbour)


def _by_hand_more(costs: Costs, at: int, neighbour: int) -> float:
    """Return what a unit costs more by hand at a point than at another, 0 where that was not measured."""
    hand, hand_neighbour = costs.hand[at], costs.hand[neighbour]
    return 0.0 if hand is None or hand_neighbour is None else max(hand - hand_neighbour, 0.0)


def measure(sweep: Sweep, rounds: int) -> tuple[Result, list[str]]:
    """Run a sweep; return what is reported, and the cliffs in words."""
    samples: list[list[float]] = [[] for _ in sweep.points]
    by_hand: list[list[float]] = [[] for _ in sweep.points]
    all_points = range(len(sweep.points))
    _sample(sweep, all_points, samples, by_hand, 1)
    for kept in (*samples, *by_hand):
        kept.clear()  # the warm-up
    _sample(sweep, all_points, samples, by_hand, rounds)
    suspects = cliffs(sweep, _figures(statistics.median, samples, by_hand))
    if suspects:
        again = sorted({point for pair in suspects for point in pair})
        _sample(sweep, again, samples, by_hand, 2 * rounds)
    costs = _figures(statistics.median, samples, by_hand)
    at_best = cliffs(sweep, _figures(min, samples, by_hand))
    named = [_in_words(sweep, costs, *pair) for pair in cliffs(sweep, costs) if pair in at_best]
    facts: dict[str, Any] = {
        point.label: human(ours) if hand is None else f"{human(ours)} ({human(hand)} by hand)"
        for point, ours, hand in zip(sweep.points, costs.ours, costs.hand, strict=True)
    }
    facts["cliffs"] = "; ".join(named) or "none"
    spread = {"shmjet": (min(samples[0]), max(samples[0]))}
    return Result(f"shapes_{sweep.name}", sweep.unit, costs.ours[0], {}, {}, {}, spread, facts), named


def report_each(sweeps: Iterable[Sweep], options: Options, report: Report) -> list[str]:
    """Measure and report sweeps; return all cliffs."""
    found = []
    for sweep in sweeps:
        result, named = measure(sweep, options.rounds)
        report.add(result)
        found += [f"{result.bench}: {text}" for text in named]
    return found


def _sample(
    sweep: Sweep, points: Sequence[int], samples: list[list[float]], by_hand: list[list[float]], rounds: int
) -> None:
    for turn in range(rounds):
        for at in points if turn % 2 == 0 else reversed(points):
            point = sweep.points[at]
            gc.collect()
            samples[at].append(point.run() * 1e9 / point.units)
            if point.hand is not None:
                before = time.process_time_ns()
                point.hand()
                by_hand[at].append((time.process_time_ns() - before) / point.units)


def _figures(figure: Callable[[list[float]], float], samples: list[list[float]], by_hand: list[list[float]]) -> Costs:
    return Costs([figure(each) for each in samples], [figure(each) if each else None for each in by_hand])


def _in_words(sweep: Sweep, costs: Costs, at: int, neighbour: int) -> str:
    here, there = sweep.points[at].label, sweep.points[neighbour].label
    ratio = costs.ours[at] / costs.ours[neighbour]
    excess = costs.ours[at] / allowed(sweep, costs, at, neighbour)
    return f"{here} costs {ratio:.2g} times as much as {there}, {excess:.2g} times what the work explains"
