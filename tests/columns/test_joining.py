"""Batches are joined as a dict of rows would join them."""

from __future__ import annotations

import datetime
import math
from collections.abc import Iterable
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from shmjet._native._columns import JoinTable
from shmjet.columns.batch_builder import BatchBuilder
from shmjet.columns.join import HashJoin
from shmjet.data.batch import Batch
from shmjet.data.column_keys import hash_rows
from shmjet.data.errors import BatchError
from shmjet.data.text import Text
from tests.examples import examples

NUMBERS: list[Any] = [
    st.integers(-2, 3),
    st.sampled_from([0.0, -0.0, 0.5, 1.0, 2.0, float("nan"), float("inf"), 2.0**63, -(2.0**63)]),
    st.sampled_from([2**63 - 1, -(2**63), 0, 1]),
    st.booleans(),
    st.sampled_from([0j, 1 + 0j, 1 + 1j, complex(float("nan"), 0), complex(-0.0, 2), complex(0.0, 2)]),
]
TEXTS = st.sampled_from(["", "a", "a\0", "b", "ä", "a longer one", "a longer two"])
DTYPES = [np.int64, np.float64, np.int64, np.bool_, np.complex128]


def number_column(draw: st.DrawFn, rows: int) -> tuple[Any, list[Any]]:
    place = draw(st.integers(0, len(NUMBERS) - 1))
    values = draw(st.lists(NUMBERS[place], min_size=rows, max_size=rows))
    if draw(st.booleans()) and place == 0:
        values = [abs(value) for value in values]
        return np.array(values, np.uint8), values
    return np.array(values, DTYPES[place]), values


def text_column(draw: st.DrawFn, rows: int) -> tuple[Any, list[Any]]:
    values = draw(st.lists(TEXTS, min_size=rows, max_size=rows))
    if draw(st.booleans()):
        values = [value.replace("\0", "") for value in values]
        return np.array(values, "U12") if values else np.zeros(0, "U12"), values
    return Text.of(["before", *values])[1:], values


def bytes_column(draw: st.DrawFn, rows: int) -> tuple[Any, list[Any]]:
    values = draw(st.lists(st.sampled_from([b"", b"a", b"\xff", b"abc"]), min_size=rows, max_size=rows))
    return (np.array(values, "S3") if draw(st.booleans()) else Text.of([b"", *values])[1:]), values


@st.composite
def sides(draw: st.DrawFn) -> tuple[Batch, list[tuple[Any, ...]], Batch, list[tuple[Any, ...]]]:
    """A build side and a probe side with their keys as tuples, in which a null is a value that equals nothing."""
    makers = draw(st.lists(st.sampled_from([number_column, text_column, bytes_column]), min_size=1, max_size=3))
    made = []
    for label in ("build", "probe"):
        rows = draw(st.integers(0, 25))
        columns: dict[str, Any] = {
            label: np.arange(rows),
            f"{label} text": [f"{label} {i}" for i in range(rows)] or Text.of([]),
        }
        validity, keys = {}, []
        for place, maker in enumerate(makers):
            columns[f"k{place}"], values = maker(draw, rows)
            nulls = draw(
                st.lists(st.booleans() if draw(st.booleans()) else st.just(False), min_size=rows, max_size=rows)
            )
            validity[f"k{place}"] = ~np.array(nulls, np.bool_)
            keys.append([float("nan") if null else value for value, null in zip(values, nulls, strict=True)])
        made += [Batch(columns, validity), list(zip(*keys, strict=True))]
    return tuple(made)  # type: ignore[return-value]


def equal(a: tuple[Any, ...], b: tuple[Any, ...]) -> bool:
    """As for tuples, which look at identity before equality and so find NaN equal to itself."""
    return all(x == y for x, y in zip(a, b, strict=True))


def rows_of(batches: Iterable[Batch], *names: str) -> list[tuple[Any, ...]]:
    return [row for batch in batches for row in batch.select(*names).tuples()]


