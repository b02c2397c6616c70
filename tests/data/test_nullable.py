"""A column with nulls computes by three-valued logic, keeps its nulls or refuses, and never wraps.

Logic, comparisons and reductions are held against polars, arithmetic against Python's integers and numpy's types.
"""

from __future__ import annotations

import datetime as dt
import operator
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import shmjet
from shmjet import Batch, BatchError, Nullable, Text
from tests.data.test_batch import PEOPLE
from tests.examples import examples

pl = pytest.importorskip("polars")
pl.Series([1, None]).filter(pl.Series([1, None]).is_null())  # starts polars' threads, which no test may leave behind

DELAYS = Nullable([1, None, 3])
WORDS = Nullable(["b", None, "a"])
DAYS = Nullable([dt.date(2013, 1, 1), None, dt.date(2014, 2, 3)])
INTEGERS = ("i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8")
COMPARISONS = (operator.eq, operator.ne, operator.lt, operator.le, operator.gt, operator.ge)

floats = st.floats() | st.sampled_from([0.0, -0.0, 1.0, float("nan"), float("inf"), float("-inf")])
days = st.dates(dt.date(1, 1, 1), dt.date(9999, 12, 31))
moments = st.datetimes(dt.datetime(1, 1, 1), dt.datetime(9999, 12, 31))
spans = st.timedeltas(dt.timedelta(days=-10_000), dt.timedelta(days=10_000))
KINDS = {
    "int": (st.integers(-(2**63), 2**63 - 1) | st.integers(-2, 2), "Int64"),
    "float": (floats, "Float64"),
    "bool": (st.booleans(), "Boolean"),
    "text": (st.text(max_size=3) | st.sampled_from(["", "a", "é", "ab", "\U0001f600", "\uffff"]), "String"),
    "bytes": (st.binary(max_size=3), "Binary"),
    "date": (days, "Date"),
    "moment": (moments, "Datetime"),
    "span": (spans, "Duration"),
}
NUMPY = {"int": "i8", "float": "f8", "bool": "?", "date": "M8[D]", "moment": "M8[us]", "span": "m8[us]"}


def column(kind: str, values: list[Any]) -> Nullable:
    """A column of a kind, with rubbish under its nulls."""
    valid = np.array([value is not None for value in values], np.bool_)
    if kind in ("text", "bytes"):
        rubbish: Any = "rubbish" if kind == "text" else b"rubbish"
        filled = Text.of([rubbish if value is None else value for value in values] + [rubbish])[: len(values)]
        return Nullable(filled, valid)
    array = np.array([0 if value is None else value for value in values], NUMPY[kind])
    array[~valid] = np.array(7 if kind != "bool" else 1).astype(array.dtype)
    return Nullable(array, valid)


def lists(kind: str, size: int) -> st.SearchStrategy[list[Any]]:
    return st.lists(st.none() | KINDS[kind][0], min_size=size, max_size=size)


def series(kind: str, values: list[Any]) -> Any:
    return pl.Series("x", values, getattr(pl, KINDS[kind][1]))


@st.composite
def two_columns(draw: st.DrawFn) -> tuple[str, list[Any], list[Any]]:
    kind, size = draw(st.sampled_from(list(KINDS))), draw(st.integers(0, 8))
    return kind, draw(lists(kind, size)), draw(lists(kind, size))


def same(one: Any, two: Any) -> bool:
    return one == two or (one != one and two != two)


# -- against polars ----------------------------------------------------------------------------------------------------


