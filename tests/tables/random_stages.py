"""Random chains of stages of columns, with expressions; polars carries the same stages out.

Every stage is written once, `step.apply`, and given to a stage of a pipeline and to a `PolarsStage`. Tables have nulls,
NaN, -0.0, infinities, long and empty text and dates before 1970; integers are small, so that nothing overflows.
"""

from __future__ import annotations

import datetime
import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from shmjet import Batch, column, sources, when
from shmjet.columns import count, max_, mean, median, min_, n_unique, sum_
from shmjet.core.expressions import Expression
from shmjet.pipeline import Pipeline
from tests.columns.awkward import Table, plain
from tests.columns.differences import Expected
from tests.pipeline.running import list_sink
from tests.tables.polars_stages import PolarsStage

KINDS: Final = {"a": "int64", "b": "int64", "x": "float64", "s": "text", "d": "date", "t": "bool"}
VALUES: Final[dict[str, list[Any]]] = {
    "int64": [0, 1, 2, -1, 5, -7, 100],
    "float64": [0.0, -0.0, 0.5, -2.25, float("nan"), float("inf"), 1024.0],
    "text": ["", "a", "ab", "B", "x" * 40, "x" * 40 + "y", "é", "😀a", "\0"],
    "date": [datetime.date(*day) for day in ((1, 1, 1), (1969, 12, 31), (2024, 2, 29), (9999, 12, 31))],
    "bool": [True, False],
}
MOST_ROWS: Final = 2000
"""Of a stage; joins of joins may make any number."""

Kinds = Mapping[str, str]
"""Kind by column: one of `KINDS`, or "ratio", floats whose last digits depend on the order of additions."""
Apply = Callable[[Any, Any], Any]


@dataclass(frozen=True)
class Step:
    """One stage.

    Args:
        name: for messages.
        apply: to the stage before and a second one; both may be of shmjet or of polars.
        kinds: of the columns that come out.
        is_ordered: by columns that leave no ties.
    """

    name: str
    apply: Apply
    kinds: Kinds
    is_ordered: bool = False


# -- expressions -------------------------------------------------------------------------------------------------------


class Expressions:
    """Makes random expressions of columns.

    Args:
        rng: what decides.
        kinds: of the columns that there are.
    """

    def __init__(self, rng: random.Random, kinds: Kinds) -> None:
        self._rng, self._kinds = rng, kinds

    def of(self, kind: str, depth: int = 2) -> Expression | None:
        """Return an expression of a kind, or None where no column leads to one."""
        if kind == "date":
            return self._column(kind)
        return {"bool": self._bool, "int64": self._integer, "float64": self._float, "text": self._text}[kind](depth)

    def _column(self, kind: str) -> Any:
        found = [name for name, each in self._kinds.items() if each == kind]
        return column(self._rng.choice(found)) if found else None

    def _value(self, kind: str) -> Any:
        return self._rng.choice([value for value in VALUES[kind] if value == value])

    def _bool(self, depth: int) -> Any:
        rng = self._rng
        if depth and rng.random() < 0.4:
            one, two = self._bool(depth - 1), self._bool(depth - 1)
            return rng.choice([one & two, one | two, ~one])
        kind = rng.choice(["int64", "int64", "float64", "text", "date", "bool"])
        given: Any = self.of(kind, depth - 1 if depth else 0)
        if given is None or not given.names:
            name = rng.choice(list(self._kinds))
            return rng.choice([column(name).is_null(), ~column(name).is_null()])
        if kind == "bool":
            return rng.choice([given, given.fill_null(rng.random() < 0.5), given.is_null()])
        value = self._value(kind)
        if kind == "text" and rng.random() < 0.5:
            part = rng.choice(["a", "x", "é", "", "B"])
            return rng.choice(
                [
                    given.str.contains(part, literal=True),
                    given.str.contains("^x+y?$|a"),
                    given.str.starts_with(part),
                    given.str.ends_with(part),
                ]
            )
        return rng.choice(
            [
                given < value,
                given <= value,
                given > value,
                given >= value,
                given == value,
                given != value,
                given.is_null(),
                given.is_in([value, self._value(kind)]) if kind != "float64" else given == value,
            ]
        )

    def _integer(self, depth: int) -> Any:
        rng, given = self._rng, self._column("int64")
        if depth == 0 or given is None:
            text = self._column("text")
            return text.str.len_chars() if text is not None and (given is None or rng.random() < 0.3) else given
        number = rng.choice([1, -3, 2])
        other = self._integer(depth - 1)
        choices = [
            lambda: given + other,
            lambda: given - number,
            lambda: number - given,
            lambda: given * number,
            lambda: -given,
            lambda: abs(given),
            lambda: given.fill_null(number),
            lambda: when(self._bool(depth - 1)).then(given).otherwise(other),
            lambda: when(self._bool(0)).then(number).when(self._bool(0)).then(given).otherwise(None),
        ]
        day = self._column("date")
        if day is not None:
            choices += [day.dt.year, day.dt.month, day.dt.day, day.dt.weekday]
        return rng.choice(choices)()

    def _float(self, depth: int) -> Any:
        rng, given, number = self._rng, self._column("float64"), self._column("int64")
        if given is None:
            return None if number is None else number / rng.choice([2, -4, 0.5])
        choices = [given, given * 0.5, given + 1, given / 2, -given, given.fill_null(0.25)]
        if number is not None and depth:
            choices += [given + number, number * 0.5, number.cast("float64")]
        return rng.choice(choices)

    def _text(self, depth: int) -> Any:
        rng, given = self._rng, self._column("text")
        if given is None or depth == 0:
            return given
        choices = [
            given.str.upper,
            given.str.lower,
            lambda: given.str.slice(rng.choice([0, 1, -2, 50]), rng.choice([None, 0, 1, 3])),
            lambda: given.fill_null("?"),
            lambda: when(self._bool(0)).then(given).otherwise("other"),
            lambda: when(self._bool(0)).then("long " * 9).otherwise(given),
        ]
        return rng.choice(choices)()


