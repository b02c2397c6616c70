"""Random jobs with state, and what they give: by an interpreter over plain lists that knows nothing of the engine.

A job reads the numbers below `count` from one source, makes pairs `(key, number)` of them, sends them through steps
without state, then through one with state, into one sink. It is slow on purpose, so that a disturbance finds it at
work. `expected` is what the sink has in the end; `Outcome.complaint` compares, exactly or (at least once) by lower
bounds.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

SOURCES = ("items", "built", "files", "list", "map")
STATELESS = ("shift", "drop", "twice", "rebalance", "lookup", "service", "async", "merge")
STATEFUL = (
    "none",
    "rolling",
    "stateful",
    "flat_stateful",
    "distinct",
    "counting",
    "summing",
    "global",
    "two_inputs",
    "group_by",
    "sort",
    "rolling_counting",
)
SINKS = ("list", "files", "map")
ENDS_WITH_ONE_FOR_A_KEY = ("counting", "summing", "two_inputs", "group_by", "rolling_counting")
"""Steps that give each key once, so that a map can take what they give."""


@dataclass(frozen=True)
class Shape:
    """A job's description; the same seed gives the same one.

    Args:
        count: how many numbers the source has.
        keys: how many keys.
        pause: seconds that each number takes.
        parallelism: of the slow step.
    """

    source: str
    steps: tuple[str, ...]
    state: str
    sink: str
    count: int
    keys: int
    pause: float
    parallelism: int

    def __str__(self) -> str:
        chain = " ".join((self.source, *self.steps, self.state, self.sink))
        return f"{chain} ({self.count} numbers, {self.keys} keys, {self.parallelism} slow processors)"


def random_shape(rng: random.Random) -> Shape:
    """Return a description of a job of about a second or less."""
    state = rng.choice(STATEFUL)
    sinks = SINKS if state in ENDS_WITH_ONE_FOR_A_KEY else SINKS[:2]
    count = rng.choice([0, 1, 40, 200, 400, 400, 800])
    return Shape(
        source=rng.choice(SOURCES),
        steps=tuple(rng.sample(STATELESS, rng.choice([0, 1, 1, 2, 3]))),
        state=state,
        sink="list" if state == "sort" else rng.choice(sinks),
        count=count,
        keys=rng.choice([1, 3, 17, 100]),
        pause=rng.choice([0.0005, 0.001, 0.002]),
        parallelism=rng.choice([1, 1, 2, 3]),
    )


# -- the interpreter -------------------------------------------------------------------------------------------------


def expected(shape: Shape) -> list[Any]:
    """Return what the sink has in the end, in any order (but for `sort`)."""
    pairs = [(number % shape.keys, number) for number in range(shape.count)]
    for step in shape.steps:
        pairs = list(_plain_step(step, pairs))
    return _PLAIN_STATES[shape.state](pairs)


def _plain_step(step: str, pairs: list[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    for key, number in pairs:
        match step:
            case "shift":
                yield key, number + 1
            case "drop":
                if number % 3:
                    yield key, number
            case "twice":
                yield key, number
                yield key, number + 100_000
            case "lookup":
                yield key, number + 10 * key
            case "service" | "async":
                yield key, number + 7
            case "merge":
                yield key, number
                yield key, number + 1_000_000
            case _:
                yield key, number


def _running(pairs: list[tuple[int, int]]) -> list[tuple[int, int]]:
    counts: Counter[int] = Counter()
    found = []
    for key, _ in pairs:
        counts[key] += 1
        found.append((key, counts[key]))
    return found


def _totals(pairs: list[tuple[int, int]]) -> list[tuple[int, int]]:
    totals: Counter[int] = Counter()
    for key, number in pairs:
        totals[key] += number
    return [(key, totals[key]) for key in {key for key, _ in pairs}]


def _counts(pairs: list[tuple[int, int]]) -> list[tuple[int, int]]:
    return list(Counter(key for key, _ in pairs).items())


_PLAIN_STATES: dict[str, Callable[[list[tuple[int, int]]], list[Any]]] = {
    "none": list,
    "rolling": _running,
    "stateful": _running,
    "flat_stateful": lambda pairs: [pair for pair in _running(pairs) for _ in range(2)],
    "distinct": lambda pairs: list({(key, number % 50) for key, number in pairs}),
    "counting": _counts,
    "summing": _totals,
    "global": lambda pairs: [(0, len(pairs))],
    "two_inputs": lambda pairs: [(key, 1001 * count) for key, count in _counts(pairs)],
    "group_by": _totals,
    "sort": sorted,
    "rolling_counting": _counts,
}


# -- the same job for the engine -------------------------------------------------------------------------------------


def pipeline(shape: Shape, jet: Any, folder: Path, name: str, parallelism: int | None = None) -> Any:
    """Return the pipeline, and prepare what its source reads.

    Args:
        folder: for input and output files.
        name: of the lists and maps: `<name>` is the sink's.
        parallelism: of the slow step, in place of the description's.
    """
    from shmjet import Pipeline, sinks

    made = Pipeline()
    keys, pause = shape.keys, shape.pause

    def pair(number: Any) -> tuple[int, int]:
        number = int(number[1] if isinstance(number, tuple) else number)
        return number % keys, number

    def slow(item: Any) -> Any:
        time.sleep(pause)
        return item

    stage = made.read_from(_source(shape, jet, folder, name)).map(pair).set_name("pair")
    stage = stage.map(slow).set_name("slow").set_local_parallelism(parallelism or shape.parallelism)
    for step in shape.steps:
        stage = _step(step, stage, made)
    stage = _state(shape.state, stage)
    if shape.sink == "list":
        stage.write_to(sinks.list(name))
    elif shape.sink == "map":
        stage.write_to(sinks.map(name))
    else:
        stage.write_to(sinks.files(folder / f"{name}-out", lambda pair: f"{pair[0]},{pair[1]}"))
    return made


def _source(shape: Shape, jet: Any, folder: Path, name: str) -> Any:
    from shmjet import sources

    numbers = range(shape.count)
    if shape.source == "list":
        jet.get_list(f"{name}-in").clear()
        jet.get_list(f"{name}-in").extend(numbers)
        return sources.list(f"{name}-in")
    if shape.source == "map":
        jet.get_map(f"{name}-in").clear()
        jet.get_map(f"{name}-in").put_all({number: number for number in numbers})
        return sources.map(f"{name}-in")
    if shape.source == "files":
        place = folder / f"{name}-in"
        place.mkdir(exist_ok=True)
        for part in range(3):
            (place / f"{part}.txt").write_text("".join(f"{number}\n" for number in numbers[part::3]))
        return sources.files(str(place / "*.txt"))
    if shape.source == "built":
        return _built(shape.count)
    return sources.items(numbers)


def _built(count: int) -> Any:
    from shmjet import sources

    def fill(position: list[int], buffer: Any) -> None:
        start = position[0]
        position[0] = min(count, start + 5)
        buffer.add_all(range(start, position[0]))
        if position[0] == count:
            buffer.close()

    def restore(position: list[int], states: list[int]) -> None:
        (position[0],) = states

    return (
        sources.builder("built", lambda context: [0])
        .fill_buffer_fn(fill)
        .create_snapshot_fn(lambda position: position[0])
        .restore_snapshot_fn(restore)
        .build()
    )


def _step(step: str, stage: Any, made: Any) -> Any:
    from shmjet import sources

    match step:
        case "shift":
            return stage.map(lambda pair: (pair[0], pair[1] + 1)).set_name(step)
        case "drop":
            return stage.filter(lambda pair: pair[1] % 3).set_name(step)
        case "twice":
            return stage.flat_map(lambda pair: [pair, (pair[0], pair[1] + 100_000)]).set_name(step)
        case "rebalance":
            return stage.rebalance()
        case "lookup":
            from shmjet import join_map_entries

            table = made.read_from(sources.items([(key, 10 * key) for key in range(100)])).set_name("table")
            clause = join_map_entries(lambda pair: pair[0])
            return stage.hash_join(table, clause, lambda pair, ten: (pair[0], pair[1] + ten)).set_name(step)
        case "service":
            return stage.map_using_service(lambda: 7, lambda seven, pair: (pair[0], pair[1] + seven)).set_name(step)
        case "async":

            async def add(seven: int, pair: tuple[int, int]) -> tuple[int, int]:
                return pair[0], pair[1] + seven

            return stage.map_using_service_async(lambda: 7, add).set_name(step)
        case _:
            other = stage.map(lambda pair: (pair[0], pair[1] + 1_000_000)).set_name("other")
            return stage.merge(other).set_name(step)


def _state(state: str, stage: Any) -> Any:
    import numpy

    from shmjet import Batch
    from shmjet import aggregate_ops as ops
    from shmjet.columns import sum_

    keyed = stage.grouping_key(lambda pair: pair[0]) if state != "none" else None

    def count(counter: list[int], key: int, pair: tuple[int, int]) -> tuple[int, int]:
        counter[0] += 1
        return key, counter[0]

    def one_row(pair: tuple[int, int]) -> Any:
        return Batch({"k": numpy.array([pair[0]], "int64"), "n": numpy.array([pair[1]], "int64")})

    match state:
        case "rolling":
            return keyed.rolling_aggregate(ops.counting()).set_name("state")
        case "stateful":
            return keyed.map_stateful(lambda: [0], count).set_name("state")
        case "flat_stateful":
            return keyed.flat_map_stateful(lambda: [0], lambda s, key, pair: [count(s, key, pair)] * 2).set_name(
                "state"
            )
        case "distinct":
            return stage.map(lambda pair: (pair[0], pair[1] % 50)).set_name("less").distinct().set_name("state")
        case "counting":
            return keyed.aggregate(ops.counting()).set_name("state")
        case "summing":
            return keyed.aggregate(ops.summing(lambda pair: pair[1])).set_name("state")
        case "global":
            return stage.aggregate(ops.counting()).set_name("state").map(lambda n: (0, n)).set_name("named")
        case "two_inputs":
            other = stage.map(lambda pair: pair).set_name("again").grouping_key(lambda pair: pair[0])
            both = keyed.aggregate2(ops.counting(), other, ops.counting()).set_name("state")
            return both.map(lambda found: (found[0], found[1][0] + 1000 * found[1][1])).set_name("named")
        case "group_by":
            batches = stage.map(one_row).set_name("batches")
            groups = batches.group_by("k").agg(total=sum_("n")).set_name("state")
            return groups.flat_map(lambda row: [(int(row["k"]), int(row["total"]))]).set_name("named")
        case "sort":
            return stage.sort().set_name("state")
        case "rolling_counting":
            rolled = keyed.map_stateful(lambda: [0], count).set_name("state")
            return rolled.grouping_key(lambda pair: pair[0]).aggregate(ops.counting()).set_name("state 2")
    return stage


# -- comparing -------------------------------------------------------------------------------------------------------


def found_in(shape: Shape, jet: Any, folder: Path, name: str) -> list[Any]:
    """Return what the sink has; what has no name yet (a dot in front) does not count."""
    if shape.sink == "list":
        return list(jet.get_list(name))
    if shape.sink == "map":
        return list(jet.get_map(name).items())
    lines = [line for path in sorted((folder / f"{name}-out").glob("[!.]*")) for line in path.read_text().splitlines()]
    return [(int(key), int(number)) for key, _, number in (line.partition(",") for line in lines)]


def complaint(shape: Shape, found: list[Any], *, exactly: bool) -> str:
    """Return what is wrong with the result, empty when nothing is.

    At least once, items count twice, so numbers may only be larger: every value is there as often as it should be, or,
    behind a step with state, every key has as large a value.
    """
    wanted = expected(shape)
    pairs = [(key, int(value)) for key, value in found]
    if exactly:
        if shape.state == "sort":
            return "" if pairs == wanted else _difference(wanted, pairs)
        return "" if Counter(pairs) == Counter(wanted) else _difference(wanted, pairs)
    if shape.state in ("none", "sort", "distinct"):
        missing = Counter(wanted) - Counter(pairs)
        return f"lost {list(missing.elements())[:8]}" if missing else ""
    most: dict[int, int] = {}
    for key, value in pairs:
        most[key] = max(value, most.get(key, 0))
    short = [(key, value) for key, value in wanted if most.get(key, -1) < value]
    return f"lost: too small, or not there, are {short[:8]}, there is {list(most.items())[:8]}" if short else ""


def _difference(wanted: list[Any], found: list[Any]) -> str:
    lost, extra = Counter(wanted) - Counter(found), Counter(found) - Counter(wanted)
    if not lost and not extra:
        return "the order is wrong"
    return (
        f"lost {sum(lost.values())} of {len(wanted)}: {sorted(lost.elements())[:6]}, "
        f"extra {sum(extra.values())}: {sorted(extra.elements())[:6]}"
    )