@examples(150)
@given(made=sides(), cut=st.integers(0, 25), room=st.integers(1, 40))
def test_rows_with_equal_keys_are_joined(made: Any, cut: int, room: int) -> None:
    build, build_keys, probe, probe_keys = made
    join = HashJoin([build[:cut], build[cut:]], on=[name for name in build.names if name.startswith("k")])
    matches = [[j for j, other in enumerate(build_keys) if equal(key, other)] for key in probe_keys]
    names = ("probe", "build", "build text")
    inner = list(join.inner(probe, room))
    assert all(0 < batch.num_rows <= room for batch in inner)
    assert rows_of(inner, *names) == [(i, j, f"build {j}") for i, found in enumerate(matches) for j in found]
    left = list(join.left(probe, room))
    assert rows_of(left, *names) == [
        row for i, found in enumerate(matches) for row in ([(i, j, f"build {j}") for j in found] or [(i, None, None)])
    ]
    assert rows_of(left, "probe text") == [(f"probe {i}",) for i, _, _ in rows_of(left, *names)]
    assert rows_of(join.semi(probe, room), "probe") == [(i,) for i, found in enumerate(matches) if found]
    assert rows_of(join.anti(probe, room), "probe") == [(i,) for i, found in enumerate(matches) if not found]
    assert join.num_rows == build.num_rows


@pytest.mark.parametrize("words", [True, False])
def test_a_large_table_finds_every_row(words: bool) -> None:
    rng = np.random.default_rng(3)
    keys = rng.permutation(300_000) // 2
    names = ["a"] if words else ["a", "b"]
    build = Batch({"a": keys, "b": keys % 7, "row": np.arange(len(keys))}).select(*names, "row")
    join = HashJoin((build[at : at + 10_000] for at in range(0, len(keys), 10_000)), on=names)
    probe = Batch({"a": np.arange(200_000), "b": np.arange(200_000) % 7})
    found = Batch.concat(join.inner(probe))
    assert found["a"].tolist() == [key for key in range(150_000) for _ in range(2)]
    assert np.array_equal(keys[found["row"]], found["a"])
    assert (np.diff(found["row"].reshape(-1, 2)) > 0).all()
    assert join.contains(probe).tolist() == [key < 150_000 for key in range(200_000)]


def test_a_key_that_all_rows_have_gives_steps_of_bounded_size() -> None:
    side = Batch({"k": np.zeros(3000, np.int8), "n": np.arange(3000)})
    join = HashJoin(side, on="k", suffix="_build")
    total = 0
    for batch in join.inner(side, 50_000):
        assert batch.num_rows <= 50_000
        assert np.array_equal(batch["n"] * 3000 + batch["n_build"], np.arange(total, total + batch.num_rows))
        total += batch.num_rows
    assert total == 9_000_000


def test_dates_of_different_units_are_equal_when_they_are_the_same_moment() -> None:
    days = np.array(["2024-01-01", "2024-01-02", "NaT", "9999-01-01"], "M8[D]")
    months = np.array(["2024-01", "2024-02", "NaT"], "M8[M]")
    hours = np.array(["2024-01-01T00", "2024-01-02T12", "NaT"], "M8[h]")
    seconds = np.array(["2024-01-01T00:00", "2024-01-02T12:01", "NaT"], "M8[s]")
    for some, others in ((days, months), (hours, seconds)):
        for build, probe in ((some, others), (others, some)):
            found = HashJoin(Batch({"k": build}), on="k").semi(Batch({"k": probe, "n": np.arange(len(probe))}))
            assert [batch["n"].tolist() for batch in found] == [[0]]


@pytest.mark.parametrize(
    ("one", "other"),
    [("M8[D]", "M8[s]"), ("M8[us]", "M8[ns]"), ("M8[ns]", "M8[ps]"), ("m8[s]", "m8[ns]"), ("m8[M]", "m8[D]")],
)
def test_dates_and_times_that_edges_tell_apart_are_not_joined(one: str, other: str) -> None:
    for build, probe in ((one, other), (other, one)):
        with pytest.raises(BatchError, match=r"never equals .* convert one of them"):
            list(HashJoin(Batch({"k": np.zeros(1, build)}), on="k").inner(Batch({"k": np.zeros(1, probe)})))
    assert len(list(HashJoin(Batch({"k": np.zeros(1, one)}), on="k").inner(Batch({"k": np.zeros(1, one)})))) == 1


KINDS_OF_KEYS = [
    ["?", "i1", "u2", "i8", "u8", "f2", "f4", "f8"],
    ["M8[Y]", "M8[M]", "M8[D]", "M8[h]", "M8[s]", "M8[25us]", "M8[us]", "M8[ns]"],
    ["m8[Y]", "m8[W]", "m8[D]", "m8[h]", "m8[ms]", "m8[us]", "m8[ns]"],
    ["text", "U3", "U9"],
    ["bytes", "S3", "S9"],
]


