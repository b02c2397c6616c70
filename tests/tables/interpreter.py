"""A plain interpreter of stages of batches: rows as dicts, one loop for each stage, nothing of the engine's code.

It follows the words of the documentation: three-valued logic, nulls last and NaN just before them, null and NaN as
group keys that match nothing in joins.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

Row = dict[str, Any]
Rows = list[Row]


def is_nan(value: Any) -> bool:
    return isinstance(value, float) and math.isnan(value)


def plain(value: Any) -> Any:
    """A value that equals all values which count as equal, and is written like them."""
    if is_nan(value):
        return "<NaN>"
    return value + 0.0 if isinstance(value, int | float) and not isinstance(value, bool) else value


def key_of(row: Row, names: Sequence[str]) -> tuple[Any, ...]:
    return tuple((type(row[name]) is str, plain(row[name])) for name in names)


def matchable(row: Row, names: Sequence[str]) -> bool:
    return not any(row[name] is None or is_nan(row[name]) for name in names)


def project(rows: Rows, keep: bool, **functions: Callable[[Row], Any]) -> Rows:
    return [{**(row if keep else {}), **{name: fn(row) for name, fn in functions.items()}} for row in rows]


def where(rows: Rows, fn: Callable[[Row], Any]) -> Rows:
    return [row for row in rows if fn(row) is True]


def order_key(row: Row, names: Sequence[str], descending: Sequence[bool], nulls_first: bool) -> list[Any]:
    key: list[Any] = []
    for name, down in zip(names, descending, strict=True):
        value = row[name]
        if value is None:
            key.append((-1 if nulls_first else 2, 0))
        elif is_nan(value):
            key.append((1, 0))
        elif isinstance(value, str):
            points = [*map(ord, value)]
            key.append((0, [-p for p in points] + [1] if down else points))
        else:
            key.append((0, -value if down else value))
    return key


def sort(rows: Rows, names: Sequence[str], descending: Sequence[bool], nulls_first: bool = False) -> Rows:
    return sorted(rows, key=lambda row: order_key(row, names, descending, nulls_first))


def distinct(rows: Rows, names: Sequence[str]) -> Rows:
    return list({key_of(row, names): row for row in reversed(rows)}.values())


def group(rows: Rows, names: Sequence[str], **functions: Callable[[Rows], Any]) -> Rows:
    groups: dict[Any, Rows] = {}
    for row in rows:
        groups.setdefault(key_of(row, names), []).append(row)
    return [
        {**{name: found[0][name] for name in names}, **{name: fn(found) for name, fn in functions.items()}}
        for found in groups.values()
    ]


def total(name: str) -> Callable[[Rows], Any]:
    def fn(rows: Rows) -> Any:
        values = [row[name] for row in rows if row[name] is not None]
        return sum(values) if values else None

    return fn


def greatest(name: str) -> Callable[[Rows], Any]:
    def fn(rows: Rows) -> Any:
        values = [row[name] for row in rows if row[name] is not None]
        nan = next((value for value in values if is_nan(value)), None)
        return nan if nan is not None else max(values, default=None)

    return fn


def least(name: str) -> Callable[[Rows], Any]:
    def fn(rows: Rows) -> Any:
        values = [row[name] for row in rows if row[name] is not None]
        return min((value for value in values if not is_nan(value)), default=values[0] if values else None)

    return fn


def join(
    left: Rows,
    right: Rows,
    keys: Sequence[tuple[str, str]],
    how: str,
    left_names: Sequence[str],
    right_names: Sequence[str],
    suffix: str = "",
) -> Rows:
    here, there = [one for one, _ in keys], [two for _, two in keys]
    called = {name: name + suffix if name in left_names else name for name in right_names if name not in there}

    def pairs(a: Row, b: Row) -> bool:
        return matchable(a, here) and matchable(b, there) and all(a[one] == b[two] for one, two in keys)

    if how in ("semi", "anti"):
        return [row for row in left if any(pairs(row, other) for other in right) == (how == "semi")]
    found = [{**a, **{called[n]: b[n] for n in called}} for a in left for b in right if pairs(a, b)]
    if how in ("left", "outer"):
        nulls = dict.fromkeys(called.values())
        found += [{**a, **nulls} for a in left if not any(pairs(a, b) for b in right)]
    if how in ("right", "outer"):
        nulls = dict.fromkeys(left_names)
        found += [
            {**nulls, **{one: b[two] for one, two in keys}, **{called[n]: b[n] for n in called}}
            for b in right
            if not any(pairs(a, b) for a in left)
        ]
    return found