# -- stages ------------------------------------------------------------------------------------------------------------


def _filter(rng: random.Random, kinds: Kinds) -> Step:
    condition = Expressions(rng, kinds).of("bool", 3)
    return Step(f"filter({condition!r})", lambda stage, _: stage.filter(condition), kinds)


def _with_columns(rng: random.Random, kinds: Kinds) -> Step:
    made, found = {}, dict(kinds)
    for name in rng.sample(["a", "b", "x", "s", "new", "ä ö.ü"], 2):
        kind = rng.choice(["int64", "float64", "text", "bool", "date"])
        expression = Expressions(rng, kinds).of(kind)
        if expression is not None:
            made[name], found[name] = expression, kind
    if not made:
        return _filter(rng, kinds)
    return Step(f"with_columns({made!r})", lambda stage, _: stage.with_columns(**made), found)


def _select(rng: random.Random, kinds: Kinds) -> Step:
    names = rng.sample(list(kinds), rng.randint(1, len(kinds)))
    made: dict[str, Any] = {}
    found = {name: kinds[name] for name in names}
    kind = rng.choice(["int64", "text", "bool"])
    expression = Expressions(rng, kinds).of(kind)
    if expression is not None and "made" not in found:
        made["made"], found["made"] = expression, kind
    return Step(f"select({names}, {made!r})", lambda stage, _: stage.select(*names, **made), found)


def _group(rng: random.Random, kinds: Kinds) -> Step:
    names = rng.sample(list(kinds), rng.randint(0 if rng.random() < 0.2 else 1, min(3, len(kinds))))
    found = {name: kinds[name] for name in names}
    rows = _free("n", found)
    aggregates: dict[str, Any] = {rows: count()}
    found[rows] = "int64"
    for name in rng.sample(list(kinds), min(3, len(kinds))):
        kind = kinds[name]
        ways: list[tuple[Any, str]] = [(count, "int64"), (n_unique, "int64")]
        if kind in ("int64", "float64"):
            ways += [(sum_, kind), (mean, "ratio"), (median, "ratio"), (min_, kind), (max_, kind)]
        elif kind in ("text", "date"):
            ways += [(min_, kind), (max_, kind)]
        made, result = rng.choice(ways)
        given = Expressions(rng, kinds).of(kind, 1) if kind in VALUES and rng.random() < 0.4 else None
        out = _free(f"{made.__name__}{name}", found)
        aggregates[out] = made(given if given is not None else name)
        found[out] = result
    return Step(
        f"group_by({names}).agg({aggregates!r})", lambda stage, _: stage.group_by(*names).agg(**aggregates), found
    )


def _free(name: str, taken: Kinds) -> str:
    """Return a name that is not taken."""
    while name in taken:
        name += "'"
    return name


def _join(rng: random.Random, kinds: Kinds) -> Step:
    keys = [name for name in rng.sample(list(kinds), min(2, len(kinds))) if kinds[name] in KINDS.values()]
    right = {name: rng.choice([n for n, kind in KINDS.items() if kind == kinds[name]]) for name in keys}
    right = dict(zip(right, dict.fromkeys(right.values()), strict=False))  # each once
    how = rng.choice(["inner", "left", "right", "outer", "semi", "anti"])
    others = {f"_{name}": kind for name, kind in KINDS.items()}
    renamed = {new: column(new[1:]) for new in others}
    left_on, right_on = list(right), [f"_{name}" for name in right.values()]
    found = dict(kinds)
    if how not in ("semi", "anti"):
        found |= {name: kind for name, kind in others.items() if name not in right_on}
    if set(others) & set(kinds):
        return _filter(rng, kinds)

    def apply(stage: Any, other: Any) -> Any:
        return stage.join(other.select(**renamed), left_on=left_on, right_on=right_on, how=how)

    return Step(f"join({left_on}, {right_on}, {how})", apply, found)