@pytest.mark.parametrize(("one", "other"), [pair for kinds in KINDS_OF_KEYS for pair in product(kinds, kinds)])
def test_keys_that_are_joined_go_to_the_same_partition(one: str, other: str) -> None:
    """Or a join behind partitioned edges would lose what one behind a broadcast edge finds."""
    sides = [Batch({"k": key_column(kind), "row": np.arange(40)}) for kind in (one, other)]
    hashes = [hash_rows(side, ["k"]) for side in sides]
    try:
        pairs = list(HashJoin(sides[0], on="k", suffix="_build").inner(sides[1]))
    except BatchError:
        return  # refused: nothing is lost
    found = Batch.concat(pairs)
    assert found.num_rows
    assert np.array_equal(hashes[1][found["row"]], hashes[0][found["row_build"]])


def key_column(kind: str) -> Any:
    """Return 40 values, the same for all dtypes of a kind as far as they can hold them."""
    numbers = np.arange(40) % 20
    if kind in ("text", "U3", "U9"):
        values = [f"k{number}" for number in numbers.tolist()]
        return Text.of(values) if kind == "text" else np.array(values, kind)
    if kind in ("bytes", "S3", "S9"):
        raw = [b"k%d" % number for number in numbers.tolist()]
        return Text.of(raw) if kind == "bytes" else np.array(raw, kind)
    if kind.startswith("M8"):
        return (np.datetime64("1990-01-01") + 365 * numbers).astype(kind)
    if kind.startswith("m8"):
        return numbers.astype(kind) if kind == "m8[Y]" else (7 * numbers).astype("m8[D]").astype(kind)
    return numbers.astype(kind)


def test_structured_keys_are_equal_when_their_fields_are() -> None:
    kind = [("a", "i4"), ("b", "f8", 2)]
    build = Batch({"k": np.array([(1, (1, 2)), (2, (1, 2))], kind), "n": [1, 2]})
    probe = Batch({"k": np.array([(2, (1, 2)), (1, (1, 3))], kind)})
    assert [batch["n"].tolist() for batch in HashJoin(build, on="k").inner(probe)] == [[2]]


def test_keys_may_have_different_names_and_types() -> None:
    build = Batch({"id": np.array([1, 2], np.uint8), "v": ["x", "y"]})
    probe = Batch({"ref": [2.0, 1.5, 1.0], "v": [1, 2, 3]})
    (found,) = HashJoin(build, on={"ref": "id"}, suffix="_b").inner(probe)
    assert found.to_dict() == {"ref": [2.0, 1.0], "v": [1, 3], "v_b": ["y", "x"]}


def test_without_a_build_side_a_left_join_has_the_columns_of_its_schema() -> None:
    probe = Batch({"k": [1, 2]})
    (found,) = HashJoin(on="k", schema={"k": int, "n": "int32", "t": "text"}).left(probe)
    assert found.to_dict() == {"k": [1, 2], "n": [None, None], "t": [None, None]}
    assert found.schema == {"k": np.dtype(int), "n": np.dtype("int32"), "t": "text"}
    assert [batch.to_dict() for batch in HashJoin(on="k").left(probe)] == [{"k": [1, 2]}]
    assert list(HashJoin(on="k").inner(probe)) == []
    assert [batch.to_dict() for batch in HashJoin(on="k").anti(probe)] == [{"k": [1, 2]}]


def test_wrong_joins_are_refused_with_the_names() -> None:
    build, probe = Batch({"k": [1], "v": [2]}), Batch({"k": [1], "v": [3]})
    with pytest.raises(BatchError, match=r"both sides of the join have a column 'v'.*suffix='_right'"):
        list(HashJoin(build, on="k").inner(probe))
    with pytest.raises(BatchError, match="'v_b' exists too"):
        list(HashJoin(build, on="k", suffix="_b").inner(probe.with_columns({"v_b": [1]})))
    with pytest.raises(BatchError, match="column 'k' of dtype text never equals column 'k' of dtype int64"):
        list(HashJoin(build, on="k").semi(Batch({"k": ["1"]})))
    with pytest.raises(BatchError, match="no column 'z'"):
        HashJoin(build, on="z")
    with pytest.raises(BatchError, match="no column 'z'"):
        list(HashJoin(build, on={"z": "k"}).inner(probe))
    with pytest.raises(BatchError, match="must name"):
        HashJoin(build, on=[])
    with pytest.raises(BatchError, match="twice"):
        HashJoin(build, on=["k", "k"])
    with pytest.raises(BatchError, match="batches of different columns cannot go together"):
        HashJoin([build, probe.select("k")], on="k")
    with pytest.raises(BatchError, match="cannot be a key; make it float64"):
        HashJoin(Batch({"k": np.zeros(1, np.longdouble)}), on="k")
    join = HashJoin(build, on="k", suffix="_b")
    list(join.inner(probe))
    with pytest.raises(BatchError, match="no more rows"):
        join.add(build)


