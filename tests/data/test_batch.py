"""A batch keeps its columns, gives other batches and rows of them, and refuses what cannot be a column."""

from __future__ import annotations

import datetime
import pickle
import re
from collections import namedtuple
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shmjet.data.batch import Batch
from shmjet.data.errors import BatchError
from shmjet.data.nullable import Nullable
from shmjet.data.text import Text
from tests.data.batches import batches

PEOPLE = Batch({"id": [1, 2, 3], "name": ["Ada", None, "Zoë"], "size": [1.5, float("nan"), None]})

SECOND = np.timedelta64(1, "s")


def test_a_batch_has_its_columns_names_and_rows() -> None:
    assert (PEOPLE.num_rows, PEOPLE.num_columns, PEOPLE.names, len(PEOPLE)) == (3, 3, ("id", "name", "size"), 3)
    assert PEOPLE.schema == {"id": np.dtype("i8"), "name": "text", "size": np.dtype("f8")}
    assert PEOPLE["id"].tolist() == [1, 2, 3]
    assert "name" in PEOPLE
    assert "nome" not in PEOPLE
    assert PEOPLE.validity("id") is None
    mask = PEOPLE.validity("name")
    assert mask is not None
    assert mask.tolist() == [True, False, True]
    assert bool(Batch({}))
    assert list(PEOPLE) == list({**PEOPLE}) == ["id", "name", "size"]


def test_rows_are_plain_python_values_and_nulls_are_none() -> None:
    first, second, third = PEOPLE.rows()
    assert first == {"id": 1, "name": "Ada", "size": 1.5}
    assert type(first["id"]) is int
    assert second["name"] is None
    assert second["size"] != second["size"]
    assert third == {"id": 3, "name": "Zoë", "size": None}
    assert list(PEOPLE.tuples())[2] == (3, "Zoë", None)
    assert PEOPLE.to_dict()["name"] == ["Ada", None, "Zoë"]


def test_text_that_is_not_utf8_is_an_error_that_names_the_column() -> None:
    batch = Batch({"n": [1, 2], "t": Text([0, 1, 2], b"a\xff")})
    for read in (batch.to_dict, lambda: list(batch.rows()), lambda: batch.values("t")):
        with pytest.raises(BatchError, match=r"column 't' has text that is not valid UTF-8: .* byte 0xff"):
            read()
    assert repr(batch)


def test_rows_of_any_kind_make_a_batch() -> None:
    assert Batch.from_rows(PEOPLE.rows()) == PEOPLE
    assert Batch.from_rows(PEOPLE.tuples(), ["id", "name", "size"]) == PEOPLE
    assert Batch.from_rows([{"b": 1, "a": 2}], ["a"]) == Batch({"a": [2]})
    assert Batch.from_rows([]) == Batch({})
    assert Batch.from_rows([], ["a"]).schema == {"a": np.dtype("f8")}
    days = Batch.from_rows([(datetime.date(2020, 1, 2), datetime.datetime(2020, 1, 2, 3), True)], ["d", "t", "b"])
    assert days.schema == {"d": np.dtype("M8[D]"), "t": np.dtype("M8[us]"), "b": np.dtype("?")}
    assert list(days.tuples()) == [(datetime.date(2020, 1, 2), datetime.datetime(2020, 1, 2, 3), True)]


