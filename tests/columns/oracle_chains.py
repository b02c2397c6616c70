"""Chains of stages over columns: what DuckDB makes of the same query, and polars of the same frame.

A chain is a pipeline from tables of small integers, floats and text with nulls. Many stages have two forms, one of
columns and one of rows, and which one a chain takes is a matter of chance; the result is the same.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from operator import itemgetter
from typing import Any, Final

import duckdb
import polars

from shmjet import Batch, sources
from shmjet.columns import count, max_, min_, sum_
from shmjet.pipeline import BatchStage, Pipeline
from tests.columns.awkward import Table, plain
from tests.columns.differences import COMPARES_AS_IEEE, NULL_KEYS_OF_ITEMS_MATCH, Expected
from tests.pipeline.running import list_sink

KINDS: Final = {"a": "int64", "b": "int64", "x": "float64", "s": "text"}
"""Columns of every stage of a chain, with nulls."""
NAMES: Final = tuple(KINDS)
_VALUES: Final[dict[str, list[Any]]] = {
    "a": [0, 1, 2, -1],
    "b": [0, 1, 5, -7, 100],
    "x": [0.0, 0.5, -2.25, float("nan"), float("inf")],
    "s": ["", "a", "b", "x" * 40, "x" * 40 + "y", "é"],
}
_IN_DUCKDB: Final = {"eq": "=", "ne": "<>", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}
MOST_ROWS: Final = 3000
"""Of a stage; joins of joins may make any number."""


@dataclass(frozen=True)
class Step:
    """One stage in all its forms.

    Args:
        name: for messages.
        apply: to a stage of a pipeline, and the second stage for what joins.
        query: in SQL; `{0}` is the table before, `{1}` the second one.
        frame: of frames of polars.
    """

    name: str
    apply: Callable[[BatchStage[Any], BatchStage[Any]], BatchStage[Any]]
    query: str
    frame: Callable[[polars.DataFrame, polars.DataFrame], polars.DataFrame]


def _key(row: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(row[name] for name in NAMES)


# -- single stages -----------------------------------------------------------------------------------------------------


def _filter(rng: random.Random) -> Step:
    """Keep rows by a comparison with a constant, which nulls fail."""
    name, way = rng.choice("abxs"), rng.choice(tuple(_IN_DUCKDB))
    value = rng.choice([v for v in _VALUES[name] if v == v])
    by_rows = rng.random() < 0.5

    def apply(stage: BatchStage[Any], _: BatchStage[Any]) -> BatchStage[Any]:
        if by_rows:
            return stage.filter(lambda r: r[name] is not None and getattr(r[name], f"__{way}__")(value) is True)
        return stage.map_batches(lambda batch: batch.filter(_compared(batch[name], way, value)))

    test = f"{name} {_IN_DUCKDB[way]} {_sql(value)}"
    expression = getattr(polars.col(name), way)(value)
    if name == "x" and COMPARES_AS_IEEE:
        test = f"({test} OR isnan(x))" if way == "ne" else f"({test} AND NOT isnan(x))"
        nan = polars.col("x").is_nan()
        expression = expression | nan if way == "ne" else expression & ~nan
    form = "rows" if by_rows else "columns"
    return Step(
        f"filter of {form}: {test}", apply, f"SELECT * FROM {{0}} WHERE {test}", lambda f, _: f.filter(expression)
    )


def _compared(column: Any, way: str, value: Any) -> Any:
    from operator import eq, ge, gt, le, lt, ne

    return {"eq": eq, "ne": ne, "lt": lt, "le": le, "gt": gt, "ge": ge}[way](column, value)


def _nulls(rng: random.Random) -> Step:
    """Keep rows by what is null."""
    one, two = rng.sample(NAMES, 2)

    def apply(stage: BatchStage[Any], _: BatchStage[Any]) -> BatchStage[Any]:
        from shmjet import Nullable

        return stage.map_batches(lambda b: b.filter(Nullable(b[one]).is_null() | ~Nullable(b[two]).is_null()))

    return Step(
        f"{one} is null or {two} is not",
        apply,
        f"SELECT * FROM {{0}} WHERE {one} IS NULL OR {two} IS NOT NULL",
        lambda f, _: f.filter(polars.col(one).is_null() | polars.col(two).is_not_null()),
    )


def _logic(rng: random.Random) -> Step:
    """Keep rows by an expression of three-valued logic."""
    one, two = rng.choice((0, 1, 2)), rng.choice((0, 1, 5))
    is_or = rng.random() < 0.5

    def apply(stage: BatchStage[Any], _: BatchStage[Any]) -> BatchStage[Any]:
        def kept(batch: Batch) -> Batch:
            left, right = batch["a"] > one, batch["b"] <= two
            return batch.filter(~(left | right) if is_or else ~(left & right))

        return stage.map_batches(kept)

    left, right = polars.col("a") > one, polars.col("b") <= two
    return Step(
        "not " + ("or" if is_or else "and"),
        apply,
        f"SELECT * FROM {{0}} WHERE NOT (a > {one} {'OR' if is_or else 'AND'} b <= {two})",
        lambda f, _: f.filter(~(left | right) if is_or else ~(left & right)),
    )


def _compute(rng: random.Random) -> Step:
    """Compute a column of others; what is computed of null is null."""
    number = rng.choice((1, -3))
    by_rows = rng.random() < 0.5

    def row(r: dict[str, Any]) -> dict[str, Any]:
        return {**r, "b": None if r["a"] is None or r["b"] is None else r["a"] * number + r["b"] % 7}

    def apply(stage: BatchStage[Any], _: BatchStage[Any]) -> BatchStage[Any]:
        if by_rows:
            return stage.map(row)
        return stage.map_batches(lambda b: b.with_columns({"b": b["a"] * number + b["b"] % 7}))

    modulo = "((b % 7) + 7) % 7"  # which rounds down, as Python does
    return Step(
        f"b = a * {number} + b % 7, {'rows' if by_rows else 'columns'}",
        apply,
        f"SELECT a, a * {number} + {modulo} AS b, x, s FROM {{0}}",
        lambda f, _: f.with_columns((polars.col("a") * number + ((polars.col("b") % 7) + 7) % 7).alias("b")),
    )


def _fill(rng: random.Random) -> Step:
    """Put a value for null."""
    name = rng.choice("abs")
    value: Any = "?" if name == "s" else 3

    def apply(stage: BatchStage[Any], _: BatchStage[Any]) -> BatchStage[Any]:
        from shmjet import Nullable

        return stage.map_batches(lambda b: b.with_columns({name: Nullable(b[name]).fill_null(value)}))

    columns = ", ".join(f"coalesce({n}, {_sql(value)}) AS {n}" if n == name else n for n in NAMES)
    return Step(
        f"fill {name}",
        apply,
        f"SELECT {columns} FROM {{0}}",
        lambda f, _: f.with_columns(polars.col(name).fill_null(value)),
    )


def _distinct(rng: random.Random) -> Step:
    """Keep one of equal rows."""
    by_rows = rng.random() < 0.5

    def apply(stage: BatchStage[Any], _: BatchStage[Any]) -> BatchStage[Any]:
        return stage.distinct(key=_key) if by_rows else stage.group_by(*NAMES).agg()

    name = f"distinct {'rows' if by_rows else 'columns'}"
    return Step(name, apply, "SELECT DISTINCT * FROM {0}", lambda f, _: f.unique())


def _group(rng: random.Random) -> Step:
    """Reduce groups; the results have the columns that all stages have."""
    keys = rng.choice((("a", "s"), ("s", "a"), ("a", "s", "x")))

    def apply(stage: BatchStage[Any], _: BatchStage[Any]) -> BatchStage[Any]:
        least = {} if "x" in keys else {"x": max_("x")}
        grouped = stage.group_by(*keys).agg(n=count("b"), low=min_("b"), total=sum_("b"), **least)
        return grouped.map_batches(
            lambda g: {"a": g["a"], "b": g["n"] + g["low"] - g["total"] % 5, "x": g["x"], "s": g["s"]}
        )

    x = "x" if "x" in keys else "max(x) AS x"
    total = "((sum(b) % 5) + 5) % 5"
    value = polars.col("b")

    def frame(before: polars.DataFrame, _: polars.DataFrame) -> polars.DataFrame:
        low = value.count().cast(polars.Int64) + value.min() - ((value.sum() % 5) + 5) % 5
        most = [] if "x" in keys else [_greatest(polars.col("x")).alias("x")]
        return before.group_by(keys).agg(low.alias("b"), *most).select(NAMES)

    query = f"SELECT a, (count(b) + min(b) - {total})::BIGINT AS b, {x}, s FROM {{0}} GROUP BY {', '.join(keys)}"
    return Step(f"group by {keys}", apply, query, frame)


def _greatest(column: polars.Expr) -> polars.Expr:
    """Return the maximum, with NaN for the greatest number."""
    return polars.when(column.is_nan().any()).then(float("nan")).otherwise(column.max())


# -- two streams -------------------------------------------------------------------------------------------------------


def _merge(_: random.Random) -> Step:
    """All rows of both."""
    return Step(
        "merge",
        lambda one, two: one.merge(two),
        "SELECT * FROM {0} UNION ALL SELECT * FROM {1}",
        lambda one, two: polars.concat([one, two.select(NAMES)]),
    )


def _join(rng: random.Random) -> Step:
    """Join rows by one key or by two; None is a key among items."""
    keys = rng.choice((("a",), ("s",), ("a", "s"), ("x",)))
    way = rng.choice(("join", "inner_hash_join", "hash_join"))
    key = itemgetter(*keys)

    def both(one: dict[str, Any], two: dict[str, Any] | None) -> dict[str, Any]:
        return {**one, "b": None if two is None else two["b"]}

    def apply(one: BatchStage[Any], two: BatchStage[Any]) -> BatchStage[Any]:
        if way == "join":
            return one.join(two, key, key, both)
        return getattr(one, way)(two, key, key, both)  # type: ignore[no-any-return]

    assert NULL_KEYS_OF_ITEMS_MATCH
    same = [f"p.{name} IS NOT DISTINCT FROM q.{name}" for name in keys]
    if keys == ("x",):
        same.append("NOT coalesce(isnan(p.x), FALSE)")
    kind = "LEFT" if way == "hash_join" else "INNER"

    def frame(one: polars.DataFrame, two: polars.DataFrame) -> polars.DataFrame:
        right = two.select(*keys, polars.col("b").alias("other"))
        if keys == ("x",):
            right = right.filter(polars.col("x").is_nan().not_() | polars.col("x").is_null())
        joined = one.join(right, on=list(keys), how="left" if way == "hash_join" else "inner", nulls_equal=True)
        return joined.with_columns(polars.col("other").alias("b")).select(NAMES)

    query = f"SELECT p.a, q.b, p.x, p.s FROM {{0}} p {kind} JOIN {{1}} q ON {' AND '.join(same)}"
    return Step(f"{way} by {keys}", apply, query, frame)


def _sort(rng: random.Random) -> Step:
    """Sort rows; what follows does not depend on it."""
    name, reverse = rng.choice("ab"), rng.random() < 0.5

    def apply(stage: BatchStage[Any], _: BatchStage[Any]) -> BatchStage[Any]:
        return stage.sort(lambda r: (r[name] is None, r[name] or 0), reverse)

    return Step("sort", apply, "SELECT * FROM {0}", lambda f, _: f)


_STEPS: Final = (_filter, _filter, _nulls, _logic, _compute, _fill, _distinct, _group, _merge, _join, _join, _sort)


class ChainCase:
    """Two tables and a chain of stages.

    Args:
        seed: of everything random.
    """

    is_ordered = False

    def __init__(self, seed: int) -> None:
        rng = self.rng = random.Random(seed)
        self.tables = [self._table(rng), self._table(rng)]
        self.steps: list[Step] = []
        frame, self.frames = self.tables[0].in_polars(), [self.tables[1].in_polars()]
        for _ in range(rng.randint(1, 6)):
            step = rng.choice(_STEPS)(rng)
            made = step.frame(frame, self.frames[0])
            if len(made) <= MOST_ROWS:
                self.steps.append(step)
                frame = made
        self.frame = frame

    def _table(self, rng: random.Random) -> Table:
        size = rng.choice((0, 1, 5, 30, 80))
        nulls = rng.choice((0.0, 0.1, 0.4))
        return Table(
            KINDS,
            {n: [None if rng.random() < nulls else rng.choice(_VALUES[n]) for _ in range(size)] for n in KINDS},
            is_typed=True,
        )

    def __repr__(self) -> str:
        return f"{[step.name for step in self.steps]} of {self.tables}"

    def jobs(self) -> Iterator[tuple[str, Pipeline]]:
        """Give the chain from all cuts of both tables, and from rows."""
        others = list(self.tables[1].cuts(self.rng).items())
        for at, (name, batches) in enumerate(self.tables[0].cuts(self.rng).items()):
            other, more = others[at % len(others)]
            yield f"{name} with {other}", self._pipeline(batches, more)

    def _pipeline(self, one: list[Batch], two: list[Batch]) -> Pipeline:
        pipeline = Pipeline()
        stage: BatchStage[Any] = pipeline.read_from(sources.items(one))
        if any("{1}" in step.query for step in self.steps):
            other: BatchStage[Any] = pipeline.read_from(sources.items(two))
        else:
            other = stage
        for step in self.steps:
            stage = step.apply(stage, other)
        stage.map(_row).write_to(list_sink("out"))
        return pipeline

    def expected(self) -> Iterator[tuple[str, Expected]]:
        """Give the rows of DuckDB and of polars."""
        query = "t"
        for step in self.steps:
            query = f"({step.query.format(query, 'u')})"
        with duckdb.connect(config={"threads": 1}) as database:
            self.tables[0].put_into(database, "t")
            self.tables[1].put_into(database, "u")
            yield "DuckDB", Expected([tuple(map(plain, row)) for row in database.execute(f"FROM {query}").fetchall()])
        yield "polars", Expected([tuple(map(plain, row)) for row in self.frame.select(NAMES).rows()])


def _row(row: dict[str, Any]) -> dict[str, Any]:
    return {name: row[name] for name in NAMES}


def _sql(value: Any) -> str:
    if isinstance(value, str):
        return f"'{value}'"
    return f"'{value}'::DOUBLE" if isinstance(value, float) else str(value)
