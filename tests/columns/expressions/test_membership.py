"""`is_in` and comparisons of categories: answers, and what they cost where lists are long."""

from __future__ import annotations

import datetime
import operator
from decimal import Decimal
from typing import Any

import numpy as np
import pytest

from shmjet import Batch, column
from shmjet.columns.expressions import evaluate
from shmjet.data import operators

UTC = datetime.UTC
COMPARISONS = (operator.eq, operator.ne, operator.lt, operator.le, operator.gt, operator.ge)
NAN = float("nan")
DAY = datetime.date(2024, 1, 1)
NOON = datetime.datetime(2024, 1, 1, 12)

COLUMNS: dict[str, tuple[str, list[Any], list[Any]]] = {
    "small integers": ("int8", [-128, 0, 127, None, 5], [-128, 127, 128, -129, 2**70, 6]),
    "integers far apart": ("int64", [-(2**63), 2**63 - 1, 0, None, 7], [-(2**63), 2**63 - 1, 7, 2**63]),
    "large integers": ("uint64", [2**64 - 1, 2**63, 2**63 - 1, 0, None], [2**63, 2**64 - 1, -1, 2**64]),
    "floats": ("float64", [0.0, NAN, -1.5, 2.0**53, None, float("inf")], [-0.0, NAN, 2**53, 2**400, -1.5, 3]),
    "narrow floats": ("float32", [0.5, 1.0, None, NAN], [0.5, 2, NAN, 3.0]),
    "dates": (
        "datetime64[D]",
        [DAY, None, datetime.date(1, 1, 1), datetime.date(9999, 12, 31)],
        [datetime.datetime(2024, 1, 1), NOON, datetime.date(9999, 12, 31), datetime.date(2023, 1, 1)],
    ),
    "seconds": (
        "datetime64[s]",
        [NOON, None, datetime.datetime(2024, 1, 1)],
        [NOON.replace(microsecond=1), DAY, NOON.replace(year=9999), datetime.datetime(1, 1, 1)],
    ),
    "instants": (
        "timestamp[us, Europe/Berlin]",
        [NOON.replace(tzinfo=UTC), None, NOON.replace(tzinfo=UTC, microsecond=1)],
        [NOON.replace(tzinfo=UTC).astimezone(datetime.timezone(datetime.timedelta(hours=2))), NOON.replace(tzinfo=UTC)],
    ),
    "decimals": (
        "decimal(15, 2)",
        [Decimal("1.10"), Decimal(0), None, Decimal("-9999999999999.99")],
        [Decimal("1.1000"), Decimal("1.101"), Decimal("1e300"), 0, Decimal("-9999999999999.99"), Decimal("nan")],
    ),
    "long decimals": ("decimal(38, 4)", [Decimal("1.1"), Decimal(7), None], [Decimal("1.10"), 7, Decimal("0.00001")]),
    "categories": ("category", ["a", "é", "", None, "a\0"], ["a", "é", "é\0", "other"]),
    "text": ("text", ["a", "é", "", None, "a\0"], ["a", "é", "é\0", ""]),
}


def _is_listed(value: Any, listed: list[Any]) -> bool:
    if isinstance(value, datetime.date) and not isinstance(value, datetime.datetime):
        value = datetime.datetime.combine(value, datetime.time())
    midnight = datetime.time()
    return any(
        value == (datetime.datetime.combine(each, midnight) if type(each) is datetime.date else each) for each in listed
    )


@pytest.mark.parametrize("name", COLUMNS)
@pytest.mark.parametrize("most", [1, 3, 99])
def test_a_value_is_in_a_list_where_it_is_equal_to_one_of_it(name: str, most: int) -> None:
    kind, values, listed = COLUMNS[name]
    batch = Batch({"x": values}, schema={"x": kind})
    for some in (listed[:most], listed[-most:], [*listed[:most], None]):
        expected = [None if value is None else _is_listed(value, some) for value in values]
        assert evaluate(column("x").is_in(some), batch).tolist() == expected, some


def test_a_time_that_a_unit_does_not_hold_is_equal_to_nothing() -> None:
    batch = Batch({"x": np.array([0, 1, 2**62], "M8[ns]")})
    listed = [datetime.datetime(1, 1, 1), datetime.datetime(9999, 12, 31), datetime.datetime(1970, 1, 1)]
    assert evaluate(column("x").is_in(listed), batch).tolist() == [True, False, False]


@pytest.mark.parametrize("name", sorted(set(COLUMNS) - {"narrow floats", "long decimals"}))
def test_a_long_list_is_not_gone_through_for_each_row(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    kind, values, _ = COLUMNS[name]
    values = [value for value in values if value is not None and value == value]
    batch = Batch({"x": values * 1_000}, schema={"x": kind})

    def forbidden(*_: Any) -> Any:
        raise AssertionError("compared one value after the other")

    monkeypatch.setattr(operators, "compare", forbidden)
    listed = [*values, *(value for value in values)]
    assert all(evaluate(column("x").is_in(listed), batch).tolist())


@pytest.mark.parametrize("apply", COMPARISONS)
@pytest.mark.parametrize("other", ["text", "category", "value"])
def test_categories_compare_as_the_text_that_they_are(apply: Any, other: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(operators, "compare", None)  # text has kernels of its own
    one, two = ["a", "é", "", None, "a\0", "zz"], ["é", "é", "a", "a", None, "a\0"]
    batch = Batch({"one": one, "two": two, "t": one}, schema={"one": "category", "two": "category", "t": "text"})
    rights: dict[str, tuple[Any, list[str | None]]] = {
        "text": (column("t"), one),
        "category": (column("two"), two),
        "value": ("a", ["a"] * 6),
    }
    right, values = rights[other]
    expected = [None if x is None or y is None else apply(x, y) for x, y in zip(one, values, strict=True)]
    assert evaluate(apply(column("one"), right), batch).tolist() == expected
    reflected = [None if x is None or y is None else apply(y, x) for x, y in zip(one, values, strict=True)]
    if other != "value":
        assert evaluate(apply(right, column("one")), batch).tolist() == reflected