def test_a_table_refuses_what_does_not_fit_it() -> None:
    table, out = JoinTable(), np.empty(4, np.int64)
    numbers: Any = [("i", 8, 2, np.arange(2), None, None)]
    table.add(numbers)
    with pytest.raises(ValueError, match="keys of 1 columns got 2"):
        table.add(numbers * 2)
    with pytest.raises(ValueError, match="takes only numbers"):
        table.add([("t", 0, 1, b"a", np.array([0, 1]), None)])
    with pytest.raises(ValueError, match="cannot be a key"):
        table.add([("f", 2, 1, b"ab", None, None)])
    with pytest.raises(ValueError, match="no probe goes on"):
        table.probe(numbers, 0, 5, False, out, out)
    with pytest.raises(ValueError, match="a byte for each of 2 rows"):
        table.contains(numbers, bytearray(3))
    assert (len(table), table.keys) == (2, 2)
    assert table.nbytes > 0
    with pytest.raises(ValueError, match="no survey once rows have been added"):
        table.survey(numbers)
    for other in (5, -1, 2**63 - 1, -(2**63)):
        table = JoinTable()
        table.survey(numbers)
        with pytest.raises(ValueError, match="only rows that were surveyed"):
            table.add([("i", 8, 2, np.array([0, other]), None, None)])
    with pytest.raises(ValueError, match="only rows that were surveyed"):
        table.add(numbers)  # one of its two rows is there
    for other, dense in ((5, True), (-1, True), (10**6 + 1, False)):
        pair: Any = [*numbers, ("i", 8, 2, np.array([0, 1 if dense else 10**6]), None, None)]
        table = JoinTable()
        table.survey(pair)
        with pytest.raises(ValueError, match="only rows that were surveyed"):
            table.add([*numbers, ("i", 8, 2, np.array([0, other]), None, None)])


_CLOSE = st.integers(-3, 9)
_ENDS = st.sampled_from([-(2**63), 1 - 2**63, 2**63 - 2, 2**63 - 1])
_DATES = _CLOSE.map(lambda day: datetime.date(1970, 1, 4) + datetime.timedelta(day))
_KEYS = st.sampled_from(
    [
        (_CLOSE, _CLOSE),
        (_CLOSE, st.one_of(_CLOSE, _ENDS, st.sampled_from([-0.0, 0.5, math.nan, math.inf, -math.inf, 1e300]))),
        (_CLOSE, st.integers(2**63, 2**64 - 1)),
        (_ENDS.filter(lambda key: key > 0), _ENDS),
        (_ENDS.filter(lambda key: key < 0), _ENDS),
        (st.one_of(_CLOSE, _ENDS), st.one_of(_CLOSE, _ENDS)),
        (st.integers(2**63, 2**63 + 9), st.integers(2**63, 2**63 + 9)),
        (st.booleans(), _CLOSE),
        (_DATES, _DATES),
        (_CLOSE.map(float), _CLOSE),
        (st.none(), _CLOSE),
    ]
)
"""Keys of the build side and of the probe side, most close together."""


@given(data=st.data(), rows=st.integers(1, 20), nbytes=st.integers(1, 300))
def test_keys_close_together_match_as_in_python(data: st.DataObject, rows: int, nbytes: int) -> None:
    of_build, of_probe = data.draw(_KEYS)
    build: list[list[Any]] = data.draw(st.lists(st.lists(st.none() | of_build, max_size=40), max_size=4))
    probe: list[Any] = data.draw(st.lists(st.none() | of_probe, max_size=40))
    try:
        batch = Batch({"k": probe, "p": range(len(probe))})
    except BatchError:  # a column of 2**63 and 0.5 is none
        assume(False)
    numbers = iter(range(200))
    join = HashJoin([Batch({"k": keys, "b": [next(numbers) for _ in keys]}) for keys in build], on="k")
    while not join.build(nbytes):
        pass
    flat = [key for keys in build for key in keys]
    pairs = [(p, b) for p, one in enumerate(probe) for b, two in enumerate(flat) if one is not None and one == two]
    found = [row for part in join.inner(batch, rows) for row in zip(part["p"], part["b"], strict=True)] if flat else []
    assert found == pairs
    matched = {p for p, _ in pairs}
    assert [row for part in join.semi(batch) for row in part["p"]] == sorted(matched) or not flat
    padded = [each for p in range(len(probe)) for each in [q for q in pairs if q[0] == p] or [(p, None)]]
    if flat:
        assert [row for part in join.left(batch, rows) for row in zip(part["p"], part["b"], strict=True)] == padded


