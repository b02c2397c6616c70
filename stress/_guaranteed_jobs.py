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
"""Of jobs without time; the others have a stream with an end."""
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
    "table_group",
    "table_join",
    "table_outer",
    "table_anti",
    "table_distinct",
    "table_sort",
    "table_top",
    "table_union",
)
TIMED = ("tumbling", "sliding", "session", "twice_windowed", "joined", "expiring")
"""Steps by event time."""
SINKS = ("list", "files", "map")
ENDS_WITH_ONE_FOR_A_KEY = (
    *("counting", "summing", "two_inputs", "group_by", "rolling_counting", "table_group"),
    *("tumbling", "sliding", "session", "twice_windowed"),
)
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
    state = rng.choice(STATEFUL + TIMED)
    sinks = SINKS if state in ENDS_WITH_ONE_FOR_A_KEY else SINKS[:2]
    count = rng.choice([0, 1, 40, 200, 400, 400, 800])
    return Shape(
        source="stream" if state in TIMED else rng.choice(SOURCES),
        steps=tuple(rng.sample(STATELESS, rng.choice([0, 1, 1, 2, 3]))),
        state=state,
        sink="list" if state in ("sort", "table_sort") else rng.choice(sinks),
        count=count,
        keys=rng.choice([1, 3, 17, 100]),
        pause=rng.choice([0.0005, 0.001, 0.002]),
        parallelism=rng.choice([1, 1, 2, 3]),
    )


# -- the interpreter -------------------------------------------------------------------------------------------------


def expected(shape: Shape) -> list[Any]:
    """Return what the sink has in the end, in any order (but for `sort`)."""
    if shape.state in TIMED:
        return _expected_in_time(shape)
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


def _groups(pairs: list[tuple[int, int]]) -> dict[int, list[int]]:
    found: dict[int, list[int]] = {}
    for key, number in pairs:
        found.setdefault(key, []).append(number)
    return found


def _joined(pairs: list[tuple[int, int]]) -> list[tuple[int, int]]:
    totals = dict(_totals(pairs))
    return [(key, 3 * number + totals[key]) for key, number in pairs]


def _outer(pairs: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Sums of the keys' even numbers and sums of their odd ones, -1 for none."""
    groups = _groups(pairs)
    found = []
    for key, numbers in groups.items():
        even, odd = ([n for n in numbers if n % 2 == rest] for rest in (0, 1))
        found.append((key, (sum(even) if even else -1) + 1000 * (sum(odd) if odd else -1)))
    return found


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
    "table_group": lambda pairs: [(key, sum(n) + 7 * len(set(n)) + max(n)) for key, n in _groups(pairs).items()],
    "table_join": _joined,
    "table_outer": _outer,
    "table_anti": lambda pairs: [(key, n) for key, n in pairs if key % 2],
    "table_distinct": lambda pairs: list({(key, n % 50) for key, n in pairs}),
    "table_sort": sorted,
    "table_top": lambda pairs: [(0, n) for n in sorted((n for _, n in pairs), reverse=True)[:7]],
    "table_union": lambda pairs: [*pairs, *(pair for pair in pairs if pair[1] % 2)],
}


SIZE_MS, SLIDE_MS, GAP_MS, WITHIN_MS, LAG_MS = 1_000, 250, 200, 30, 50


def timestamp_of(number: int) -> int:
    """When a number happened, in milliseconds: not quite in order."""
    return number * 10 + number * 7919 % LAG_MS