@given(two_columns(), st.sampled_from(COMPARISONS), st.booleans())
def test_comparisons_are_those_of_polars(made: Any, compare: Callable[[Any, Any], Any], with_scalar: bool) -> None:
    kind, one, two = made
    mine, theirs = column(kind, one), series(kind, one)
    other: Any = next((value for value in two if value is not None), None) if with_scalar else column(kind, two)
    if with_scalar and other is None:
        return
    found = compare(mine, other)
    if kind == "float":  # polars has NaN equal to itself and greatest; here IEEE 754 holds
        against = [other] * len(one) if with_scalar else two
        expected = [None if None in (a, b) else compare(a, b) for a, b in zip(one, against, strict=True)]
    else:
        expected = compare(theirs, series(kind, [other] * len(one) if with_scalar else two)).to_list()
    assert isinstance(found, Nullable)
    assert (found.dtype, found.to_list()) == (np.dtype(np.bool_), expected)
    if not with_scalar and all(value is not None for value in two):  # an array or a Text on the left
        mirrored = {operator.lt: operator.gt, operator.le: operator.ge, operator.gt: operator.lt}
        mirrored |= {operator.ge: operator.le}
        assert mirrored.get(compare, compare)(other.drop_null(), mine).to_list() == expected


@given(two_columns(), st.sampled_from([operator.and_, operator.or_, operator.xor]))
def test_logic_is_that_of_polars(made: Any, apply: Callable[[Any, Any], Any]) -> None:
    _, one, two = made
    one, two = ([None if value is None else len(repr(value)) % 2 == 0 for value in values] for values in (one, two))
    expected = apply(series("bool", one), series("bool", two)).to_list()
    assert apply(column("bool", one), column("bool", two)).to_list() == expected
    assert apply(column("bool", one), two).to_list() == expected
    assert (~column("bool", one)).to_list() == (~series("bool", one)).to_list()
    for scalar in (True, False, None):
        expected = apply(series("bool", one), series("bool", [scalar] * len(one))).to_list()
        assert apply(column("bool", one), scalar).to_list() == expected
        assert apply(scalar, column("bool", one)).to_list() == expected


@given(two_columns())
def test_reductions_leave_nulls_out_as_polars_does(made: Any) -> None:
    kind, values, _ = made
    mine, theirs = column(kind, values), series(kind, values)
    there = [value for value in values if value is not None]
    assert mine.count() == theirs.count()
    assert mine.is_null().tolist() == theirs.is_null().to_list()
    assert mine.drop_null().tolist() == there or kind == "float"
    assert mine.to_list() == values or kind == "float"
    is_nan = kind == "float" and any(value != value for value in there)
    for find, expected in ((mine.min, theirs.min()), (mine.max, float("nan") if is_nan else theirs.max())):
        value = find()
        value = value.item() if isinstance(value, np.generic) else value
        assert same(value, expected), (value, expected)
    if not there:
        assert mine.sum() is mine.mean() is None if kind not in ("text", "bytes", "date", "moment") else True
    elif kind in ("int", "span"):
        exact = sum((value - type(value)(0) for value in there), type(there[0])(0))
        if kind == "int" and not -(2**63) <= exact < 2**63:
            with pytest.raises(BatchError, match="the sum of a column of int64 is"):
                mine.sum()
        else:
            assert mine.sum().item() == exact
        if kind == "int":
            assert mine.mean() == exact / len(there)
    elif kind == "bool":
        assert (mine.sum(), mine.mean()) == (sum(there), sum(there) / len(there))
    elif kind == "float" and not is_nan:
        infinite = {value for value in there if value in (float("inf"), float("-inf"))}
        assert len(infinite) == 2 or same(mine.sum(), np.array(there).sum())


