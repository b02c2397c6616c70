"""Columns whose type changes from batch to batch: groups are those of all rows in one batch, whatever comes when."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any

import numpy as np
import pytest

from shmjet import Batch
from shmjet.columns import (
    Aggregate,
    count,
    first,
    last,
    list_,
    max_,
    max_by,
    mean,
    median,
    min_,
    min_by,
    n_unique,
    std,
    sum_,
    var,
)
from shmjet.columns.tables import as_table
from shmjet.columns.typed_groups import TypedGroups
from shmjet.data.schema_heads import SchemaHeads
from tests.examples import seeds

NUMBERS: dict[str, Callable[[random.Random], Any]] = {
    "bool": lambda rng: rng.random() < 0.5,
    "int8": lambda rng: rng.randint(-9, 9),
    "int64": lambda rng: rng.choice((rng.randint(-9, 9), 1 << 40)),
    "uint8": lambda rng: rng.randint(0, 9),
    "float64": lambda rng: rng.choice((0.5, -2.25, 3.0)),
    "decimal(5, 2)": lambda rng: Decimal(rng.choice(("0.50", "-2.25", "7.00"))),
    "decimal(20, 4)": lambda rng: Decimal(rng.choice(("0.5000", "-2.0625", "1000000.2500"))),
}
TEXTS: dict[str, Callable[[random.Random], Any]] = {
    "text": lambda rng: rng.choice(("", "a", "zz")),
    "U3": lambda rng: rng.choice(("b", "zz")),
    "category": lambda rng: rng.choice(("a", "c", "zz")),
}
ANY: dict[str, Aggregate] = {
    "n": count("v"),
    "rows": count(),
    "least": min_("v"),
    "most": max_("v"),
    "unique": n_unique("v"),
    "all": list_("v"),
    "low": min_by("v", "i"),
    "high": max_by("v", "i"),
}
OF_NUMBERS = ANY | {"sum": sum_("v"), "mean": mean("v"), "var": var("v"), "std": std("v"), "median": median("v")}
IN_ORDER = {"first": first("v"), "last": last("v")}


def batches_of(rng: random.Random, makers: dict[str, Callable[[random.Random], Any]]) -> list[Batch]:
    """Some batches of rows with a key, each with one type of value; some have nulls, or nothing else, or no rows."""
    found, at = [], 0
    for kind in rng.choices(list(makers), k=rng.randint(2, 5)):
        rows, nulls = rng.choice((0, 1, 2, 5)), rng.choice((0.0, 0.3, 1.0))
        values = [None if rng.random() < nulls else makers[kind](rng) for _ in range(rows)]
        keys = [rng.randint(0, 2) for _ in range(rows)]
        schema = {"k": "int64", "i": "int64", "v": kind}
        found.append(Batch({"k": keys, "i": list(range(at, at + rows)), "v": values}, schema=schema))
        at += rows
    return found


def outcome(groups: TypedGroups) -> Any:
    """The groups by key, values as Python has them: numbers of other types compare equal."""
    batch = groups.results(0, 1000)[0]
    found = {}
    for key, *row in batch.tuples():
        rest = dict(zip(batch.names[1:], row, strict=True))
        found[key] = {name: plain(name, value) for name, value in rest.items()}
    return found


def plain(name: str, value: Any) -> Any:
    if name == "all":
        return sorted(map(str, map(comparable, value)))
    if name in ("mean", "var", "std", "median", "sum") and value is not None:
        return float(f"{float(value) * (1 + 1e-12):.6g}")  # so that none lies between two
    return comparable(value)


def comparable(value: Any) -> Any:
    return float(value) if isinstance(value, (int, float, Decimal)) else value


def grouped(batches: Sequence[Batch], aggregates: dict[str, Aggregate], *, tells: bool = False) -> TypedGroups:
    groups, heads = TypedGroups(["k"], aggregates), SchemaHeads()
    for batch in batches:
        head = heads.before(batch) if tells else None
        if head is not None:
            groups.add(head)
        groups.add(batch)
    return groups


def merged(rng: random.Random, batches: Sequence[Batch], aggregates: dict[str, Aggregate]) -> TypedGroups:
    """The batches on several processors, whose states come to one in portions and in any order."""
    shares: list[list[Batch]] = [[] for _ in range(rng.randint(1, 3))]
    for batch in batches:
        rng.choice(shares).append(batch)
    heads, states = [], []
    for share in shares:
        groups = grouped(share, aggregates, tells=rng.random() < 0.5)
        head = groups.head()
        if head is not None:
            heads.append(head)
            position = 0
            while position >= 0 and len(groups):
                some, position = groups.states(position, 2)
                states.append(some)
    rng.shuffle(states)
    made = TypedGroups(["k"], aggregates)
    for some in [*heads, *states] if rng.random() < 0.7 else [*states, *heads]:
        made.merge(some)
    return made


def of_one_key(key: int, batches: Sequence[Batch], aggregates: dict[str, Aggregate]) -> TypedGroups:
    """What a processor has that gets the rows of one key, and is told the columns of all batches."""
    groups, heads = TypedGroups(["k"], aggregates), SchemaHeads()
    for batch in batches:
        head = heads.before(batch)
        if head is not None:
            groups.add(head)
        rows = batch.filter(np.asarray(batch["k"]) == key)
        if rows.num_rows:
            groups.add(rows)
    return groups


def check(seed: int, makers: dict[str, Callable[[random.Random], Any]], aggregates: dict[str, Aggregate]) -> None:
    rng = random.Random(seed)
    batches = batches_of(rng, makers)
    parts = as_table(batches)[1]
    whole = Batch.concat(parts) if parts else batches[0]
    expected = outcome(grouped([whole], aggregates))
    assert outcome(grouped(batches, aggregates | IN_ORDER)) == outcome(grouped([whole], aggregates | IN_ORDER)), seed
    shuffled = rng.sample(batches, len(batches))
    one, other = grouped(shuffled, aggregates, tells=True), merged(rng, shuffled, aggregates)
    for key, found in expected.items():
        assert outcome(of_one_key(key, shuffled, aggregates)) == {key: found}, (seed, batches)
    assert outcome(one) == expected, (seed, batches)
    assert outcome(other) == expected, (seed, batches)
    kinds = [{name: str(kind) for name, kind in each.results(0, 9)[0].schema.items()} for each in (one, other)]
    if any(value is not None for value in whole.values("v")):  # else there is nothing that shows a type
        assert kinds[0] == kinds[1], (seed, batches)


@pytest.mark.parametrize("seed", seeds(60))
def test_numbers_and_decimals(seed: int) -> None:
    for step in range(10):
        check(seed * 10 + step, NUMBERS, OF_NUMBERS)


@pytest.mark.parametrize("seed", seeds(30))
def test_text_and_categories(seed: int) -> None:
    for step in range(10):
        check(seed * 10 + step, TEXTS, ANY)


def test_what_is_told_after_rows_were_read() -> None:
    """Rows that have been sorted are of the kinds that are told later, without rows."""
    groups = TypedGroups(["k"], {"m": median("v")})
    ones = {"k": [1, 1, 2], "v": [3, None, 5]}
    of = {kind: Batch(ones, schema={"k": "int64", "v": kind}) for kind in ("int8", "uint8", "decimal(10, 2)")}
    groups.add(of["int8"])
    assert groups.results(0, 9)[0].to_dict() == {"k": [1, 2], "m": [3.0, 5.0]}
    for kind in ("uint8", "decimal(10, 2)"):
        told = SchemaHeads().before(of[kind])
        assert told is not None
        groups.add(told)
    assert groups.results(0, 9)[0].to_dict() == {"k": [1, 2], "m": [3.0, 5.0]}


PRICES: dict[str, Callable[[random.Random], Any]] = {
    "decimal(10, 2)": lambda rng: Decimal(rng.choice(("0.10", "19.99"))),
    "float64": lambda rng: rng.choice((0.1, 7.3)),
    "int64": lambda rng: rng.choice((3, (1 << 53) + 1)),
}


@pytest.mark.parametrize("seed", seeds(30))
def test_decimals_are_the_nearest_floats_among_floats(seed: int) -> None:
    aggregates = {name: OF_NUMBERS[name] for name in ("n", "least", "most", "sum", "mean", "std", "median")}
    for step in range(10):
        rng = random.Random(seed * 10 + step)
        batches = batches_of(rng, PRICES)
        if not {"float64", "int64"} <= {
            str(batch.schema["v"]) for batch in batches
        }:  # these are not told apart exactly
            shuffled = rng.sample(batches, len(batches))
            found = [outcome(grouped(each, aggregates)) for each in (batches, shuffled)]
            found.append(outcome(merged(rng, shuffled, aggregates)))
            assert found[0] == found[1] == found[2], (seed, batches)


def test_integers_of_all_kinds_go_together_with_decimals() -> None:
    batches = [
        Batch({"k": [1], "v": [value]}, schema={"k": "int64", "v": kind})
        for kind, value in (("uint64", (1 << 64) - 1), ("int64", -5), ("decimal(12, 5)", Decimal("0.5")))
    ]
    for order in itertools.permutations(batches):
        groups = grouped(order, {"least": min_("v"), "most": max_("v"), "sum": sum_("v")})
        expected = {"k": [1], "least": [Decimal(-5)], "most": [Decimal((1 << 64) - 1)]}
        assert groups.results(0, 9)[0].to_dict() == {**expected, "sum": [Decimal((1 << 64) - 1) + Decimal("-4.5")]}
