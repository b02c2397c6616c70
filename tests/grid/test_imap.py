"""The map as its user sees it, in one process."""

from __future__ import annotations

import datetime
import decimal
import errno
import os
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from shmjet.core.keys import partition_id
from shmjet.grid import Grid, GridError
from shmjet.ring.pickling import ItemEncodingError
from tests.examples import examples

KEYS = st.one_of(
    st.integers(),
    st.floats(allow_nan=False),
    st.booleans(),
    st.text(alphabet=st.characters(), max_size=20),
    st.binary(max_size=20),
    st.tuples(st.integers(), st.text(max_size=5)),
    st.dates(),
    st.decimals(allow_nan=False, allow_infinity=False, places=3),
)
SCALARS = st.one_of(
    st.booleans(), st.integers(), st.floats(), st.text(alphabet=st.characters()), st.binary(), st.complex_numbers()
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4), st.tuples(inner, inner), st.dictionaries(st.text(max_size=3), inner, max_size=3)
    ),
    max_leaves=8,
)


def same(left: Any, right: Any) -> bool:
    """Equal, of the same types all the way down, and NaN equal to itself."""
    return pickle.dumps(left, 5) == pickle.dumps(right, 5) or (type(left) is type(right) and repr(left) == repr(right))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow], deadline=None)
@given(entries=st.lists(st.tuples(KEYS, VALUES), max_size=20))
def test_a_map_holds_what_a_dict_holds_with_the_same_types(grid: Grid, entries: list[tuple[Any, Any]]) -> None:
    jet, expected = grid.get_map("m"), dict(entries)
    jet.clear()
    jet.put_all(entries)
    assert len(jet) == len(expected)
    found = dict(jet)
    assert found.keys() == expected.keys()
    for key, value in expected.items():
        assert same(jet[key], value)
        assert same(found[key], value)
    assert dict(jet.items()).keys() == jet.get_all(expected).keys() == expected.keys()


class InlineOrMemfd(str):
    """A text that is stored in a file and does not fill hypothesis' reports."""

    __slots__ = ()

    def __repr__(self) -> str:
        return f"Large({len(self)})"


class MapMachine(RuleBasedStateMachine):
    """Any sequence of operations does to a map what it does to a dict."""

    grid: Grid
    compared = 0
    """How often the map was compared with a dict that was not empty."""

    @initialize()
    def start(self) -> None:
        self.map, self.model = self.grid.get_map("machine"), {}  # type: dict[Any, Any]
        self.map.destroy()

    keys = st.integers(0, 20) | st.sampled_from(["a", "b", 1.0, True, b"a", "k" * 600])
    values = st.integers() | st.text(max_size=3) | st.just(InlineOrMemfd("v" * 100_000)) | st.tuples(st.integers())

    @rule(key=keys, value=values)
    def put(self, key: Any, value: Any) -> None:
        assert self.map.put(key, value) == self.model.get(key)
        self.model[key] = value

    @rule(key=keys, value=values)
    def set_item(self, key: Any, value: Any) -> None:
        self.map[key] = self.model[key] = value

    @rule(entries=st.lists(st.tuples(keys, values)))
    def put_all(self, entries: list[tuple[Any, Any]]) -> None:
        self.map.put_all(entries)
        self.model.update(entries)

    @rule(key=keys, value=values)
    def setdefault(self, key: Any, value: Any) -> None:
        assert self.map.setdefault(key, value) == self.model.setdefault(key, value)

    @rule(key=keys)
    def pop(self, key: Any) -> None:
        assert self.map.pop(key, "none") == self.model.pop(key, "none")

    @rule(keys=st.lists(keys))
    def get_all(self, keys: list[Any]) -> None:
        assert self.map.get_all(keys) == {key: self.model[key] for key in keys if key in self.model}

    @rule()
    def clear(self) -> None:
        self.map.clear()
        self.model.clear()

    @rule()
    def destroy(self) -> None:
        self.map.destroy()
        self.model.clear()

    @invariant()
    def holds_the_same(self) -> None:
        if hasattr(self, "model"):
            assert len(self.map) == len(self.model)
            assert self.map == self.model
            assert dict(self.map) == self.model
            type(self).compared += bool(self.model)
            large = sum(isinstance(value, str) and len(value) > 1000 for value in self.model.values())
            assert len(list((self.grid.folder / "blobs").iterdir())) == large


def test_any_sequence_of_operations_does_what_it_does_to_a_dict(grid: Grid) -> None:
    class Machine(MapMachine):
        pass

    Machine.grid = grid
    Machine.TestCase.settings = examples(30, stateful_step_count=20)
    Machine.TestCase("runTest").runTest()
    assert Machine.compared >= 30