def _distinct(rng: random.Random, kinds: Kinds) -> Step:
    if rng.random() < 0.5:
        return Step("distinct()", lambda stage, _: stage.distinct(), kinds)
    names = rng.sample(list(kinds), rng.randint(1, len(kinds)))
    return Step(
        f"distinct({names}), select",
        lambda stage, _: stage.distinct(*names).select(*names),
        {name: kinds[name] for name in names},
    )


def _top(rng: random.Random, kinds: Kinds) -> Step:
    name, number = rng.choice(list(kinds)), rng.choice([1, 3, 1000])
    return Step(f"top({number}, {name})", lambda stage, _: stage.top(number, name).select(name), {name: kinds[name]})


def _union(rng: random.Random, kinds: Kinds) -> Step:
    condition = Expressions(rng, kinds).of("bool", 1)
    order = rng.sample(list(kinds), len(kinds))
    return Step(
        f"union(filter({condition!r}).select({order}))",
        lambda stage, _: stage.union(stage.filter(condition).select(*order)),
        kinds,
    )


def _sort(rng: random.Random, kinds: Kinds) -> Step:
    names = rng.sample(list(kinds), len(kinds))
    ways = [rng.random() < 0.5 for _ in names]
    first = rng.random() < 0.3
    return Step(
        f"sort({names}, {ways}, nulls_first={first})",
        lambda stage, _: stage.sort(*names, descending=ways, nulls_first=first),
        kinds,
        is_ordered=True,
    )


_STEPS: Final = (_filter, _filter, _with_columns, _with_columns, _select, _group, _group, _join, _join, _distinct, _top)
_RARE: Final = (_union, _sort)


class StageCase:
    """Two tables and a chain of stages.

    Args:
        seed: of everything random.
    """

    def __init__(self, seed: int) -> None:
        rng = self.rng = random.Random(seed)
        self.tables = [self._table(rng), self._table(rng)]
        frames = [PolarsStage(table.in_polars().lazy()) for table in self.tables]
        self.steps: list[Step] = []
        kinds: Kinds = KINDS
        stage = frames[0]
        for _ in range(rng.randint(1, 5)):
            step = rng.choice(_RARE if rng.random() < 0.2 else _STEPS)(rng, kinds)
            made = PolarsStage(step.apply(stage, frames[1]).frame.collect().lazy())
            if made.frame.select("*").collect().height <= MOST_ROWS:
                self.steps.append(step)
                stage, kinds = made, step.kinds
        self.names = list(kinds)
        self.frame = stage.frame.collect()
        self.is_ordered = bool(self.steps) and self.steps[-1].is_ordered

    def _table(self, rng: random.Random) -> Table:
        size = rng.choice((0, 1, 5, 30, 80))
        nulls = rng.choice((0.0, 0.1, 0.4))
        columns = {
            name: [None if rng.random() < nulls else rng.choice(VALUES[kind]) for _ in range(size)]
            for name, kind in KINDS.items()
        }
        return Table(KINDS, columns, is_typed=True)

    def __repr__(self) -> str:
        return f"{[step.name for step in self.steps]} of {self.tables}"

    def jobs(self) -> Iterator[tuple[str, Pipeline]]:
        """Give the chain from all cuts of both tables."""
        others = list(self.tables[1].cuts(self.rng).items())
        for at, (name, batches) in enumerate(self.tables[0].cuts(self.rng).items()):
            other, more = others[at % len(others)]
            yield f"{name} with {other}", self._pipeline(batches, more)

    def _pipeline(self, one: list[Batch], two: list[Batch]) -> Pipeline:
        pipeline = Pipeline()
        stage: Any = pipeline.read_from(sources.items(one))
        joins = any(step.name.startswith("join") for step in self.steps)
        other = pipeline.read_from(sources.items(two)) if joins else None
        for step in self.steps:
            stage = step.apply(stage, other)
        stage.write_to(list_sink("out"))
        return pipeline

    def expected(self) -> Iterator[tuple[str, Expected]]:
        """Give the rows of polars."""
        assert self.frame.columns == self.names
        yield "polars", Expected([tuple(map(plain, row)) for row in self.frame.rows()])