@pytest.mark.parametrize(
    ("columns", "text"),
    [
        ({"a": [1, 2], "b": [1]}, "column 'b' has 1 rows, 'a' has 2"),
        ({"": [1]}, "non-empty str"),
        ({1: [1]}, "non-empty str"),
        ({"a": np.zeros((2, 2))}, r"column 'a' must be one-dimensional, got an array of shape \(2, 2\)"),
        ({"a": np.array(["x", 1], object)}, r"column 'a' has dtype object; for text use Text.of"),
        ({"a": np.zeros(2, [("x", object)])}, "column 'a' has dtype"),
        ({"a": [1, "x"]}, "column 'a' mixes text"),
        ({"a": [SECOND, 5]}, "column 'a' mixes timedelta64 with int"),
        ({"a": [True, None, SECOND, 5]}, "column 'a' mixes timedelta64 with bool, int"),
        ({"a": [np.timedelta64("NaT", "s"), np.int8(5)]}, "column 'a' mixes timedelta64 with int8"),
        ({"a": [np.datetime64("2020-01-01"), SECOND]}, "column 'a' mixes datetime64 with timedelta64"),
        ({"a": [np.timedelta64(1, "M"), SECOND]}, "column 'a' has values of type timedelta64"),
        ({"a": [2.5, SECOND]}, "column 'a' has values of type float and timedelta64"),
        ({"a": ["x", b"y"]}, "column 'a'.*bytes, str"),
        ({"a": [object()]}, "column 'a' has values of type object"),
        ({"a": [1 << 70]}, "column 'a' has integers from 1180591620717411303424 .* which no type"),
        (
            {"a": [-1, 1 << 63]},
            "has integers from -1 to 9223372036854775808, which no type of 64 bits",
        ),
        (
            {"a": [0.5, (1 << 53) + 1]},
            "column 'a' has 9007199254740993 as well as floats, and float64 does not hold both",
        ),
        ({"a": [[1], 2]}, "column 'a' mixes int, list"),
        ({"a": [{}, [1]]}, "column 'a': lists and dicts do not go together"),
        ({"a": [[1], ["x"]]}, "column 'a' mixes text with int, str"),
        ({"a": "abc"}, "column 'a' must be a one-dimensional array or sequence, got str"),
        ({"a": 3}, "column 'a'"),
        ({"a": np.zeros(2, "V0")}, "column 'a' has dtype"),
        ({"a": ["\ud800"]}, "column 'a'.*Unicode"),
        ([1, 2], "dict of columns"),
    ],
)
def test_what_cannot_be_a_column_is_named(columns: Any, text: str) -> None:
    with pytest.raises(BatchError, match=text):
        Batch(columns)


def test_rows_that_do_not_fit_are_named() -> None:
    with pytest.raises(BatchError, match="row 1 has no value for column 'b'"):
        Batch.from_rows([{"a": 1, "b": 2}, {"a": 1}])
    with pytest.raises(BatchError, match="row 0 has 1 values for 2 columns"):
        Batch.from_rows([(1,)], ["a", "b"])
    with pytest.raises(BatchError, match="needs the names"):
        Batch.from_rows([(1,)])
    with pytest.raises(BatchError, match="duplicate column names"):
        Batch.from_rows([(1, 2)], ["a", "a"])


@pytest.mark.parametrize("validity", [{"a": [True]}, {"a": np.zeros(2)}, {"b": [True, True]}])
def test_a_mask_must_fit_its_column(validity: Any) -> None:
    with pytest.raises(BatchError, match="validity"):
        Batch({"a": [1, 2]}, validity)


def test_masked_arrays_bring_their_nulls() -> None:
    masked = np.ma.masked_array([1, 2, 3], [False, True, False])
    assert Batch({"a": masked}).to_dict() == {"a": [1, None, 3]}
    assert Batch({"a": masked}, {"a": [True, True, False]}).to_dict() == {"a": [1, None, None]}


@pytest.mark.parametrize(
    "array",
    [
        np.arange(20)[::3],
        np.arange(7)[::-1],
        np.arange(7, dtype=">i4"),
        np.asfortranarray(np.arange(12.0).reshape(3, 4))[1],
        np.frombuffer(b"x" + np.arange(5, dtype="<i8").tobytes(), "<i8", 5, 1),
        np.zeros(3, [("a", ">i4"), ("b", "<f8")]),
        np.broadcast_to(np.int16(7), (5,)),
    ],
)
def test_arrays_of_any_layout_become_the_same_values(array: Any) -> None:
    batch = Batch({"a": array})
    assert np.array_equal(batch["a"], array)
    assert batch["a"].flags.c_contiguous
    assert batch["a"].dtype.isnative
    assert not batch["a"].flags.writeable


def test_a_batch_is_immutable() -> None:
    array = np.arange(3)
    batch = Batch({"a": array})
    with pytest.raises(ValueError, match="read-only"):
        batch["a"][0] = 1
    array[0] = 5  # the user's own array stays writable
    with pytest.raises(AttributeError, match="immutable"):
        batch.num_rows = 7
    with pytest.raises(TypeError):
        hash(batch)