def test_keys_that_are_equal_in_python_are_one_key(grid: Grid) -> None:
    jet = grid.get_map("m")
    for key in (1, 1.0, True, np.int8(1), decimal.Decimal(1)):
        jet[key] = repr(key)
    assert len(jet) == 1
    assert jet["1" if False else 1] == repr(decimal.Decimal(1))
    jet["1"], jet[b"1"] = "text", "bytes"
    assert len(jet) == 3


def test_long_keys_and_long_common_prefixes_are_told_apart(grid: Grid) -> None:
    jet = grid.get_map("m")
    expected = {"x" * length: length for length in (1, 503, 504, 505, 506, 511, 2000, 100_000)}
    jet.put_all(expected)
    assert dict(jet) == expected
    for key in expected:
        del jet[key]
    assert list(jet) == []


@pytest.mark.parametrize("bad", [None, [], {}, object(), bytearray(b"x")])
def test_what_cannot_be_a_key_is_a_type_error(grid: Grid, bad: Any) -> None:
    jet = grid.get_map("m")
    for use in (
        jet.get,
        jet.remove,
        jet.__contains__,
        lambda key: jet.put(key, 1),
        lambda key: jet.put_all([(key, 1)]),
    ):
        with pytest.raises(TypeError, match="key"):
            use(bad)
    assert len(jet) == 0


def test_none_as_a_value_is_a_type_error_that_names_the_key(grid: Grid) -> None:
    jet = grid.get_map("m")
    with pytest.raises(TypeError, match="'a' must not be None"):
        jet["a"] = None
    with pytest.raises(TypeError, match="'b' must not be None"):
        jet.put_all({"a": 1, "b": None})


def test_a_value_that_cannot_be_pickled_is_named_and_changes_nothing(grid: Grid) -> None:
    jet = grid.get_map("m")
    with pytest.raises(ItemEncodingError, match="generator"):
        jet["a"] = [(i for i in range(3))]
    assert "a" not in jet


def test_large_values_live_in_files_that_go_with_their_entries(grid: Grid) -> None:
    jet, files = grid.get_map("m"), grid.folder / "blobs"
    jet["array"] = np.arange(100_000)
    jet["text"] = "x" * 100_000
    assert len(list(files.iterdir())) == 2
    array = jet["array"]
    array[0] = 7  # fresh and writable
    assert jet["array"][0] == 0
    assert jet["array"].dtype == np.int64
    jet["array"] = 1
    assert jet.put("text", "short") == "x" * 100_000
    assert list(files.iterdir()) == []
    jet.put_all(dict.fromkeys(range(5), b"y" * 70000))
    assert {len(value) for value in jet.values() if isinstance(value, bytes)} == {70_000}
    jet.clear()
    assert list(files.iterdir()) == []


def test_a_large_value_that_cannot_be_written_is_a_grid_error_and_changes_nothing(grid: Grid) -> None:
    jet = grid.get_map("m")
    jet["a"] = "small"
    blobs = grid.opened.blobs.folder
    blobs.rmdir()
    for put in (lambda: jet.put("a", "x" * 100_000), lambda: jet.put_all({"a": "x" * 100_000})):
        with pytest.raises(GridError, match=f"cannot be written to {blobs}: .* No such file or directory"):
            put()
    assert dict(jet) == {"a": "small"}


def test_a_write_whose_old_file_cannot_be_removed_is_done_and_returns_the_old_value(
    grid: Grid, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    jet = grid.get_map("m")
    jet["a"] = "x" * 100_000

    def refuse(path: Path, **_: object) -> None:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))

    monkeypatch.setattr(Path, "unlink", refuse)
    assert jet.put("a", 1) == "x" * 100_000
    assert dict(jet) == {"a": 1}
    assert "cannot be removed, and stays: [Errno 13] Permission denied" in caplog.text


def test_an_entry_whose_file_went_away_meanwhile_is_looked_up_again(grid: Grid) -> None:
    jet = grid.get_map("m")
    jet.put_all(dict.fromkeys(range(10), "x" * 70000))
    pairs = iter(jet.items())
    first = next(pairs)[0]
    for key in range(10):
        if key != first:
            jet[key] = key
    assert sorted(pairs) == [(key, key) for key in range(10) if key != first]


def test_iteration_meets_each_lasting_entry_once_while_the_map_changes(grid: Grid) -> None:
    jet = grid.get_map("m")
    jet.put_all((i, i) for i in range(20_000))
    seen = []
    for key in jet:
        seen.append(key)
        if key < 10_000 and key % 100 == 0:
            jet[key + 100_000] = 0
            jet.remove(key)
    lasting = {key for key in range(20_000) if not (key < 10_000 and key % 100 == 0)}
    assert len(seen) == len(set(seen))
    assert lasting <= set(seen)


