"""Random expressions over columns with nulls, as a batch computes them, against Python row by row.

A batch has integers of all widths, floats, bools and text, with and without nulls and with rubbish under these. A
predicate of comparisons, arithmetic and logic filters it. Python computes the same for each row, with three-valued
logic and integers without an end: the rows that are left are equal, or both sides find an integer that leaves its type.
Each round follows from its own seed: `--seed S --count 1` runs the one of seed S.

Usage: stress/nulls.py [--count N] [--seed S] [--ci]     (--ci: a few seconds)
"""

from __future__ import annotations

import operator
import random
import sys
import traceback
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from _stress import Tally, parse_options

from shmjet import Batch, BatchError, Nullable, Text

DTYPES = ("i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8")
COMPARISONS = (operator.eq, operator.ne, operator.lt, operator.le, operator.gt, operator.ge)
ARITHMETIC = (operator.add, operator.sub, operator.mul, operator.floordiv, operator.mod)
WORDS = ("", "a", "ab", "é", "null", "\U0001f600")

Column = tuple[Any, list[Any]]
"""A column as a batch has it, and its values as Python has them."""


class LeftItsType(Exception):
    """Python found an integer that the column's type does not hold."""


class Rows:
    """A random batch, and expressions over it computed in both ways."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.count = self.random.choice((0, 1, 2, 7, 300))
        self.columns: dict[str, Column] = {}
        for name in ("i", "j", "k"):
            dtype = np.dtype(self.random.choice(DTYPES))
            info = np.iinfo(dtype)
            near = (int(info.min), int(info.max), 0, 1, 2)
            self.columns[name] = self.column(dtype, lambda i=info, n=near: self.integer(i, n))
        self.columns["x"] = self.column(np.dtype("f8"), lambda: self.random.choice((0.0, 1.5, -2.0, np.nan, np.inf)))
        self.columns["b"] = self.column(np.dtype("?"), lambda: self.random.random() < 0.5)
        self.columns["s"] = self.column(None, lambda: self.random.choice(WORDS))
        self.batch = Batch({name: made for name, (made, _) in self.columns.items()})

    def integer(self, info: Any, near: tuple[int, ...]) -> int:
        """Return an integer, often small and rarely at the end of its type."""
        kind = self.random.random()
        if kind < 0.001:
            return self.random.choice(near)
        return self.random.randint(0, 5) if kind < 0.9 or info.max < 100 else self.random.randint(0, 100)

    def column(self, dtype: Any, value: Callable[[], Any]) -> Column:
        """Return a column of which some, all or no values are null."""
        share = self.random.choice((0.0, 0.0, 0.1, 0.3, 0.3, 0.3, 1.0))
        there = [self.random.random() >= share for _ in range(self.count)]
        values = [value() for _ in range(self.count)]
        made: Any = Text.of(values) if dtype is None else np.array(values, dtype)
        return Nullable(made, np.array(there, np.bool_)), [
            v if ok else None for v, ok in zip(values, there, strict=True)
        ]

    def numbers(self, depth: int) -> Column:
        """Return an expression of integers."""
        if not depth or self.random.random() < 0.3:
            name = self.random.choice("ijk")
            return self.batch[name], self.columns[name][1]
        apply = self.random.choice(ARITHMETIC)
        one, ones = self.numbers(depth - 1)
        two, twos = self.numbers(0) if self.random.random() < 0.7 else (self.random.randint(0, 3), None)
        one = one if isinstance(one, Nullable) else Nullable(one)
        values = twos if twos is not None else [two] * self.count
        expected = list(computed(apply, ones, values))
        with np.errstate(divide="ignore"):
            dtype = apply(np.ones(1, one.dtype), two if twos is None else np.ones(1, two.dtype)).dtype
        if dtype.kind == "f":  # int64 and uint64 meet in float64, which is not for this oracle
            return one, ones
        info = np.iinfo(dtype)
        fits = all(value is None or info.min <= value <= info.max for value in expected)
        try:
            found = apply(one, two)
        except BatchError:
            if fits:
                raise
            raise LeftItsType from None
        assert fits, f"{apply.__name__} gave {found} and not an error"
        assert (found.dtype, found.to_list()) == (dtype, expected), (apply.__name__, one, two, found, expected)
        return found, expected

    def predicate(self, depth: int) -> Column:
        """Return an expression of bools."""
        kind = self.random.random()
        if depth and kind < 0.6:
            one, ones = self.predicate(depth - 1)
            if kind < 0.1:
                return ~one, [None if value is None else not value for value in ones]
            two, twos = self.predicate(depth - 1)
            apply = self.random.choice((operator.and_, operator.or_))
            return apply(one, two), [three_valued(apply, a, b) for a, b in zip(ones, twos, strict=True)]
        if kind < 0.7:
            return self.batch["b"], self.columns["b"][1]
        compare = self.random.choice(COMPARISONS)
        if kind < 0.8:
            word = self.random.choice(WORDS)
            return compare(self.batch["s"], word), list(computed(compare, self.columns["s"][1], [word] * self.count))
        if kind < 0.9:
            return compare(self.batch["x"], 1.5), list(computed(compare, self.columns["x"][1], [1.5] * self.count))
        (one, ones), (two, twos) = self.numbers(2), self.numbers(1)
        return compare(one, two), list(computed(compare, ones, twos))


def computed(apply: Callable[[Any, Any], Any], ones: list[Any], twos: list[Any]) -> Iterator[Any]:
    """Yield what an operator gives, None for nulls and for a division by 0."""
    for a, b in zip(ones, twos, strict=True):
        divides = apply in (operator.floordiv, operator.mod)
        yield None if a is None or b is None or (divides and b == 0) else apply(a, b)


def three_valued(apply: Callable[[Any, Any], Any], a: bool | None, b: bool | None) -> bool | None:
    """Return SQL's `and` and `or`."""
    decisive = apply is operator.or_
    if a is decisive or b is decisive:
        return decisive
    return None if a is None or b is None else not decisive


def check(seed: int) -> str:
    """Run one round; returns what it was. Raises AssertionError when both sides differ."""
    rows = Rows(seed)
    try:
        mask, expected = rows.predicate(3)
    except LeftItsType:
        return f"{seed}: an integer left its type on both sides"
    assert mask.tolist() == expected, f"predicate: {mask.tolist()} instead of {expected}"
    found = list(rows.batch.filter(mask).tuples())
    all_rows = zip(*(values for _, values in rows.columns.values()), strict=True)
    kept = [row for row, wanted in zip(all_rows, expected, strict=True) if wanted]
    assert repr(found) == repr(kept), f"filter: {len(found)} rows instead of {len(kept)}"
    return f"{seed}: {len(kept)} of {rows.count} rows"


def main() -> int:
    options = parse_options(__doc__, count=100_000, ci=2000)
    tally = Tally("nulls", options)
    for seed in range(options.seed, options.seed + options.count):
        try:
            options.say(check(seed))
        except Exception as error:
            tally.complain(f"--seed {seed} --count 1: {''.join(traceback.format_exception_only(error)).strip():.2000}")
        tally.done += 1
    return tally.finish()


if __name__ == "__main__":
    sys.exit(main())