@given(data=st.data(), columns=st.integers(2, 5), rows=st.integers(1, 20))
def test_keys_of_several_columns_close_together_match_as_in_python(
    data: st.DataObject, columns: int, rows: int
) -> None:
    kinds = [data.draw(_KEYS) for _ in range(columns)]
    build: list[list[Any]] = [data.draw(st.lists(st.none() | one, min_size=9, max_size=9)) for one, _ in kinds]
    probe: list[list[Any]] = [data.draw(st.lists(st.none() | one, min_size=12, max_size=12)) for _, one in kinds]
    names = [f"k{column}" for column in range(columns)]
    try:
        sides = [
            Batch(dict(zip(names, side, strict=True)) | {at: range(len(side[0]))})
            for side, at in ((build, "b"), (probe, "p"))
        ]
    except BatchError:
        assume(False)
    table, keys = sides[0], [*zip(*build, strict=True)]
    join = HashJoin([table[:4], table[4:]], on=names)
    expected = [
        (p, b)
        for p, one in enumerate(zip(*probe, strict=True))
        for b, two in enumerate(keys)
        if None not in one and one == two and not any(key != key for key in one)
    ]
    assert [row for part in join.inner(sides[1], rows) for row in zip(part["p"], part["b"], strict=True)] == expected


@pytest.mark.parametrize("columns", [1, 2, 3])
@pytest.mark.parametrize("repeated", [0, 1, 700])
@pytest.mark.parametrize("spread", [1, 1000])
def test_many_rows_match_however_far_their_keys_lie_apart(columns: int, repeated: int, spread: int) -> None:
    random = np.random.default_rng(columns * 10 + repeated)
    places = random.permutation(np.concatenate([np.arange(3000), random.integers(0, 3000, repeated)]))
    sought = random.integers(-500, 3500, 5000)

    def keys(places: Any) -> dict[str, Any]:
        digits = (places, places % 7 - 3, places // 11)
        return {f"k{at}": digit * spread for at, digit in enumerate(digits[:columns])}

    build, probe = Batch({**keys(places), "b": range(len(places))}), Batch({**keys(sought), "p": range(5000)})
    by_place: dict[int, list[int]] = {}
    for at, place in enumerate(places.tolist()):
        by_place.setdefault(place, []).append(at)
    pairs = [(p, by_place.get(place, [])) for p, place in enumerate(sought.tolist())]
    for rows in (300, 1 << 16):
        join = HashJoin([build[:900], build[900:1000], build[1000:]], on=[name for name in probe.names if name != "p"])
        inner = [row for part in join.inner(probe, rows) for row in zip(part["p"], part["b"], strict=True)]
        assert inner == [(p, b) for p, found in pairs for b in found]
        left = [row for part in join.left(probe, rows) for row in zip(part["p"], part["b"], strict=True)]
        assert left == [(p, b) for p, found in pairs for b in found or [None]]
        assert [p for part in join.anti(probe) for p in part["p"]] == [p for p, found in pairs if not found]


@given(
    rows=st.lists(
        st.lists(st.tuples(st.one_of(st.none(), st.text(max_size=3)), st.integers(0, 9)), max_size=5), max_size=6
    ),
    nbytes=st.integers(1, 200),
)
def test_a_pile_becomes_what_concat_makes(rows: list[list[tuple[Any, int]]], nbytes: int) -> None:
    whole = Batch.from_rows([(None, 0), ("x", 1), *(row for some in rows for row in some)], ["t", "n"])
    edges = np.cumsum([2, *map(len, rows)]).tolist()
    parts = [whole[a:b] for a, b in zip([1, *edges], edges, strict=False)]
    builder = BatchBuilder()
    for part in parts:
        builder.add(part)
    while not builder.join(nbytes):
        pass
    assert builder.batch == Batch.concat(parts)


def test_a_head_leaves_no_mask_in_what_it_is_joined_with() -> None:
    nothing = np.zeros(0, np.bool_)
    head, batch = Batch.trusted({"n": np.zeros(0, np.int64)}, {"n": nothing}, 0), Batch({"n": [1, 2]})
    builder = BatchBuilder()
    for part in (head, batch, batch):
        builder.add(part)
    while not builder.join(1):
        pass
    for made in (builder.batch, Batch.concat([head, batch, batch]), Batch.concat([batch, head])):
        assert isinstance(made["n"], np.ndarray), "a mask that hides nothing costs time and memory"
    assert "n" in Batch.concat([head, head]).parts()[1], "no rows: the mask tells that the kind is known"


@pytest.mark.parametrize("batch", [Batch({"k": [], "t": []}), Batch({"k": [None, None], "t": [None, None]})])
def test_columns_without_a_value_fit_every_schema_of_the_build_side(batch: Batch) -> None:
    join = HashJoin([batch, Batch({"k": ["a"], "t": ["b"]})], on="k", schema={"k": str, "t": str})
    (found,) = join.left(Batch({"k": ["a", "c"]}))
    assert found.to_dict() == {"k": ["a", "c"], "t": ["b", None]}


def test_a_build_side_of_nulls_alone_joins_with_one_of_no_rows() -> None:
    nothing, null = (
        Batch({"k": [], "t": []}),
        Batch({"k": Text.of([""]), "t": Text.of([""])}, {"k": [False], "t": [False]}),
    )
    for build in ([nothing, null], [null, nothing]):
        (found,) = HashJoin(build, on="k").left(Batch({"k": ["a"]}))
        assert found.to_dict() == {"k": ["a"], "t": [None]}


def test_rows_of_the_build_side_without_a_match_come_last_and_once() -> None:
    build = Batch({"id": [1, 2, 2, None, 5], "v": ["a", "b", "c", "d", "e"]})
    join = HashJoin([build[:3], build[3:]], on={"k": "id"}, notes_matches=True)
    probe = Batch({"k": [2.0, 0.5, None, float("nan")], "v": [1, 2, 3, 4]})
    with pytest.raises(BatchError, match="both sides of the join have a column 'v'"):
        list(join.outer(probe))
    join = HashJoin([build[:3], build[3:]], on={"k": "id"}, suffix="_r", notes_matches=True)
    assert rows_of(join.right(probe), "k", "v", "v_r") == [(2.0, 1, "b"), (2.0, 1, "c")]
    (rest,) = join.unmatched()
    assert rest.to_dict() == {"k": [1.0, None, 5.0], "v": [None] * 3, "v_r": ["a", "d", "e"]}
    assert rest.schema["k"] == np.float64
    assert list(join.unmatched()) == []


def test_unmatched_rows_have_the_columns_of_a_stream_that_never_came() -> None:
    build = Batch({"k": [1], "n": [2]})
    join = HashJoin(build, on="k", probe_schema={"t": str, "k": "int8"}, notes_matches=True)
    assert [batch.to_dict() for batch in join.unmatched()] == [{"t": [None], "k": [1], "n": [2]}]
    assert [batch.to_dict() for batch in HashJoin(build, on="k", notes_matches=True).unmatched()] == [
        {"k": [1], "n": [2]}
    ]
    with pytest.raises(BatchError, match="lacks the key column 'k'"):
        HashJoin(build, on="k", probe_schema={"t": str}, notes_matches=True)


def test_a_semi_join_may_have_columns_of_one_name_on_both_sides() -> None:
    build = Batch({"k": [1], "v": [2]})
    assert rows_of(HashJoin(build, on="k").semi(Batch({"k": [1, 3], "v": [5, 6]})), "v") == [(5,)]


def test_lists_and_structs_are_keys() -> None:
    build = Batch(
        {"k": [[1.0, None], [], [-0.0], None], "s": [{"a": 1}, {"a": None}, {"a": 2}, None], "v": [1, 2, 3, 4]}
    )
    probe = Batch({"k": [[], [1.0, None], [0.0], [2.0], None], "n": [1, 2, 3, 4, 5]})
    assert rows_of(HashJoin(build.select("k", "v"), on="k").inner(probe), "n", "v") == [(1, 2), (2, 1), (3, 3)]
    structs = Batch({"s": [{"a": 2}, {"a": None}, None], "n": [1, 2, 3]})
    assert rows_of(HashJoin([build[:2], build[2:]], on="s").inner(structs), "n", "v") == [(1, 3), (2, 2)]
    with pytest.raises(BatchError, match=r"list<int64> never equals column 'k' of dtype list<float64>"):
        list(HashJoin(build, on="k").inner(Batch({"k": [[1]]})))