@given(two_columns(), st.data())
def test_batches_keep_nulls_as_polars_does(made: Any, data: st.DataObject) -> None:
    kind, one, two = made
    mine = Batch({"x": column(kind, one), "y": column(kind, two)})
    frame = pl.DataFrame({"x": series(kind, one), "y": series(kind, two)})

    def rows(values: Any) -> list[Any]:
        return [tuple(repr(value) for value in row) for row in values]

    assert rows(mine.tuples()) == rows(frame.rows())
    assert rows(Batch.concat([mine, mine[:2], mine]).tuples()) == rows(pl.concat([frame, frame[:2], frame]).rows())
    chosen = data.draw(st.lists(st.integers(0, len(one) - 1), max_size=9)) if one else []
    assert rows(mine.take(chosen).tuples()) == rows(frame[chosen].rows())
    mask = data.draw(st.lists(st.sampled_from([True, False, None]), min_size=len(one), max_size=len(one)))
    expected = rows(zip(*(each.filter(series("bool", mask)) for each in frame), strict=True))
    valid = np.array([value is not None for value in mask], np.bool_)
    bools = np.array([bool(value) or value is None for value in mask], np.bool_)
    for given_ in (mask, Nullable(bools, valid), np.ma.MaskedArray(bools, ~valid)):
        assert rows(mine.filter(given_).tuples()) == expected
    assert pickle.loads(pickle.dumps(mine)) == mine
    if any(value is not None for value in one) and any(value is not None for value in two):
        assert Batch.from_rows(mine.rows()) == mine
        again = Batch(mine.to_dict())
        assert rows(again.tuples()) == rows(mine.tuples())


# -- arithmetic --------------------------------------------------------------------------------------------------------


@st.composite
def sums(draw: st.DrawFn) -> tuple[Any, ...]:
    one, two = draw(st.sampled_from(INTEGERS)), draw(st.sampled_from(INTEGERS))
    size = draw(st.integers(1, 6))

    def values(dtype: str) -> list[Any]:
        info = np.iinfo(dtype)
        near = [info.min, info.min + 1, info.max, info.max - 1, 0, 1, 2, 3, *((-1,) if info.min else ())]
        each = st.none() | st.sampled_from(near) | st.integers(int(info.min), int(info.max))
        return draw(st.lists(each, min_size=size, max_size=size))

    return one, values(one), two, values(two)


@examples(300)
@given(sums(), st.sampled_from(["+", "-", "*", "//", "%", "**"]))
def test_integers_never_wrap(made: Any, symbol: str) -> None:
    first, ones, second, twos = made
    apply: Any = {
        "+": operator.add,
        "-": operator.sub,
        "*": operator.mul,
        "//": operator.floordiv,
        "%": operator.mod,
        "**": operator.pow,
    }[symbol]

    def integers(values: list[Any], dtype: str) -> Nullable:
        valid = np.array([value is not None for value in values])
        array = np.array([0 if value is None else value for value in values], dtype)
        array[~valid] = np.iinfo(dtype).min  # rubbish
        return Nullable(array, valid)

    dtype = apply(np.ones(1, first), np.ones(1, second)).dtype
    if dtype.kind == "f":
        assert apply(integers(ones, first), integers(twos, second)).dtype == dtype
        return
    if symbol == "**":
        twos = [value if value is None or value < 0 else value % 70 for value in twos]
    pairs = list(zip(ones, twos, strict=True))
    expected: list[int | None] = []
    for a, b in pairs:
        nothing = a is None or b is None or (symbol in ("//", "%") and b == 0)
        expected.append(None if nothing else 2**70 if symbol == "**" and b < 0 else apply(a, b))
    info = np.iinfo(dtype)
    if all(value is None or info.min <= value <= info.max for value in expected):
        found = apply(integers(ones, first), integers(twos, second))
        assert (found.to_list(), found.dtype) == (expected, dtype)
        if all(value is not None for value in ones):
            assert apply(np.array(ones, first), integers(twos, second)).to_list() == expected
    else:
        with pytest.raises(BatchError, match=r"is not a value of|negative power"):
            apply(integers(ones, first), integers(twos, second))


def test_types_promote_as_in_numpy_2() -> None:
    small = Nullable(np.array([100, 1], np.int8), [True, False])
    assert (small + 1).dtype == np.int8
    assert (small + np.int64(1)).dtype == np.int64
    assert (small / 2).dtype == (np.array([1], np.int8) / 2).dtype
    assert (small + 0.5).dtype == np.float64
    assert (small + np.float32(0.5)).dtype == np.float32
    for wrong in (lambda: small + 28, lambda: small + 300, lambda: -Nullable(np.array([1], np.uint8))):
        with pytest.raises(BatchError):
            wrong()
    assert (small < 300).to_list() == [True, None]
    assert (DELAYS < 2**70).to_list() == [True, None, True]