def _expected_in_time(shape: Shape) -> list[Any]:
    events: list[tuple[int, int, int]] = []
    for number in range(shape.count):
        pairs = [(number % shape.keys, number)]
        for step in shape.steps:
            pairs = list(_plain_step(step, pairs))
        events += [(timestamp_of(number), key, value) for key, value in pairs]
    match shape.state:
        case "tumbling":
            return list(_windows(events, SIZE_MS, SIZE_MS).items())
        case "sliding":
            return list(_windows(events, SIZE_MS, SLIDE_MS).items())
        case "twice_windowed":
            totals: Counter[int] = Counter()
            for place, count in _windows(events, SIZE_MS, SLIDE_MS).items():
                totals[(place // 1000 - 1) // SLIDE_MS * SLIDE_MS] += count  # the windows that end in the same slide
            return list(totals.items())
        case "session":
            return _sessions(events)
        case "expiring":
            return list(Counter(key for _, key, _ in events).items())
    left = [event for event in events if event[2] % 2 == 0]
    right = [event for event in events if event[2] % 2]
    return [
        (one[1], 3 * one[2] + 5 * other[2])
        for one in left
        for other in right
        if one[1] == other[1] and abs(one[0] - other[0]) <= WITHIN_MS
    ]


def _windows(events: list[tuple[int, int, int]], size: int, slide: int) -> Counter[int]:
    """The number of events of each key in each window: by key + 1000 * end."""
    counts: Counter[int] = Counter()
    for timestamp, key, _ in events:
        first = timestamp // slide * slide + slide
        for end in range(first, first + size, slide):
            counts[key + 1000 * end] += 1
    return counts


def _sessions(events: list[tuple[int, int, int]]) -> list[tuple[int, int]]:
    """The number of events in each session: by key + 1000 * start."""
    found = []
    for key in {key for _, key, _ in events}:
        times = sorted(timestamp for timestamp, other, _ in events if other == key)
        start, last, count = times[0], times[0], 0
        for timestamp in times:
            if timestamp >= last + GAP_MS:
                found.append((key + 1000 * start, count))
                start, count = timestamp, 0
            last, count = timestamp, count + 1
        found.append((key + 1000 * start, count))
    return found


# -- the same job for the engine -------------------------------------------------------------------------------------


def pipeline(shape: Shape, jet: Any, folder: Path, name: str, parallelism: int | None = None, aimed: Any = None) -> Any:
    """Return the pipeline, and prepare what its source reads.

    Args:
        folder: for input and output files.
        name: of the lists and maps: `<name>` is the sink's.
        parallelism: of the slow step, in place of the description's.
        aimed: the supplier of a step that passes items on (`_aimed_kills.py`).
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

    if shape.state in TIMED:
        stream = made.read_from(_built(shape.count).stream())
        stage = stream.with_timestamps(timestamp_of, allowed_lag=LAG_MS / 1000)
    else:
        stage = made.read_from(_source(shape, jet, folder, name))
    stage = stage.map(pair).set_name("pair")
    stage = stage.map(slow).set_name("slow").set_local_parallelism(parallelism or shape.parallelism)
    if aimed is not None:
        stage = stage.custom_transform("aimed", aimed).set_name("aimed")
    for step in shape.steps:
        stage = _step(step, stage, made)
    stage = _state_in_time(shape.state, stage) if shape.state in TIMED else _state(shape.state, stage)
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
        if not place.exists():  # a job that goes on from an export reads the same files; they must not have changed
            place.mkdir()
            for part in range(3):
                (place / f"{part}.txt").write_text("".join(f"{number}\n" for number in numbers[part::3]))
        return sources.files(str(place / "*.txt"))
    if shape.source == "built":
        return _built(shape.count).build()
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

    if state.startswith("table_"):
        return _tables(state, stage)
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


def _tables(state: str, stage: Any) -> Any:
    """Return the last of stages of columns, as pairs."""
    import numpy

    from shmjet import Batch, column, when
    from shmjet.columns import max_, n_unique, sum_

    def one_row(pair: tuple[int, int]) -> Any:
        return Batch({"k": numpy.array([pair[0]], "int64"), "n": numpy.array([pair[1]], "int64")})

    rows = stage.map(one_row).set_name("batches")
    k, n = column("k"), column("n")
    match state:
        case "table_group":
            groups = rows.group_by("k").agg(total=sum_("n"), kinds=n_unique("n"), most=max_("n"))
            made = groups.select("k", n=column("total") + 7 * column("kinds") + column("most"))
        case "table_join":
            totals = rows.group_by("k").agg(total=sum_("n"))
            made = rows.join(totals, on="k").select("k", n=3 * n + column("total"))
        case "table_outer":
            even = rows.filter(n % 2 == 0).group_by("k").agg(even=sum_("n"))
            odd = rows.filter(n % 2 == 1).group_by("k").agg(odd=sum_("n"))
            both = column("even").fill_null(-1) + 1000 * column("odd").fill_null(-1)
            made = even.join(odd, on="k", how="outer").select("k", n=both)
        case "table_anti":
            made = rows.join(rows.filter(k % 2 == 0).distinct("k"), on="k", how="anti")
        case "table_distinct":
            made = rows.with_columns(n=n % 50).distinct()
        case "table_sort":
            made = rows.sort("k", "n")
        case "table_top":
            made = rows.top(7, "n").select("n", k=k * 0)
        case _:
            made = rows.union(rows.filter(when(n % 2 == 1).then(True).otherwise(False)))
    return made.set_name("state").to_rows().map(lambda row: (int(row["k"]), int(row["n"]))).set_name("named")


def _state_in_time(state: str, stage: Any) -> Any:
    from shmjet import aggregate_ops as ops
    from shmjet import session, sliding, tumbling

    keyed = stage.grouping_key(lambda pair: pair[0])

    def by_end(found: Any) -> tuple[int, int]:
        return found.key + 1000 * found.end, found.result

    def add(counter: list[int], key: int, pair: tuple[int, int]) -> None:
        counter[0] += 1

    match state:
        case "tumbling":
            window = keyed.window(tumbling(SIZE_MS / 1000))
            return window.aggregate(ops.counting()).set_name("state").map(by_end).set_name("named")
        case "sliding":
            window = keyed.window(sliding(SIZE_MS / 1000, SLIDE_MS / 1000))
            return window.aggregate(ops.counting()).set_name("state").map(by_end).set_name("named")
        case "twice_windowed":
            first = keyed.window(sliding(SIZE_MS / 1000, SLIDE_MS / 1000)).aggregate(ops.counting()).set_name("state")
            second = first.window(tumbling(SLIDE_MS / 1000)).aggregate(ops.summing(lambda found: found.result))
            return second.set_name("state 2").map(lambda found: (found.start, found.result)).set_name("named")
        case "session":
            sessions = keyed.window(session(GAP_MS / 1000)).aggregate(ops.counting()).set_name("state")
            return sessions.map(lambda found: (found.key + 1000 * found.start, found.result)).set_name("named")
        case "expiring":
            return keyed.map_stateful(
                lambda: [0], add, ttl=0.1, on_evict=lambda counter, key, _: (key, counter[0])
            ).set_name("state")
    left = stage.filter(lambda pair: pair[1] % 2 == 0).set_name("even")
    right = stage.filter(lambda pair: pair[1] % 2).set_name("odd")
    return left.join(
        right,
        lambda pair: pair[0],
        lambda pair: pair[0],
        lambda one, other: (one[0], 3 * one[1] + 5 * other[1]),
        within=WITHIN_MS / 1000,
    ).set_name("state")


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
    if shape.state == "expiring":  # when a key is forgotten depends on when watermarks come, how often it came does not
        pairs = list(_summed(pairs).items())
    if exactly:
        if shape.state in ("sort", "table_sort"):
            return "" if pairs == wanted else _difference(wanted, pairs)
        return "" if Counter(pairs) == Counter(wanted) else _difference(wanted, pairs)
    if shape.state in (
        "none",
        "sort",
        "distinct",
        "joined",
        "table_sort",
        "table_distinct",
        "table_union",
        "table_anti",
    ):
        missing = Counter(wanted) - Counter(pairs)
        return f"lost {list(missing.elements())[:8]}" if missing else ""
    most: dict[int, int] = {}
    for key, value in pairs:
        most[key] = max(value, most.get(key, 0))
    short = [(key, value) for key, value in wanted if most.get(key, -1) < value]
    return f"lost: too small, or not there, are {short[:8]}, there is {list(most.items())[:8]}" if short else ""


def _summed(pairs: list[tuple[int, int]]) -> dict[int, int]:
    totals: Counter[int] = Counter()
    for key, value in pairs:
        totals[key] += value
    return totals


def _difference(wanted: list[Any], found: list[Any]) -> str:
    lost, extra = Counter(wanted) - Counter(found), Counter(found) - Counter(wanted)
    if not lost and not extra:
        return "the order is wrong"
    return (
        f"lost {sum(lost.values())} of {len(wanted)}: {sorted(lost.elements())[:6]}, "
        f"extra {sum(extra.values())}: {sorted(extra.elements())[:6]}"
    )