def test_clearing_while_iterating_ends_the_iteration_after_the_page(grid: Grid) -> None:
    jet = grid.get_map("m")
    jet.put_all((i, i) for i in range(50_000))
    keys = iter(jet)
    next(keys)
    jet.clear()
    assert sum(1 for _ in keys) < 10_000
    assert len(jet) == 0


def test_reading_in_the_order_of_iteration_never_shows_a_stale_value(grid: Grid) -> None:
    jet, other = grid.get_map("m"), grid.get_map("m")
    jet.put_all((i, 0) for i in range(1000))
    for count, key in enumerate(jet):
        assert jet[key] == 0
        if count % 7 == 0:
            other[key] = count
            assert jet[key] == count
    keys = list(jet)
    assert [jet[key] for key in keys] == [jet.get(key) for key in keys]


def test_a_destroyed_map_s_name_can_be_used_again(grid: Grid) -> None:
    jet = grid.get_map("m")
    jet["a"] = 1
    grid.get_list("l").append(1)
    assert grid.names() == ["l", "m"]
    jet.destroy()
    assert grid.map_names() == []
    assert dict(jet) == {}
    jet["b"] = 2
    assert dict(grid.get_map("m")) == {"b": 2}
    assert grid.map_names() == ["m"]


def test_partitions_are_those_of_partitioned_edges(grid: Grid) -> None:
    jet = grid.get_map("m")
    jet.put_all((f"k{i}", i) for i in range(2000))
    assert jet.local_partitions == tuple(range(271))
    for partition in (0, 1, 270):
        expected = {(f"k{i}", i) for i in range(2000) if partition_id(f"k{i}") == partition}
        assert set(jet.items_of([partition])) == expected
    assert dict(jet.items_of(jet.local_partitions)) == dict(jet)
    with pytest.raises(ValueError, match="271"):
        list(jet.items_of([271]))


def test_maps_do_not_see_each_other(grid: Grid) -> None:
    maps = [grid.get_map(f"m{i}") for i in range(40)]
    for i, jet in enumerate(maps):
        jet.put_all((j, i) for j in range(50))
    maps[7].clear()
    for i, jet in enumerate(maps):
        assert dict(jet) == ({} if i == 7 else dict.fromkeys(range(50), i))


def test_update_and_the_other_methods_of_a_mutable_mapping_work(grid: Grid) -> None:
    jet = grid.get_map("m")
    jet.update({"a": 1}, b=2)
    jet.update([("c", 3)])
    assert jet == {"a": 1, "b": 2, "c": 3}
    assert jet.popitem()[0] in "abc"
    assert ("a" in jet) + ("b" in jet) + ("c" in jet) == 2
    jet[datetime.date(2024, 1, 1)] = 1
    with pytest.raises(KeyError, match="missing"):
        jet["missing"]
    with pytest.raises(KeyError, match="missing"):
        del jet["missing"]
    with pytest.raises(KeyError, match="missing"):
        jet.pop("missing")


def test_a_map_cannot_be_pickled_and_says_what_to_do(grid: Grid) -> None:
    with pytest.raises(TypeError, match=r"context\.grid\.get_map\('m'\)"):
        pickle.dumps(grid.get_map("m"))


@pytest.mark.parametrize(("name", "error"), [("", ValueError), ("x" * 401, ValueError), (5, TypeError)])
def test_a_bad_name_is_refused(grid: Grid, name: Any, error: type[Exception]) -> None:
    with pytest.raises(error, match="name of a map or list"):
        grid.get_map(name)


def test_use_after_close_is_a_grid_error(folder: Any) -> None:
    grid = Grid.open(folder)
    jet = grid.get_map("m")
    jet["a"] = 1
    grid.close()
    grid.close()
    for use in (lambda: jet["a"], lambda: jet.put("a", 2), lambda: list(jet), lambda: grid.get_map("m")):
        with pytest.raises(GridError, match="closed"):
            use()


def test_a_value_whose_file_is_lost_is_an_error_and_no_endless_search(grid: Grid) -> None:
    jet, items = grid.get_map("m"), grid.get_list("l")
    jet["k"] = b"x" * 100_000
    items.append(b"y" * 100_000)
    for path in (grid.folder / "blobs").iterdir():
        path.unlink()
    for read in (lambda: jet["k"], lambda: jet.compute("k", lambda old: old), lambda: jet.put("k", 1)):
        with pytest.raises(GridError, match="is missing, and with it the value"):
            read()
    assert jet["k"] == 1
    for read in (lambda: items[0], lambda: list(items)):
        with pytest.raises(GridError, match="is missing, and with it item 0 of list 'l'"):
            read()