def test_bools_compare_with_integers_of_any_size() -> None:
    bools = Nullable([True, False, None])
    assert (bools < 2**63).to_list() == (bools > -(2**80)).to_list() == [True, True, None]
    assert (bools == 2**63).to_list() == [False, False, None]
    assert (bools == 1).to_list() == [True, False, None]


def test_division_gives_floats_and_by_zero_no_integer() -> None:
    zero = Nullable([1, -1, 0, None])
    assert (zero / 0).to_list()[:2] == [float("inf"), float("-inf")]
    assert (zero // 0).to_list() == (zero % 0).to_list() == [None] * 4
    assert (7 // zero).to_list() == [7, -7, None, None]
    assert (zero / 2).to_list() == [0.5, -0.5, 0.0, None]
    assert (Nullable([-7, 7, None]) // 2).to_list() == [-4, 3, None]
    assert (Nullable([-7, 7, None]) % -2).to_list() == [-1, -1, None]
    assert (Nullable([1.0, None]) // 0.0).to_list() == [float("inf"), None]


def test_dates_and_spans_compute_within_their_range() -> None:
    assert (DAYS - np.datetime64("2012-12-31")).to_list() == [dt.timedelta(1), None, dt.timedelta(399)]
    february = dt.date(2013, 2, 1)
    assert (february <= DAYS).to_list() == [False, None, True]
    assert (np.datetime64("2013-01-01T00:00", "us") < DAYS).to_list() == [False, None, True]
    assert (DAYS + dt.timedelta(hours=5))[0] == dt.datetime(2013, 1, 1, 5)
    spans_ = Nullable(np.array([90, 10], "m8[s]"), [True, False])
    assert (spans_ * 2)[0] == (2 * spans_)[0] == np.timedelta64(180, "s")
    assert (spans_ / np.timedelta64(60, "s")).to_list() == [1.5, None]
    assert (spans_ // np.timedelta64(0, "s")).to_list() == [None, None]
    assert (spans_.sum(), spans_.mean()) == (np.timedelta64(90, "s"),) * 2
    largest = Nullable(np.array([2**63 - 1, 5], "m8[ns]"), [True, False])
    for wrong in (lambda: largest + np.timedelta64(1, "ns"), lambda: largest * 2, lambda: largest * 2.0):
        with pytest.raises(BatchError, match=r"timedelta64"):
            wrong()
    far = Nullable(np.array(["9999-12-31", "1970-01-01"], "M8[D]"), [True, True])
    with pytest.raises(BatchError, match=r"out of the range of datetime64\[ns\]"):
        far < np.datetime64("2000-01-01", "ns")  # noqa: B015
    with pytest.raises(BatchError, match="has no sum"):
        DAYS.sum()
    with pytest.raises(BatchError, match="time zone"):
        dt.datetime(2013, 1, 1, tzinfo=dt.UTC) > DAYS  # noqa: B015


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: DELAYS == "x",
        lambda: WORDS == 1,
        lambda: WORDS == b"b",
        lambda: DAYS >= "2013-01-01",
        lambda: WORDS + 1,
        lambda: WORDS + b"x",
        lambda: WORDS - "x",
        lambda: DELAYS + "x",
        lambda: WORDS & True,
        lambda: ~WORDS,
        lambda: -WORDS,
        lambda: abs(WORDS),
        lambda: WORDS.sum(),
        lambda: WORDS.mean(),
        lambda: (DELAYS > 1) + (DELAYS > 2),
        lambda: DELAYS + [1, 2],
        lambda: DELAYS + np.zeros((3, 3)),
        lambda: DELAYS + np.array([1, 2, 3], object),
        lambda: DELAYS + 2**70,
        lambda: DELAYS.fill_null(None),
        lambda: DELAYS.fill_null("x"),
        lambda: WORDS.fill_null(0),
        lambda: DELAYS.fill_null([1]),
        lambda: DELAYS.astype(str),
        lambda: WORDS.astype(int),
        lambda: Nullable([300, None]).astype("i1"),
        lambda: Nullable([float("nan"), None]).astype(int),
        lambda: Nullable([-1, None]).astype("u8"),
        lambda: Nullable([1e300, None]).astype("f4"),
        lambda: Nullable(np.array([14], "m8[M]")).astype("m8[D]"),
        lambda: Nullable(np.array([400], "m8[D]")).astype("m8[Y]"),
        lambda: Nullable(np.array([14], "m8[M]")) < np.timedelta64(1, "D"),
        lambda: Nullable(np.array([14], "m8[M]")) == np.array([1], "m8[s]"),
        lambda: Nullable([np.timedelta64(1, "M"), np.timedelta64(1, "D")]),
        lambda: Nullable([1, "x"]),
        lambda: Nullable([1, 2], [True]),
    ],
)
def test_what_does_not_go_together_is_an_error(wrong: Callable[[], Any]) -> None:
    with pytest.raises(BatchError):
        wrong()


# -- as a column -------------------------------------------------------------------------------------------------------


def test_nulls_are_filled_dropped_and_found() -> None:
    assert DELAYS.fill_null(0).tolist() == [1, 0, 3]
    assert DELAYS.fill_null(0.5).tolist() == [1.0, 0.5, 3.0]
    assert DELAYS.fill_null([7, 8, 9]).tolist() == [1, 8, 3]
    assert DELAYS.fill_null(Nullable([None, None, 4])).to_list() == [1, None, 3]
    assert type(DELAYS.fill_null(0)) is type(DELAYS.drop_null()) is np.ndarray
    assert WORDS.fill_null("?").equals(Text.of(["b", "?", "a"]))
    assert WORDS.drop_null().equals(Text.of(["b", "a"]))
    assert DAYS.fill_null(dt.date(2000, 1, 1)).tolist()[1] == dt.date(2000, 1, 1)
    assert DELAYS.is_null().tolist() == [False, True, False]
    assert DELAYS.astype("f4").to_list() == [1.0, None, 3.0]
    assert str(Nullable(np.array([2], "m8[Y]")).astype("m8[M]")[0]) == "24 months"
    assert (len(DELAYS), DELAYS.count(), list(DELAYS), DELAYS.tolist()) == (3, 2, [1, None, 3], [1, None, 3])
    assert Nullable([None, None]).sum() is None
    assert (Nullable([None, None]) == "x").to_list() == [None, None]
    assert (Nullable([1.0, float("nan")]).fill_null(0) != 0).tolist() == [True, True]


def test_rows_are_chosen_as_of_other_columns() -> None:
    assert (DELAYS[0], DELAYS[1], DELAYS[-1]) == (1, None, 3)
    assert DELAYS[1:].to_list() == [None, 3]
    assert DELAYS[::-1].to_list() == [3, None, 1]
    assert DELAYS[[2, 0]].to_list() == DELAYS.take([-1, 0]).to_list() == [3, 1]
    assert DELAYS[DELAYS > 1].to_list() == DELAYS.filter([None, False, True]).to_list() == [3]
    assert WORDS[[True, False, True]].to_list() == ["b", "a"]
    for wrong in ([0.5], [None], Nullable([1, None]), [[1]], [True, 1]):
        with pytest.raises(BatchError):
            DELAYS.take(wrong)  # type: ignore[arg-type]
    for far in (3, -4):
        with pytest.raises(IndexError):
            DELAYS.take([far])
        with pytest.raises(IndexError):
            DELAYS[far]


def test_numpy_keeps_nulls_or_raises() -> None:
    array = np.array([10, 20, 30])
    assert (array + DELAYS).to_list() == np.add(array, DELAYS).to_list() == [11, None, 33]
    assert (array > DELAYS).to_list() == np.less(DELAYS, array).to_list() == [True, None, True]
    assert (np.float64(2) * DELAYS).to_list() == [2.0, None, 6.0]
    assert np.sqrt(Nullable([4.0, None])).to_list() == [2.0, None]
    assert np.isnan(Nullable([float("nan"), None])).to_list() == [True, None]
    assert np.maximum(DELAYS, 2).to_list() == np.maximum(2, DELAYS).to_list() == [2, None, 3]
    assert np.minimum(Nullable([float("nan"), 1.0]), Nullable([None, 2.0])).to_list() == [None, 1.0]
    assert np.logical_and(DELAYS > 1, [True, False, True]).to_list() == [False, False, True]
    assert np.logical_not(DELAYS > 1).to_list() == [True, None, False]
    assert (np.sum(DELAYS), np.mean(DELAYS), np.min(DELAYS), np.max(DELAYS)) == (4, 2.0, 1, 3)
    assert np.asarray(DELAYS[:1]).tolist() == [1]
    masked = DELAYS.to_masked()
    assert (masked.tolist(), masked.sum()) == ([1, None, 3], 4)
    assert WORDS.to_masked().tolist() == ["b", None, "a"]


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: np.asarray(DELAYS),
        lambda: np.array([DELAYS, DELAYS]),
        lambda: np.arange(3)[DELAYS],
        lambda: np.arange(3)[DELAYS > 1],
        lambda: np.where(DELAYS > 1, 1, 0),
        lambda: np.median(DELAYS),
        lambda: np.mean(DELAYS, axis=0),
        lambda: np.add.reduce(DELAYS),
        lambda: np.add(np.zeros(3), DELAYS, out=np.zeros(3)),
        lambda: np.add(DELAYS, 1, where=np.array([True, False, True])),
        lambda: np.cumsum(DELAYS),
        lambda: np.unique(DELAYS),
        lambda: np.isin(DELAYS, [0]),
        lambda: np.count_nonzero(DELAYS > 1),
        lambda: np.concatenate([DELAYS, DELAYS]),
        lambda: np.square(DELAYS),
        lambda: np.left_shift(DELAYS, 63),
        lambda: np.divmod(DELAYS, 2),
        lambda: np.logical_and(DELAYS, True),
        lambda: np.isnan(WORDS),
        lambda: np.maximum(DELAYS, None),
        lambda: np.ma.masked_array([1, 2, 3], [0, 0, 1]) + DELAYS,
        lambda: np.vectorize(float)(DELAYS),
        lambda: np.fromiter(DELAYS, np.int64),
        lambda: np.ma.array(DELAYS),
        lambda: np.array([1.0, 2.0, 3.0]).dot(DELAYS),
        lambda: sum(DELAYS),
        lambda: sorted(DELAYS),
        lambda: hash(DELAYS),
        lambda: np.asarray(PEOPLE),
        lambda: pl.Series("x", PEOPLE["size"]),
    ],
)
def test_what_would_take_a_null_for_a_value_raises(wrong: Callable[[], Any]) -> None:
    with pytest.raises(TypeError):
        wrong()


def test_a_column_has_no_truth_and_does_not_change() -> None:
    with pytest.raises(ValueError, match="neither true nor false"):
        bool(DELAYS > 1)
    with pytest.raises(AttributeError, match="immutable"):
        DELAYS.dtype = None  # type: ignore[misc, assignment]
    with pytest.raises(AttributeError, match="immutable"):
        del DELAYS.dtype
    with pytest.raises(ValueError, match="read-only"):
        DELAYS.validity[0] = False
    mask, values = np.array([True, False]), np.array([1, 2])
    kept = Nullable(values, mask)
    assert mask.flags.writeable
    assert values.flags.writeable
    copy = pickle.loads(pickle.dumps(kept))
    assert (copy.to_list(), copy.dtype, copy.nbytes) == ([1, None], np.int64, 18)
    assert repr(DELAYS) == "Nullable([1, None, 3], 3 int64 values, 1 null)"
    assert repr(WORDS[:1]) == "Nullable(['b'], 1 text values, 0 null)"
    assert shmjet.Nullable is Nullable is shmjet.columns.Nullable


def test_a_column_is_made_of_whatever_has_nulls() -> None:
    masked = np.ma.MaskedArray([1, 2], [False, True])
    for given_ in ([1, None], masked, [1, np.ma.masked], (1, None), Nullable([1, None]), masked.astype(object)):
        assert Nullable(given_).to_list() == [1, None]
        assert Batch({"x": given_})["x"].to_list() == [1, None]
    assert Nullable(Text.of(["a", "b"]), [True, False]).to_list() == ["a", None]
    assert Nullable(Nullable([1, None, 3]), [False, True, True]).to_list() == [None, None, 3]
    assert Nullable([1, 2]).fill_null(0).tolist() == [1, 2]
    pairs = np.ma.masked_array([(1, 2.0)], [(False, False)], "i4, f8")
    assert Batch({"x": pairs}).to_dict() == {"x": [(1, 2.0)]}
    pairs = np.ma.masked_array([(1, 2.0)], [(False, True)], "i4, f8")
    with pytest.raises(BatchError, match="column 'x' is masked field by field"):
        Batch({"x": pairs})
    with pytest.raises(BatchError, match=r"no place for None; use Nullable\(values\)"):
        Text.of(["a", None])  # type: ignore[list-item]


def test_a_column_of_nulls_alone_goes_together_with_every_kind() -> None:
    days = np.array(["2024-02-29", "2024-03-01"], "M8[D]")
    for nulls in (
        Nullable([None, None]),
        Nullable(Text.of(["x", "y"]), [False, False]),
        Nullable(days, [False, False]),
    ):
        for other in (1, 0.5, "a", b"a", True, days[0], days, Text.of(["a", "b"]), np.array([1, 2])):
            for compare in (operator.eq, operator.ne, operator.lt, operator.ge):
                assert compare(nulls, other).to_list() == [None, None]
            assert compare(other, nulls).to_list() == [None, None]
            filled = nulls.fill_null(other)
            assert filled[:1].tolist() == Nullable([None, None]).fill_null(other)[:1].tolist()
            assert len(filled) == 2
        assert (nulls - days[0]).to_list() == (nulls + 1).to_list() == (1 * nulls).to_list() == [None, None]
        assert (nulls & np.array([True, False])).to_list() == [None, False]
        assert (np.array([True, False]) | nulls).to_list() == [True, None]
        assert (nulls & 3).to_list() == (1 ^ nulls).to_list() == [None, None]
        assert (~nulls if nulls.dtype != days.dtype else ~(nulls == 1)).to_list() == [None, None]
        assert nulls.astype("M8[D]").to_list() == nulls.astype("i2").to_list() == [None, None]
    assert Nullable([None, None]).fill_null("?").tolist() == ["?", "?"]


def test_rows_that_happen_to_be_null_in_one_batch_are_filled_as_all_are() -> None:
    rows = [{"s": None}, {"s": "a"}, {"s": None}]

    def filled(batch: Batch) -> dict[str, Any]:
        assert isinstance(batch["s"], Nullable | Text)
        return {"s": Nullable(batch["s"]).fill_null("?")}

    for size in (1, 2, 3):
        batches = [Batch.from_rows(rows[at : at + size]) for at in range(0, 3, size)]
        assert [value for batch in batches for value in filled(batch)["s"]] == ["?", "a", "?"]


def test_a_frame_of_polars_keeps_nulls() -> None:
    assert repr(pl.DataFrame(PEOPLE).to_dicts()) == repr(list(PEOPLE.rows()))  # NaN equals NaN there