def test_a_wrong_name_is_an_error_that_gives_the_right_ones() -> None:
    for use in (lambda: PEOPLE["nome"], lambda: PEOPLE.select("nome"), lambda: PEOPLE.validity("nome")):
        with pytest.raises(BatchError, match=r"no column 'nome'; there are \['id', 'name', 'size'\]"):
            use()
    with pytest.raises(BatchError, match="is indexed by"):
        PEOPLE[1.5]  # type: ignore[call-overload]


def test_parts_of_a_batch() -> None:
    assert PEOPLE.select("name", "id").names == ("name", "id")
    assert PEOPLE[["id"]] == PEOPLE.select("id")
    assert PEOPLE[1:].to_dict()["name"] == [None, "Zoë"]
    assert PEOPLE[::-2].to_dict()["id"] == [3, 1]
    assert PEOPLE[5:].num_rows == 0
    assert PEOPLE.take([2, 0, -1]).to_dict()["name"] == ["Zoë", "Ada", "Zoë"]
    assert PEOPLE.filter(PEOPLE["id"] > 1).to_dict()["id"] == [2, 3]
    assert PEOPLE[PEOPLE["name"] == "Ada"].to_dict()["id"] == [1]
    assert PEOPLE.with_columns({"id": ["x", "y", "z"]}).to_dict()["id"] == ["x", "y", "z"]
    with pytest.raises(IndexError):
        PEOPLE.take([3])
    for mask in (np.ones(2, np.bool_), np.ones(3)):
        with pytest.raises(BatchError, match="a mask for 3 rows"):
            PEOPLE.filter(mask)


def test_batches_join_end_to_end() -> None:
    assert Batch.concat([PEOPLE[:1], PEOPLE[1:]]) == PEOPLE
    assert Batch.concat([PEOPLE[:1], PEOPLE[:0]]) == PEOPLE[:1]
    with pytest.raises(BatchError, match="different columns"):
        Batch.concat([PEOPLE, PEOPLE.select("id")])
    with pytest.raises(BatchError, match="at least one"):
        Batch.concat([])


def test_equality_is_that_of_all_values() -> None:
    assert Batch({"a": [1.0, float("nan")]}) == Batch({"a": [1.0, float("nan")]})
    assert Batch({"a": [1]}) != Batch({"a": [1.0]})
    assert Batch({"a": [1], "b": [2]}) != Batch({"b": [2], "a": [1]})
    assert Batch({"a": [1, 2]}, {"a": [True, False]}) == Batch({"a": [1, 9]}, {"a": [True, False]})
    assert Batch({"a": [1, 2]}, {"a": [True, False]}) != Batch({"a": [1, 2]})
    assert Batch({"a": [1, 2]}, {"a": [True, False]})[:1] == Batch({"a": [1]})
    assert PEOPLE != "people"


@given(batches())
def test_pickling_keeps_every_batch(batch: Batch) -> None:
    assert pickle.loads(pickle.dumps(batch, 5)) == batch


@given(batches(most_rows=20), st.data())
def test_slices_and_takes_agree_with_lists(batch: Batch, data: st.DataObject) -> None:
    cut = data.draw(st.slices(batch.num_rows))
    places = list(range(batch.num_rows))[cut]
    assert batch[cut] == batch.take(places)
    for name in batch.names:
        assert repr(batch[cut].values(name)) == repr(batch.values(name)[cut])


@given(batches())
def test_every_batch_has_a_picture(batch: Batch) -> None:
    assert len(repr(batch).splitlines()) <= 14
    assert all(len(line) <= 140 for line in repr(batch).splitlines())
    assert "<table>" in batch._repr_html_()


