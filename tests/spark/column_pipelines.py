"""Random pipelines of stages of columns over adversarial rows, to be run by the engine and on Spark alike."""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Callable
from typing import Any

from shmjet import Batch, Pipeline, column, when
from shmjet.columns import count, max_, mean, min_, sum_
from shmjet.core.expressions import Expression

SCHEMA = "k bigint, n int, x double, s string, p boolean"
ROW_VALUES: dict[str, list[Any]] = {
    "k": [None, 0, 1, 2, 3, 1 << 40],
    "n": [None, 0, 1, -1, 7, 1000],
    "x": [None, 0.0, -0.0, 1.5, -2.25, math.nan, math.inf, 4.0],
    "s": [None, "", "a", "b", "ab", "ä€"],
    "p": [None, True, False],
}
DTYPES = {"k": "int64", "n": "int32", "x": "float64", "p": "bool"}

Read = Callable[[Pipeline, int], Any]
"""Reads table 0 or 1 into a pipeline, as batches."""


def random_rows(chance: random.Random, most: int) -> list[dict[str, Any]]:
    """Return rows of `SCHEMA`."""
    return [
        {name: chance.choice(values) for name, values in ROW_VALUES.items()} for _ in range(chance.randint(0, most))
    ]


def batch_of(rows: list[dict[str, Any]]) -> Batch:
    """Return the rows as one batch of the schema's types."""
    import numpy as np

    columns: dict[str, Any] = {}
    for name in ROW_VALUES:
        values = [row[name] for row in rows]
        if name == "s":
            columns[name] = values or np.zeros(0, "U1")
            continue
        mask = [value is None for value in values]
        zero = next(value for value in ROW_VALUES[name] if value is not None)
        columns[name] = np.ma.masked_array(np.array([zero if v is None else v for v in values], DTYPES[name]), mask)
    return Batch(columns)


def condition(chance: random.Random) -> Expression:
    """Return a random condition on the columns."""
    found: list[Expression] = [
        column("n") > 0,
        (column("x") <= 1.5) | (column("s") == "ab"),
        ~(column("x") == column("x")),
        column("k").is_in([0, 1, None]) & column("p"),
        column("s").is_not_null() & column("s").str.contains("a"),
        column("s").str.upper() == "AB",  # Spark has no translation
        column("n") // 3 != 0,
        column("s") >= "a",
    ]
    return chance.choice(found)


def outputs(chance: random.Random) -> dict[str, Expression]:
    """Return random columns to be computed, of the types that they have already."""
    found: dict[str, Expression] = {
        "x": column("x") / column("n").cast("float64"),
        "n": when(column("p")).then(column("n")).otherwise(0),
        "s": column("s").fill_null("?"),
        "k": column("k") % 2 + 1,
        "p": column("x") > column("n"),
    }
    return {name: found[name] for name in chance.sample(list(found), chance.randint(1, 3))}


def build(chance: random.Random, p: Pipeline, read: Read) -> Any:
    """Return the last stage of a random pipeline; the same for the same chance."""
    stage = read(p, 0)
    for _ in range(chance.randint(1, 3)):
        kind = chance.randrange(7)
        if kind == 0:
            stage = stage.filter(condition(chance))
        elif kind == 1:
            stage = stage.with_columns(**outputs(chance))
        elif kind == 2:
            stage = stage.select("k", "n", "x", "s", "p")
        elif kind == 3:
            stage = stage.union(read(p, 1).filter(condition(chance)))
        elif kind == 4:
            stage = stage.distinct()
        elif kind == 5:
            how = chance.choice(["semi", "anti"])
            key = chance.choice(["k", "x", "s"])
            stage = stage.join(read(p, 1).select(key), on=key, how=how)
        else:
            stage = stage.filter(column("x") < chance.choice([0, 2.0]))
    return end(chance, p, stage, read)


def end(chance: random.Random, p: Pipeline, stage: Any, read: Read) -> Any:
    """Add a last stage, which changes the columns."""
    kind = chance.randrange(4)
    if kind == 0:
        made = {"a": sum_("n"), "b": count("x"), "c": max_("s"), "d": min_("x")}
        if chance.random() < 0.5:
            made["e"] = mean("n")
        return stage.group_by(*chance.sample(["k", "x", "p"], 2)).agg(**made)
    if kind == 1:
        other = read(p, 1).select("k", "n", y=column("x") + 1).filter(column("n") > 0)
        how = chance.choice(["inner", "left", "right", "outer"])
        return stage.join(other, on="k", how=how, suffix="_right")
    if kind == 2:
        return stage.select("s", length=column("s").str.len_chars(), big=column("k") > 1)
    return stage


def as_rows(batches: list[Batch]) -> Counter[Any]:
    """Return rows that can be compared: NaN equals NaN, and 0.0 equals -0.0."""
    return Counter(
        tuple((name, *_comparable(value)) for name, value in sorted(row.items()))
        for batch in batches
        for row in batch.rows()
    )


def _comparable(value: Any) -> tuple[str, Any]:
    if isinstance(value, float):
        return "float", "nan" if math.isnan(value) else value + 0.0
    return type(value).__name__, value
