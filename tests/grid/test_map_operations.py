"""Operations beyond those of a dict, on a map at hand and on a map elsewhere."""

from __future__ import annotations

import datetime
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from shmjet.core import ConfigError, MapConfig
from shmjet.grid import Grid, GridError, GridFullError
from shmjet.grid.code_free import brings_pickles
from shmjet.grid.layout import MAP_RECORD, PARTITION, record_key
from shmjet.grid.operations import Replace, Swap
from shmjet.grid.service import GridService
from tests.examples import examples
from tests.grid.conftest import in_processes
from tests.grid.remote_grid import RemoteGrid

SECOND = 10**9


class Clock:
    """The host's clock, as the store sees it."""

    def __init__(self) -> None:
        self.now = 1000 * SECOND

    def __call__(self) -> int:
        self.now += 1
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    for module in ("changes", "table_reads", "scan"):
        monkeypatch.setattr(f"shmjet.grid.{module}.now", made)
    return made


MAPS = {
    "limited": MapConfig(max_bytes=100_000),
    "lru": MapConfig(max_bytes=100_000, eviction="lru"),
    "journal": MapConfig(journal_capacity=1000),
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    place = tmp_path / "grid"
    Grid.create(place, environments=2, map_size=1 << 30, maps=MAPS)
    return place


@pytest.fixture(params=["local", "remote"])
def either(request: pytest.FixtureRequest, folder: Path) -> Iterator[Any]:
    """The store, opened here or asked for."""
    if request.param == "local":
        with Grid.open(folder) as grid:
            yield grid
    else:
        service = GridService(folder)
        yield RemoteGrid(service.perform)
        service.close()


def files(folder: Path) -> int:
    return len(list((folder / "blobs").iterdir()))


def test_replace_stores_only_where_there_is_a_value(either: Any, folder: Path) -> None:
    jet = either.get_map("m")
    assert jet.replace("a", 1) is None
    assert len(jet) == 0
    jet["a"] = 1
    assert jet.replace("a", "x" * 100_000) == 1
    assert jet.replace("b", "y" * 100_000) is None
    assert files(folder) == 1
    assert jet.replace("a", 3) == "x" * 100_000
    assert dict(jet) == {"a": 3}
    assert files(folder) == 0
    with pytest.raises(TypeError, match="must not be None"):
        jet.replace("a", None)


def test_compute_stores_what_the_function_returns_and_none_removes(either: Any, folder: Path) -> None:
    jet = either.get_map("m")
    assert jet.compute("a", lambda old: [old]) == [None]
    assert jet.compute("a", lambda old: old + [2]) == [None, 2]
    assert jet.compute("a", lambda old: "x" * 100_000) == "x" * 100_000
    assert files(folder) == 1
    assert jet.compute("a", lambda old: None) is None
    assert (len(jet), files(folder)) == (0, 0)
    assert jet.compute("a", lambda old: None) is None
    jet["a"] = 1
    with pytest.raises(ZeroDivisionError):
        jet.compute("a", lambda old: old / 0)
    assert jet["a"] == 1


def test_compute_calls_the_function_again_when_the_entry_has_changed(either: Any) -> None:
    jet, seen = either.get_map("m"), []

    def add(old: Any) -> int:
        seen.append(old)
        if len(seen) < 3:
            jet["a"] = 10 * len(seen)
        return (old or 0) + 1

    assert jet.compute("a", add) == 21
    assert seen == [None, 10, 20]
    assert jet["a"] == 21


@pytest.mark.parametrize("name", ["m", "journal", "lru"])
def test_computations_of_several_processes_add_up(folder: Path, name: str) -> None:
    def work(grid: Grid, _: int) -> None:
        for number in range(200):
            grid.get_map(name).compute(number % 3, lambda old: (old or 0) + 1)

    assert in_processes(folder, work, 4) == [0] * 4
    with Grid.open(folder) as grid:
        assert sum(grid.get_map(name).values()) == 800


def test_popitem_empties_a_map(either: Any) -> None:
    jet = either.get_map("m")
    jet.put_all({number: str(number) for number in range(50)})
    assert dict(jet.popitem() for _ in range(50)) == {number: str(number) for number in range(50)}
    with pytest.raises(KeyError, match="empty"):
        jet.popitem()


def test_popitem_gives_each_entry_to_one_thread(either: Any) -> None:
    jet, taken = either.get_map("m"), []
    jet.put_all((number, number) for number in range(200))

    def take() -> None:
        try:
            while True:
                taken.append(jet.popitem())
        except KeyError:
            pass

    threads = [threading.Thread(target=take) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(taken) == [(number, number) for number in range(200)]


class Unreadable:
    """A value that is unpickled by a function which fails where `is_broken`."""

    is_broken = False
    meanwhile: Callable[[], None] = staticmethod(lambda: None)
    """Called before that."""

    def __init__(self, padding: bytes = b"") -> None:
        self.padding = padding

    def __reduce__(self) -> Any:
        return _made_again, (self.padding,)


def _made_again(padding: bytes) -> Unreadable:
    Unreadable.meanwhile()
    if Unreadable.is_broken:
        raise ModuleNotFoundError("No module named 'elsewhere'")
    return Unreadable(padding)


@pytest.fixture
def broken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Unreadable, "is_broken", True)


@pytest.mark.parametrize("name", ["m", "limited", "journal"])
@pytest.mark.parametrize("padding", [10, 70_000], ids=["small", "large"])
@pytest.mark.usefixtures("broken")
def test_an_entry_that_cannot_be_read_is_not_taken_out(
    either: Any, folder: Path, name: str, padding: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    jet = either.get_map(name)
    jet["a"] = Unreadable(b"x" * padding)
    kept = files(folder)
    for take in (lambda: jet.pop("a"), lambda: jet.remove("a"), jet.popitem):
        with pytest.raises(ModuleNotFoundError):
            take()
        assert (list(jet), list(jet.partition_sizes().values())) == (["a"], [1])
    if name != "journal":  # its events need the files
        assert files(folder) == kept
    monkeypatch.setattr(Unreadable, "is_broken", False)
    assert jet.pop("a").padding == b"x" * padding
    jet["a"] = Unreadable()
    monkeypatch.setattr(Unreadable, "is_broken", True)
    del jet["a"]
    assert len(jet) == 0


@pytest.mark.parametrize("padding", [10, 70_000], ids=["small", "large"])
@pytest.mark.usefixtures("broken")
@pytest.mark.parametrize("name", ["m", *MAPS])
def test_an_entry_that_cannot_be_read_and_is_put_back_ends_when_it_would_have_ended(
    either: Any, folder: Path, clock: Clock, padding: int, name: str
) -> None:
    jet = either.get_map(name)
    jet.put("a", Unreadable(b"x" * padding), ttl=60)
    kept = files(folder)
    clock.now += 40 * SECOND
    for take in (lambda: jet.pop("a"), lambda: jet.remove("a"), jet.popitem):
        with pytest.raises(ModuleNotFoundError):
            take()
    assert ("a" in jet, len(jet)) == (True, 1)
    if name != "journal":  # its events need the files
        assert files(folder) == kept
    clock.now += 21 * SECOND
    assert "a" not in jet
    jet["b"] = 1
    assert (len(jet), list(jet)) == (1, ["b"])


@pytest.mark.parametrize("padding", [10, 70_000], ids=["small", "large"])
@pytest.mark.usefixtures("broken")
def test_an_entry_that_cannot_be_read_and_whose_time_ends_meanwhile_is_gone_with_its_file(
    either: Any, folder: Path, clock: Clock, padding: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    jet = either.get_map("m")
    jet.put("a", Unreadable(b"x" * padding), ttl=60)

    def wait() -> None:
        clock.now += 60 * SECOND

    monkeypatch.setattr(Unreadable, "meanwhile", staticmethod(wait))
    with pytest.raises(GridError, match=r"of 'a' cannot be read \(ModuleNotFoundError: .* or its time is over"):
        jet.pop("a")
    assert (len(jet), files(folder)) == (0, 0)


@pytest.mark.usefixtures("broken")
def test_an_entry_that_cannot_be_read_does_not_replace_one_that_came_meanwhile(
    either: Any, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    jet = either.get_map("m")
    jet["a"] = Unreadable(b"x" * 70_000)
    monkeypatch.setattr(Unreadable, "meanwhile", staticmethod(lambda: jet.update(a=2)))
    with pytest.raises(GridError, match="any more: another one was put"):
        jet.pop("a")
    assert (dict(jet), files(folder)) == ({"a": 2}, 0)


@pytest.mark.parametrize("padding", [10, 70_000], ids=["small", "large"])
@pytest.mark.usefixtures("broken")
def test_a_write_that_cannot_read_what_it_replaces_says_that_it_is_done(
    either: Any, folder: Path, padding: int
) -> None:
    jet = either.get_map("m")
    for write in (jet.put, jet.replace):
        jet["a"] = Unreadable(b"x" * padding)
        with pytest.raises(GridError, match="new value of 'a' is stored, but the value that was there cannot be read"):
            write("a", 2)
        assert (dict(jet), files(folder)) == ({"a": 2}, 0)


def test_an_entry_is_gone_from_the_millisecond_on_in_which_its_time_is_over(either: Any, clock: Clock) -> None:
    jet = either.get_map("m")
    assert jet.put("a", 1, ttl=2) is None
    assert jet.put("b", 2, ttl=datetime.timedelta(seconds=5)) is None
    jet["c"] = 3
    clock.now += 2 * SECOND - 1000
    assert (dict(jet), len(jet), "a" in jet) == ({"a": 1, "b": 2, "c": 3}, 3, True)
    clock.now += 1000
    assert (dict(jet), len(jet), "a" in jet, jet.get("a")) == ({"b": 2, "c": 3}, 2, False, None)
    assert jet.get_all(["a", "b", "c"]) == {"b": 2, "c": 3}
    assert sorted(jet.items()) == [("b", 2), ("c", 3)]
    assert jet.pop("a", "none") == "none"
    assert jet.replace("a", 5) is None
    assert jet.put_if_absent("a", 6) is None
    clock.now += 3 * SECOND
    assert jet.compute("b", lambda old: old or 7) == 7
    assert dict(jet) == {"a": 6, "b": 7, "c": 3}


def test_each_write_of_a_key_sets_its_time_anew(either: Any, clock: Clock) -> None:
    jet = either.get_map("m")
    for key in range(8):
        jet.put(key, "old", ttl=1)
    jet.put(0, "new", ttl=3)
    jet[1] = "new"
    jet.put(2, "new")
    jet.replace(3, "new")
    jet.compute(4, lambda _: "new")
    jet.put_all({5: "new"})
    del jet[6]
    jet.setdefault(6, "new")
    clock.now += SECOND
    assert dict(jet) == dict.fromkeys(range(7), "new")
    clock.now += 2 * SECOND
    assert dict(jet) == dict.fromkeys(range(1, 7), "new")


def test_writes_remove_entries_whose_time_is_over_with_their_files(either: Any, folder: Path, clock: Clock) -> None:
    jet = either.get_map("m")
    for key in range(10):
        jet.put(key, "x" * 100_000, ttl=1)
    assert files(folder) == 10
    clock.now += SECOND
    jet.put_all((key, 0) for key in range(100, 150))
    assert files(folder) == 0
    assert len(jet) == 50


@pytest.mark.parametrize(("raised", "told"), [(SystemExit(3), GridError), (KeyboardInterrupt(), KeyboardInterrupt)])
def test_a_file_goes_with_its_entry_however_reading_it_ends(
    either: Any, folder: Path, monkeypatch: pytest.MonkeyPatch, raised: BaseException, told: type[BaseException]
) -> None:
    jet = either.get_map("m")
    jet["a"] = Unreadable(b"x" * 70_000)

    def leave() -> None:
        raise raised

    monkeypatch.setattr(Unreadable, "meanwhile", staticmethod(leave))
    with pytest.raises(told):
        jet.put("a", 1)
    assert (dict(jet), files(folder)) == ({"a": 1}, 0)


def test_entries_whose_time_is_over_take_no_room_of_a_limit_wherever_they_are(either: Any, clock: Clock) -> None:
    jet = either.get_map("limited")
    for key in range(8):  # in both environments
        jet.put(key, "x" * 10_000, ttl=1)
    clock.now += 2 * SECOND
    for key in range(8, 16):
        jet[key] = "x" * 10_000
    jet["whole"] = "x" * 10_000
    assert sorted(map(str, jet)) == sorted(map(str, [*range(8, 16), "whole"]))
    for key in (*range(8, 16), "whole"):
        jet.put(key, "x" * 10_000, ttl=1)
    clock.now += 2 * SECOND
    jet["all"] = "x" * 90_000
    assert list(jet) == ["all"]


@pytest.mark.parametrize("ttl", [0, -1, 0.0001, float("nan"), float("inf")])
def test_a_time_below_a_millisecond_is_refused(either: Any, ttl: float) -> None:
    with pytest.raises(ConfigError, match="ttl must be"):
        either.get_map("m").put("a", 1, ttl=ttl)
    assert "a" not in either.get_map("m")


@pytest.mark.parametrize("ttl", ["1", True, [1]])
def test_a_time_that_is_not_a_duration_is_a_type_error(either: Any, ttl: Any) -> None:
    with pytest.raises(TypeError, match="ttl must be seconds or a timedelta"):
        either.get_map("m").put("a", 1, ttl=ttl)


def test_a_very_long_time_is_one(either: Any) -> None:
    jet = either.get_map("m")
    jet.put("a", 1, ttl=1e12)
    assert jet["a"] == 1


class Large(str):
    """A text that is stored in a file and does not fill hypothesis' reports."""

    __slots__ = ()

    def __repr__(self) -> str:
        return f"Large({len(self)})"


class EndingMachine(RuleBasedStateMachine):
    """Any sequence of operations and of time does to a map what it does to a dict whose entries end."""

    def __init__(self) -> None:
        super().__init__()
        self.model: dict[int, tuple[Any, float]] = {}

    grid: Grid
    clock: Clock
    name = "m"

    @initialize()
    def start(self) -> None:
        self.map = self.grid.get_map(self.name)
        self.map.destroy()

    keys = st.integers(0, 8)
    values = st.integers() | st.just(Large("v" * 70_000))

    def live(self) -> dict[int, Any]:
        return {key: value for key, (value, end) in self.model.items() if end > self.clock.now}

    @rule(key=keys, value=values, ttl=st.integers(1, 5))
    def put(self, key: int, value: Any, ttl: int) -> None:
        assert self.map.put(key, value, ttl=ttl) == self.live().get(key)
        self.model[key] = value, self.clock.now + ttl * SECOND  # a few calls of the clock later than it is

    @rule(key=keys, value=values)
    def set_item(self, key: int, value: Any) -> None:
        self.map[key] = value
        self.model[key] = value, float("inf")

    @rule(entries=st.dictionaries(keys, values))
    def put_all(self, entries: dict[int, Any]) -> None:
        self.map.put_all(entries)
        self.model.update({key: (value, float("inf")) for key, value in entries.items()})

    @rule(key=keys, value=values)
    def replace(self, key: int, value: Any) -> None:
        old = self.live().get(key)
        assert self.map.replace(key, value) == old
        if old is not None:
            self.model[key] = value, float("inf")

    @rule(key=keys)
    def pop(self, key: int) -> None:
        assert self.map.pop(key, None) == self.live().get(key)
        self.model.pop(key, None)

    @rule(seconds=st.integers(1, 4))
    def wait(self, seconds: int) -> None:
        self.clock.now += seconds * SECOND + 1000

    @rule()
    def clear(self) -> None:
        self.map.clear()
        self.model.clear()

    @invariant()
    def holds_the_same(self) -> None:
        if hasattr(self, "map"):
            live = self.live()
            assert (len(self.map), dict(self.map)) == (len(live), live)


def test_entries_that_end_are_those_of_a_dict_with_a_clock(folder: Path, clock: Clock) -> None:
    for map_name in ("m", "journal"):
        with Grid.open(folder) as opened:

            class Machine(EndingMachine):
                grid, name = opened, map_name

            Machine.clock = clock
            Machine.TestCase.settings = examples(20, stateful_step_count=20)
            Machine.TestCase("runTest").runTest()
            opened.get_map(map_name).destroy()
            assert files(folder) == 0


def test_sizes_of_partitions_are_kept(folder: Path) -> None:
    with Grid.open(folder) as grid:
        jet = grid.get_map("m")
        jet.put_all((key, key) for key in range(3000))
        jet.put_all((key, -key) for key in range(2000))
        for key in range(500):
            del jet[key]
        jet["new"] = 1
        sizes = jet.partition_sizes()
        assert sum(sizes.values()) == len(jet) == 2501
        assert sizes == {number: len(list(jet.items_of([number]))) for number in sizes}
        jet.clear()
        assert (jet.partition_sizes(), len(jet)) == ({}, 0)


def test_members_without_code_take_plain_values_only() -> None:
    record, key = record_key(MAP_RECORD, "m"), PARTITION.pack(0) + b"sx"
    plain, pickled = msgspec.msgpack.encode(("x", 1)), msgspec.msgpack.encode(("x", msgspec.msgpack.Ext(1, b".")))
    for value, expected in ((plain, False), (pickled, True), (None, False)):
        assert brings_pickles(msgspec.msgpack.encode(Swap(0, record, key, plain, value, False))) is expected
    timed = msgspec.msgpack.encode(("x", msgspec.msgpack.Ext(3, b"\x01" + bytes(24))))
    assert brings_pickles(msgspec.msgpack.encode(Replace(0, record, key, timed, False)))
    assert not brings_pickles(msgspec.msgpack.encode(Replace(0, record, key, plain, False, 10**9)))


def test_a_full_map_says_so_and_stays_as_it_was(either: Any, folder: Path) -> None:
    jet = either.get_map("limited")
    for key in range(9):
        jet[key] = "x" * 10_000
    with pytest.raises(GridFullError, match=r"map 'limited'.*its limit is 100000 \(MapConfig.max_bytes"):
        jet[9] = "x" * 10_000
    with pytest.raises(GridFullError):
        jet.put_all(dict.fromkeys(range(20, 30), "y" * 10000))
    with pytest.raises(GridFullError):
        jet[10] = "x" * 90_000
    assert files(folder) == 0
    assert all(value[0] == "x" for value in dict(jet).values() if len(value) > 1)
    jet[0] = "small"
    jet["again"] = "x" * 9_000
    jet.clear()
    jet["file"] = "x" * 90_000
    with pytest.raises(GridFullError):
        jet.put("other", "x" * 20_000)


def test_what_was_not_used_for_long_makes_room(either: Any, folder: Path) -> None:
    jet = either.get_map("lru")
    for key in range(9):
        jet[key] = str(key) * 10_000
    assert jet[0] == "0" * 10_000
    assert jet.get_all([1])[1] == "1" * 10_000
    for key in (9, 10):
        jet[key] = "x" * 10_000
    assert sorted(jet) == [0, 1, 4, 5, 6, 7, 8, 9, 10]
    jet["file"] = "x" * 75_000
    assert sorted(map(str, jet)) == ["10", "9", "file"]
    with pytest.raises(GridFullError, match="'lru'"):
        jet["larger"] = "x" * 100_000
    assert (len(jet), files(folder)) == (3, 1)
    jet.put_all(dict.fromkeys(range(200), "y" * 1000))
    assert sum(len(value) for value in jet.values()) <= 100_000
    assert 80 < len(jet) < 100
    assert files(folder) == 0
    del jet[199]
    jet.clear()
    assert len(jet) == 0


def test_a_limit_holds_while_several_processes_write(folder: Path) -> None:
    def work(grid: Grid, index: int) -> None:
        jet = grid.get_map("lru")
        for number in range(200):
            jet[index, number] = "x" * 1000
            jet.get((index, number - 10))

    assert in_processes(folder, work, 3) == [0] * 3
    with Grid.open(folder) as grid:
        jet = grid.get_map("lru")
        assert 80 < len(jet) < 100
        weight = sum(len(value) for value in jet.values())
        assert weight <= 100_000
        jet["last"] = 1
        assert jet["last"] == 1