def test_a_picture_shows_dates_text_and_nulls_as_a_person_reads_them() -> None:
    batch = Batch(
        {
            "day": np.array(["2013-01-01", "NaT"], "M8[D]"),
            "at": np.array(["2013-01-01T05:15:00.25", "NaT"], "M8[us]"),
            "took": np.array([90, 5], "m8[m]"),
            "x": np.array([0.1, np.nan], np.float32),
            "word": Nullable(["null", None]),
        }
    )
    assert repr(batch).splitlines() == [
        "Batch(2 rows, 5 columns)",
        "day            at                      took            x        word",
        "datetime64[D]  datetime64[us]          timedelta64[m]  float32  text",
        "2013-01-01     2013-01-01 05:15:00.25  1:30:00         0.1      'null'",
        "NaT            NaT                     0:05:00         nan      null",
    ]
    other = {"ns": np.array([1], "M8[ns]"), "b": [b"\xff"], "s": np.array([(1, "2000-01-01")], "i4, M8[D]")}
    last = repr(Batch({**other, "m\n": np.array([3], "m8[M]"), "e": ["\x1b[2J"]})).splitlines()
    assert last[1].split()[3:] == ["m·", "e"]
    assert last[3].split("  ")[0] == "1970-01-01 00:00:00.000000001"
    assert re.split(" {2,}", last[3])[1:] == ["b'\\xff'", "(1, 2000-01-01)", "3 M", "·[2J"]
    html = batch.with_columns({"<": ["<b>", "&"]})._repr_html_()
    assert "<td>2013-01-01</td><td>2013-01-01 05:15:00.25</td><td>1:30:00</td>" in html
    assert "<th>&lt;</th>" in html
    assert "<td>&lt;b&gt;</td>" in html
    assert repr(batch["word"][1:]) == "Nullable([None], 1 text values, 1 null)"
    days = Nullable(batch["day"], [True, False])
    assert repr(days) == "Nullable([2013-01-01, None], 2 datetime64[D] values, 1 null)"


def test_the_picture_of_a_wide_and_long_batch_fits_a_terminal() -> None:
    wide = Batch({f"column_{i}": np.arange(1000) for i in range(1000)})
    assert "990 more rows" in repr(wide)
    assert "more columns" in repr(wide)
    assert max(map(len, repr(wide).splitlines())) <= 100
    assert "<b>" not in Batch({"<b>": ["<script>"]})._repr_html_()


class TestText:
    def test_values_slices_and_comparisons(self) -> None:
        text = Text.of(["a", "bé", "", "a"])
        assert (text[1], text[-1], len(text), list(text)) == ("bé", "a", 4, ["a", "bé", "", "a"])
        assert text[1:3].tolist() == ["bé", ""]
        assert text[::-1].tolist() == ["a", "", "bé", "a"]
        assert (text == "a").tolist() == [True, False, False, True]
        assert (text != "").tolist() == [True, True, False, True]
        assert (text == text[::-1]).tolist() == [True, False, False, True]
        assert (text == b"a").tolist() == [False] * 4
        assert text[np.array([True, False, False, True])].tolist() == ["a", "a"]
        assert np.asarray(text).tolist() == text.tolist()

    def test_a_slice_shares_the_bytes_and_compact_cuts_them(self) -> None:
        text = Text.of(["abc", "de", "f"])[1:]
        assert np.shares_memory(text.data, text[:1].data)
        assert (text.compact().offsets.tolist(), bytes(text.compact().data)) == ([0, 2, 3], b"def")
        assert text.nbytes == 3 + 3 * 8

    @pytest.mark.parametrize("offsets", [[1, 0], [0, 4], [-1, 0], [], [[0]]])
    def test_offsets_must_ascend_within_the_data(self, offsets: Any) -> None:
        with pytest.raises(BatchError):
            Text(offsets, b"abc")

    def test_mistakes_are_named(self) -> None:
        text = Text.of([b"a"])
        with pytest.raises(IndexError):
            text[1]
        with pytest.raises(BatchError, match="found bytes, int"):
            Text.of([b"a", 1])  # type: ignore[list-item]
        with pytest.raises(BatchError, match="text and bytes"):
            Text.concat([text, Text.of(["a"])])
        with pytest.raises(BatchError, match="mask"):
            text.filter(np.ones(3, np.bool_))
        with pytest.raises(AttributeError, match="immutable"):
            text.data = np.zeros(1, np.uint8)

    @given(st.lists(st.text(max_size=8)), st.lists(st.text(max_size=8)))
    def test_concat_and_take_agree_with_lists(self, one: list[str], two: list[str]) -> None:
        joined = Text.concat([Text.of(one), Text.of(two)])
        assert joined.tolist() == one + two
        places = list(range(len(one + two)))[::-1]
        assert joined.take(places).tolist() == (one + two)[::-1]
        assert joined.equals(Text.of(one + two))


# -- invalid choices of rows or columns --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "indices",
    [
        [0.5],
        [None],
        ["id"],
        [True, False, True],
        [1, True],
        [[0, 1]],
        [[0], [0, 1]],
        np.array([0.0, 1.0]),
        np.array([True, False, True]),
        np.ma.masked_array([0, 1], [False, True]),
        Nullable([0, None]),
    ],
)
def test_only_integers_are_numbers_of_rows(indices: Any) -> None:
    for table in (PEOPLE, Text.of(["a", "b", "c"]), Nullable([1, None, 3])):
        with pytest.raises(BatchError, match="numbers of rows must"):
            table.take(indices)
    for column in (Text.of(["a", "b", "c"]), Nullable([1, None, 3])):
        for index in (True, None, 0.5, "a"):
            with pytest.raises(BatchError, match="numbers of rows must"):
                column[index]  # type: ignore[call-overload]


@pytest.mark.parametrize("index", [3, -4, 2**63, -(2**63), np.uint64(2**64 - 1)])
def test_a_row_that_does_not_exist_is_an_index_error(index: Any) -> None:
    for table in (PEOPLE, Text.of(["a", "b", "c"]), Nullable([1, None, 3]), Batch({"n": [1, 2, 3]})):
        with pytest.raises(IndexError, match="out of range: there are 3"):
            table.take(np.array([index]) if isinstance(index, np.uint64) else [0, index])
    with pytest.raises(IndexError):
        Batch({}).take([0])


def test_rows_may_be_numbered_by_any_integers() -> None:
    for dtype in ("i1", "i8", "u1", "u8", ">i4"):
        assert PEOPLE.take(np.array([2, 0], dtype)).to_dict()["id"] == [3, 1]
    assert PEOPLE.take(range(2, -1, -1)).to_dict()["id"] == PEOPLE.take([-1, -2, -3]).to_dict()["id"] == [3, 2, 1]
    assert PEOPLE.take(Nullable([1, 1])).to_dict()["name"] == [None, None]
    for nothing in ([], (), np.zeros(0), np.zeros(0, np.int64)):
        assert PEOPLE.take(nothing).num_rows == len(Text.of(["a"]).take(nothing)) == 0


def test_a_mask_leaves_out_what_is_null_or_masked() -> None:
    masked = np.ma.masked_array([True, True, False], [True, False, False])
    for mask in (masked, [None, True, False], Nullable([None, True, False]), (False, True, None)):
        assert PEOPLE.filter(mask).to_dict()["id"] == [2]
        assert Text.of(["a", "b", "c"]).filter(mask).tolist() == ["b"]
    assert PEOPLE[masked].to_dict()["id"] == PEOPLE[Nullable([None, True, False])].to_dict()["id"] == [2]
    assert Text.of(["a", "b", "c"])[masked].tolist() == ["b"]
    assert Batch({"n": np.zeros(0, np.int64)}).filter([]).num_rows == 0
    assert PEOPLE.filter(PEOPLE["size"] == 1.5).to_dict()["id"] == [1]


@pytest.mark.parametrize(
    "mask",
    [
        [True],
        [True, False, 1],
        [1, 0, 1],
        np.ones(3),
        np.ones((3, 1), np.bool_),
        "yes",
        None,
        True,
        Nullable([1, 0, None]),
        np.ma.masked_array([1, 0, 1], [False, True, False]),
        ["id", "name", "size"],
    ],
)
def test_what_is_no_mask_is_refused(mask: Any) -> None:
    with pytest.raises(BatchError, match="a mask for 3 rows must be a bool array"):
        PEOPLE.filter(mask)


def test_a_selection_names_every_column_once() -> None:
    with pytest.raises(BatchError, match=r"select\(\) names the column 'id' twice"):
        PEOPLE.select("id", "name", "id")
    with pytest.raises(BatchError, match="there is no column 1"):
        PEOPLE.select([1])
    assert PEOPLE[("name", "id")].names == ("name", "id")


def test_batches_of_other_columns_are_not_joined() -> None:
    one = Batch({"a": [1], "b": ["x"]})
    for other in ({"a": [1]}, {"a": [1.0], "b": ["x"]}, {"a": [1], "b": [b"x"]}, {"a": [1], "c": ["x"]}):
        with pytest.raises(BatchError, match="batches of different columns"):
            Batch.concat([one, Batch(other)])
    assert Batch.concat([one, Batch({"b": [None, "y"], "a": [2, None]})]).to_dict() == {
        "a": [1, 2, None],
        "b": ["x", None, "y"],
    }


def test_text_is_ordered_by_code_points() -> None:
    words = ["b", "", "a\U0001f600", "a\uffff", "é"]
    text = Text.of(words)
    for other in ("a\uffff", "", "é"):
        assert (text < other).tolist() == [word < other for word in words]
        assert (text >= other).tolist() == [word >= other for word in words]
    assert (text <= Text.of(words[::-1])).tolist() == [a <= b for a, b in zip(words, words[::-1], strict=True)]
    assert (Text.of([b"a", b"c"]) > b"b").tolist() == [False, True]
    for wrong in (lambda: text < b"a", lambda: text < Text.of(["a"])):
        with pytest.raises(BatchError, match="cannot be compared"):
            wrong()
    with pytest.raises(TypeError):
        text < 1  # type: ignore[operator]  # noqa: B015


def test_named_tuples_have_the_names_of_their_columns() -> None:
    pair = namedtuple("pair", "a b")
    rows = [pair(1, "x"), pair(None, "y")]
    assert Batch.from_rows(rows).to_dict() == {"a": [1, None], "b": ["x", "y"]}
    assert Batch.from_rows(rows, schema={"b": "category", "a": "int8"}).schema["a"] == np.int8
    assert Batch.from_rows(rows, schema={"p": "int8", "q": "text"}).to_dict() == {"p": [1, None], "q": ["x", "y"]}
    assert Batch.from_rows(rows, ["q", "p"]).to_dict() == {"q": [1, None], "p": ["x", "y"]}


def test_a_column_without_values_takes_the_kind_of_the_others() -> None:
    rows, nothing = Batch({"k": ["a"], "v": [7]}), Batch({"k": ["b"], "v": [None]})
    joined = Batch.concat([nothing, nothing[:0], rows])
    assert (joined.to_dict(), joined.schema["v"]) == ({"k": ["b", "a"], "v": [None, 7]}, np.int64)
    assert Batch.concat([nothing, Batch({"k": [None], "v": ["x"]})]).to_dict() == {"k": ["b", None], "v": [None, "x"]}
    assert Batch.concat([nothing[:0], Batch({"k": [], "v": []}, schema={"k": "text", "v": "int8"})]).num_rows == 0
    with pytest.raises(BatchError, match="cannot be joined"):
        Batch.concat([rows, Batch({"k": ["a"], "v": [0.5]})])


class Timestamp(datetime.datetime):
    """As that of pandas, which a column takes with its nanoseconds."""

    def to_datetime64(self) -> np.datetime64:
        return np.datetime64(self, "ns") + np.timedelta64(7, "ns")


Timestamp.__module__ = "pandas._libs.tslibs"


def test_times_of_pandas_are_taken_as_they_are() -> None:
    batch = Batch({"at": [Timestamp(2024, 1, 1), None]})
    assert batch["at"].to_masked().compressed() == np.array(["2024-01-01T00:00:00.000000007"], "M8[ns]")


@pytest.mark.parametrize(
    ("values", "types"),
    [
        ([datetime.date(2024, 1, 1), datetime.datetime(2024, 1, 1)], "date and datetime"),
        ([Timestamp(2024, 1, 1), datetime.datetime(2024, 1, 1)], "Timestamp and datetime"),
        ([datetime.time(1), None], "time"),
    ],
)
def test_values_without_a_column_are_named_by_their_types(values: list[Any], types: str) -> None:
    with pytest.raises(BatchError, match=f"column 'a' has values of type {types}, for which there is no column"):
        Batch({"a": values})
