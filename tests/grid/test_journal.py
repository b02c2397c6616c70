"""The journal of a map: each change once and in order, or how many are lost."""

from __future__ import annotations

import os
import signal
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from shmjet.core import ConfigError, MapConfig
from shmjet.core.grid_calls import journal_reader
from shmjet.core.keys import partition_id
from shmjet.grid import Grid, GridError, GridFullError, MapEvent
from shmjet.grid.journal_reader import JournalReader
from shmjet.grid.limits import is_due, shorten
from shmjet.grid.service import GridService
from tests.examples import examples
from tests.grid.conftest import FORK, in_processes
from tests.grid.remote_grid import RemoteGrid

Eventually = Callable[..., None]

MAPS = {
    "small": MapConfig(journal_capacity=10),
    "lru": MapConfig(journal_capacity=1000, max_bytes=20_000, eviction="lru"),
    "j*": MapConfig(journal_capacity=100_000),
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
        remote = RemoteGrid(service.perform)
        yield remote
        remote.close()
        service.close()


def all_of(jet: Any, reader: JournalReader | None = None) -> list[MapEvent]:
    """Return all events from the first one on, or what is new to a reader."""
    reader = reader or journal_reader(jet, "oldest")
    events: list[MapEvent] = []
    while more := reader.read():
        events += more
    return events


def counted(events: list[MapEvent]) -> tuple[int, int]:
    """Return how many events there are, and how many were lost; sequences must have no gap."""
    following: Counter[int] = Counter()
    for event in events:
        assert event.sequence == following[event.partition]
        following[event.partition] += event.lost or 1
    lost = sum(event.lost for event in events)
    return sum(event.kind != "lost" for event in events), lost


def replayed(events: list[MapEvent]) -> dict[Any, Any]:
    """Return the map that a complete journal makes; each event must fit what came before."""
    found: dict[Any, Any] = {}
    for event in events:
        assert found.get(event.key) == event.old
        assert (event.kind, event.old is None, event.new is None) in (
            ("added", True, False),
            ("updated", False, False),
            ("removed", False, True),
        )
        found.pop(event.key, None)
        if event.new is not None:
            found[event.key] = event.new
    return found


def files(folder: Path) -> int:
    return len(list((folder / "blobs").iterdir()))


def test_each_change_of_a_key_is_an_event_with_old_and_new(either: Any) -> None:
    jet = either.get_map("j")
    events = jet.journal()
    jet["a"] = 1
    jet.put("a", [2])
    jet.put_if_absent("a", 3)
    jet.replace("a", 4)
    jet.replace("b", 4)
    jet.compute("a", lambda old: old + 1)
    del jet["a"]
    jet.pop("a", None)
    jet.setdefault("a", 6)
    jet.compute("a", lambda _: None)
    partition = partition_id("a")
    assert [next(events) for _ in range(7)] == [
        MapEvent("added", "a", None, 1, partition, 0),
        MapEvent("updated", "a", 1, [2], partition, 1),
        MapEvent("updated", "a", [2], 4, partition, 2),
        MapEvent("updated", "a", 4, 5, partition, 3),
        MapEvent("removed", "a", 5, None, partition, 4),
        MapEvent("added", "a", None, 6, partition, 5),
        MapEvent("removed", "a", 6, None, partition, 6),
    ]
    assert all_of(jet) == all_of(jet)


def test_many_entries_at_once_are_as_many_events(either: Any) -> None:
    jet = either.get_map("j")
    jet.put_all((key, key) for key in range(5000))
    jet.update({key: -key for key in range(2500)})
    jet.clear()
    events = all_of(jet)
    assert counted(events) == (12_500, 0)
    assert Counter(event.kind for event in events) == {"added": 5000, "updated": 2500, "removed": 5000}
    assert replayed(events) == dict(jet) == {}
    assert len(jet) == 0


OPERATIONS = st.lists(
    st.tuples(
        st.sampled_from(["put", "put_all", "pop", "replace", "compute", "clear", "add", "ttl"]),
        st.integers(0, 5),
        st.integers(0, 3) | st.just("v" * 70_000),
    ),
    max_size=30,
)


def test_keys_and_values_of_all_kinds_come_back_from_a_journal(either: Any) -> None:
    entries = {
        "text": 1,
        7: "seven",
        2.5: b"bytes",
        b"key": [1, {"a": None}],
        ("t", 1): 1 + 2j,
        2**70: 2**64,
        "large": b"x" * 200_000,
        "object": Path("/a"),
        "nothing in it": [],
        True: False,
    }
    jet = either.get_map("j")
    jet.put_all(entries)
    jet.put("ends", "later", ttl=3600)
    assert replayed(all_of(jet)) == {**entries, "ends": "later"}


@examples(40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(operations=OPERATIONS)
def test_a_journal_read_from_its_start_is_the_map(folder: Path, operations: list[tuple[str, int, Any]]) -> None:
    with Grid.open(folder) as grid:
        jet = grid.get_map("j")
        jet.destroy()
        assert files(folder) == 0
        for kind, key, value in operations:
            match kind:
                case "put":
                    jet[key] = value
                case "put_all":
                    jet.put_all([(key, value), (key + 1, value), (key, 7)])
                case "pop":
                    jet.pop(key, None)
                case "replace":
                    jet.replace(key, value)
                case "compute":
                    jet.compute(key, lambda old, value=value: None if old == value else value)
                case "clear":
                    jet.clear()
                case "add":
                    jet.put_if_absent(key, value)
                case "ttl":
                    jet.put(key, value, ttl=1000)
        events = all_of(jet)
        assert replayed(events) == dict(jet)
        assert counted(events)[1] == 0


def test_the_last_changes_are_kept_and_the_lost_ones_are_counted(either: Any) -> None:
    jet = either.get_map("small")
    reader = journal_reader(jet, "oldest")
    for number in range(10):
        jet["one key"] = number
    assert counted(all_of(jet)) == (10, 0)
    for number in range(10, 25):
        jet["one key"] = number
    events = all_of(jet)
    assert events[0] == MapEvent("lost", None, None, None, partition_id("one key"), 0, 15)
    assert [event.new for event in events[1:]] == list(range(15, 25))
    jet.put_all((key, key) for key in range(1000))
    for events in (all_of(jet), all_of(jet, reader)):
        assert counted(events) == (10, 1015)
    jet["again"] = 1
    assert [event.key for event in all_of(jet, reader)] == ["again"]


def test_a_reader_that_is_overtaken_in_the_middle_learns_the_number(either: Any) -> None:
    jet = either.get_map("small")
    reader, events = journal_reader(jet, "oldest"), []
    for number in range(100):
        jet[number % 7] = number
        if number % 25 == 20:
            events += reader.read()
    events += all_of(jet, reader)
    read, lost = counted(events)
    assert read + lost == 100
    assert lost > 50


def test_latest_is_from_now_on(either: Any) -> None:
    jet = either.get_map("j")
    before = jet.journal("latest")
    jet.put_all((key, key) for key in range(100))
    events = jet.journal("latest")
    jet[5] = "new"
    jet["fresh"] = 1
    found = sorted((next(events), next(events)), key=lambda event: str(event.key))
    assert [(event.kind, event.key, event.new) for event in found] == [("updated", 5, "new"), ("added", "fresh", 1)]
    assert Counter(next(before).kind for _ in range(102)) == {"added": 101, "updated": 1}


def test_files_stay_until_their_events_go(either: Any, folder: Path) -> None:
    jet = either.get_map("small")
    for number in range(5):
        jet["a"] = str(number) * 100_000
    del jet["a"]
    assert [event.old and event.old[0] for event in all_of(jet)] == [None, "0", "1", "2", "3", "4"]
    assert files(folder) == 5
    for number in range(10):
        jet[number] = number
    assert files(folder) == 0
    jet["b"] = jet["c"] = "x" * 100_000
    jet["b"] = 1
    jet.destroy()
    assert files(folder) == 0


def test_a_destroyed_map_ends_its_journal(either: Any) -> None:
    jet = either.get_map("j")
    jet["a"] = 1
    reader, idle = journal_reader(jet, "oldest"), journal_reader(jet, "latest")
    assert len(reader.read()) == 1
    jet.destroy()
    with pytest.raises(GridError, match="map 'j' was destroyed"):
        all_of(jet, reader)
    jet["a"] = 2
    with pytest.raises(GridError, match="map 'j' was destroyed"):
        all_of(jet, idle)
    assert [event.new for event in all_of(jet)] == [2]


def test_positions_are_where_another_reader_goes_on(either: Any) -> None:
    jet = either.get_map("j")
    jet.put_all((key, 0) for key in range(5000))
    first = journal_reader(jet, "oldest")
    seen = first.read()
    assert 0 < len(seen) < 5000
    jet.put_all((key, 1) for key in range(5000))
    second = journal_reader(jet, "oldest", positions=first.positions)
    events = all_of(jet, second)
    assert counted(seen + events) == (10_000, 0)
    jet.destroy()
    jet["a"] = 1
    with pytest.raises(GridError, match="destroyed"):
        all_of(jet, journal_reader(jet, "oldest", positions=first.positions))


def test_what_waits_for_other_logs_is_not_in_the_position(either: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shmjet.grid.log.PIECE_EVENTS", 6)
    small = either.get_map("small")
    for number in range(6):
        small.put_all(dict.fromkeys(range(8), number))
    jet = either.get_map("j")
    for number in range(40):
        jet[number % 7] = number
    for entries in (jet, small):
        first, seen = journal_reader(entries, "oldest"), list[MapEvent]()
        while more := first.read():
            seen += more
            rest = all_of(entries, journal_reader(entries, "oldest", positions=first.positions))
            assert [*seen, *rest] == all_of(entries)


def test_shares_of_a_journal_are_all_of_it(either: Any) -> None:
    jet = either.get_map("j")
    jet.put_all((key, key) for key in range(300))
    shares = [all_of(jet, journal_reader(jet, "oldest", (index, 3))) for index in range(3)]
    assert sorted(event.key for share in shares for event in share) == list(range(300))


def test_what_is_evicted_or_over_is_removed_for_readers_too(either: Any) -> None:
    jet = either.get_map("lru")
    for key in range(50):
        jet[key] = "x" * 1000
    assert replayed(all_of(jet)) == dict(jet)
    assert 15 < len(jet) < 20


@pytest.mark.parametrize("start", ["first", None, 0])
def test_another_start_is_refused(either: Any, start: Any) -> None:
    with pytest.raises(ValueError, match=r'from "oldest" or "latest"'):
        either.get_map("j").journal(start)


def test_a_map_without_a_journal_says_how_to_get_one(either: Any) -> None:
    with pytest.raises(ConfigError, match=r"map 'm' has no journal: give it one with JetConfig\(maps="):
        either.get_map("m").journal()
    with pytest.raises(ConfigError, match="map 'm' has no journal"):
        either.get_map("m").add_listener(print)


def test_an_iterator_waits_and_can_be_closed(either: Any, eventually: Eventually) -> None:
    jet = either.get_map("j")
    events, found = jet.journal(), []

    def read() -> None:
        found.extend(event.key for event in events)

    thread = threading.Thread(target=read)
    thread.start()
    for key in range(20):
        jet[key] = key
    eventually(lambda: len(found) == 20)
    events.close()
    thread.join(60)
    assert not thread.is_alive()
    assert sorted(found) == list(range(20))


def test_a_listener_gets_each_change_until_it_is_removed(either: Any, eventually: Eventually) -> None:
    jet = either.get_map("j")
    jet["before"] = 0
    everything: list[Any] = []
    one: list[Any] = []
    removes = [jet.add_listener(everything.append), jet.add_listener(one.append, key="k")]
    for number in range(100):
        jet[number] = number
    jet["k"] = 1
    eventually(lambda: len(everything) == 101 and len(one) == 1)
    assert (one[0].kind, one[0].key, one[0].new) == ("added", "k", 1)
    for remove in removes:
        remove()
    jet["k"] = 2
    assert (len(everything), len(one)) == (101, 1)
    removes[0]()


def test_an_error_in_a_listener_is_logged_and_the_next_change_comes(
    either: Any, caplog: pytest.LogCaptureFixture, eventually: Eventually
) -> None:
    jet, seen = either.get_map("j"), []

    def fail(event: MapEvent) -> None:
        seen.append(event)
        raise ValueError(f"cannot take {event.key}")

    remove = jet.add_listener(fail)
    jet["a"] = jet["b"] = 1
    eventually(lambda: len(seen) == 2)
    remove()
    assert "cannot take a" in caplog.text
    assert "listener of IMap('j') has raised an error" in caplog.text


def test_a_listener_that_exits_is_called_again(
    either: Any, caplog: pytest.LogCaptureFixture, eventually: Eventually
) -> None:
    jet, seen = either.get_map("j"), []

    def leave(event: MapEvent) -> None:
        seen.append(event.new)
        raise SystemExit(3)

    remove = jet.add_listener(leave)
    jet["a"] = 1
    jet["a"] = 2
    eventually(lambda: seen == [1, 2])
    remove()
    assert "listener of IMap('j') has raised an error" in caplog.text


class Unreadable:
    def __reduce__(self) -> Any:
        return _fail, ()


def _fail() -> None:
    raise ModuleNotFoundError("No module named 'elsewhere'")


def test_a_listener_is_told_of_a_change_that_cannot_be_read_as_lost_and_gets_the_next_one(
    either: Any, caplog: pytest.LogCaptureFixture, eventually: Eventually
) -> None:
    jet = either.get_map("j")
    everything: list[MapEvent] = []
    one: list[MapEvent] = []
    jet.add_listener(everything.append)
    jet.add_listener(one.append, key="c")
    jet["a"], jet["b"], jet["c"] = 1, Unreadable(), 3
    eventually(lambda: len(everything) == 3)
    eventually(lambda: bool(one) and one[-1].new == 3)
    assert sorted((event.kind, event.new, event.lost) for event in everything if event.kind != "lost") == [
        ("added", 1, 0),
        ("added", 3, 0),
    ]
    lost = [(event.partition, event.lost) for event in everything if event.kind == "lost"]
    assert lost == [(partition_id("b", 271), 1)]
    assert "a listener of IMap('j') cannot read a change" in caplog.text
    assert "No module named 'elsewhere'" in caplog.text


def test_a_listener_can_remove_itself(either: Any, eventually: Eventually) -> None:
    jet, seen, removes = either.get_map("j"), [], []

    def once(event: MapEvent) -> None:
        seen.append(event.key)
        removes[0]()

    removes.append(jet.add_listener(once))
    jet["a"] = 1
    eventually(lambda: bool(seen))
    jet["a"] = 2
    removes[0]()
    assert seen == ["a"]


@pytest.mark.parametrize("fn", [None, 5])
def test_a_listener_that_is_not_a_function_is_refused(either: Any, fn: Any) -> None:
    with pytest.raises(TypeError, match="a listener must be a function"):
        either.get_map("j").add_listener(fn)
    with pytest.raises(TypeError):
        either.get_map("j").add_listener(print, key=["a list"])


def test_listeners_end_with_the_store(folder: Path) -> None:
    with Grid.open(folder) as grid:
        grid.get_map("j").add_listener(print)
    assert not [thread for thread in threading.enumerate() if thread.name == "shmjet-listener"]


def test_a_listener_that_does_not_return_does_not_keep_the_store_from_its_end(
    folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, eventually: Eventually
) -> None:
    monkeypatch.setattr("shmjet.grid.journal.PATIENCE_S", 0.0)
    called, release, seen = threading.Event(), threading.Event(), []

    def wait(event: MapEvent) -> None:
        seen.append(event.new)
        called.set()
        release.wait()

    def is_running() -> bool:
        return any(thread.name == "shmjet-listener" for thread in threading.enumerate())

    with Grid.open(folder) as grid:
        grid.get_map("j").add_listener(wait)
        grid.get_map("j")["a"] = 1
        assert called.wait(60)
        grid.get_map("j")["a"] = 2
    assert is_running()
    assert "a listener of IMap('j') has not returned from <function" in caplog.text
    release.set()
    eventually(lambda: not is_running())
    assert seen == [1]


def test_processes_that_write_at_once_leave_a_journal_that_is_the_map(folder: Path) -> None:
    def work(grid: Grid, index: int) -> None:
        jet = grid.get_map("j")
        for number in range(150):
            jet.compute(number % 11, lambda old: (old or 0) + 1)
            jet.put_all([((index, number), number), (number % 11 + 100, index)])
            if number % 10 == 0:
                jet.pop(number % 11, None)

    assert in_processes(folder, work, 3) == [0] * 3
    with Grid.open(folder) as grid:
        jet = grid.get_map("j")
        events = all_of(jet)
        assert replayed(events) == dict(jet)
        assert counted(events)[1] == 0


def test_a_writer_that_is_killed_leaves_a_journal_that_is_the_map(folder: Path, eventually: Eventually) -> None:
    def work() -> None:
        with Grid.open(folder) as grid:
            number = 0
            while True:
                grid.get_map("j").put_all([(number + key, "x" * (key * 2000)) for key in range(50)])
                grid.get_map("j").pop(number, None)
                grid.get_map("lru").put_all([(number + key, "x" * 1000) for key in range(5)])
                number += 7

    for _ in range(3):
        writer = FORK.Process(target=work)
        writer.start()
        with Grid.open(folder) as grid:
            more = len(grid.get_map("j")) + 60
            eventually(lambda more=more: len(grid.get_map("j")) > more)
        os.kill(writer.pid or 0, signal.SIGKILL)
        writer.join()
        writer.close()
        with Grid.open(folder) as grid:
            grid.after_worker_death()
            jet = grid.get_map("j")
            events = all_of(jet)
            assert replayed(events) == dict(jet)
            assert counted(events)[1] == 0
            assert sum(jet.partition_sizes().values()) == len(jet) == len(list(jet))
            events = all_of(grid.get_map("lru"))
            read, lost = counted(events)
            assert 0 < read <= 1000 + 64
            assert lost >= 0


def test_a_full_store_says_so_and_its_journals_stay_right(tmp_path: Path) -> None:
    Grid.create(tmp_path / "grid", environments=1, map_size=1 << 20, maps=MAPS)
    with Grid.open(tmp_path / "grid") as grid:
        jet = grid.get_map("j")
        with pytest.raises(GridFullError, match="map_size"):
            jet.put_all((number, "x" * 1000) for number in range(10_000))
        for number in range(10_000):
            try:
                jet[number] = "y" * 1000
            except GridFullError:
                break
        events = all_of(jet)
        assert replayed(events) == dict(jet)
        assert counted(events)[1] == 0
        jet.clear()
        assert len(jet) == 0
        for number in range(100):
            jet[number] = "z" * 1000
        assert len(jet) == 100


def test_what_is_over_makes_room_in_a_full_store(tmp_path: Path, eventually: Eventually) -> None:
    Grid.create(tmp_path / "grid", environments=1, map_size=1 << 20)
    with Grid.open(tmp_path / "grid") as grid:
        passing, jet = grid.get_map("passing"), grid.get_map("m")
        for number in range(300):
            passing.put(number, "x" * 1000, ttl=0.001)
        eventually(lambda: len(passing) == 0)
        for number in range(300):
            jet[number] = "y" * 1000
        assert dict(jet) == dict.fromkeys(range(300), "y" * 1000)


class Logs:
    """The lengths of the logs of a map."""

    def __init__(self, length: int) -> None:
        self.length = length

    def log_length(self) -> int:
        return self.length

    def cut_log(self, count: int) -> int:
        removed = min(count, self.length, 2048)
        self.length -= removed
        return removed


@given(lengths=st.lists(st.integers(0, 10_000), min_size=1, max_size=32), capacity=st.integers(1, 20_000))
def test_a_journal_is_cut_to_its_capacity_where_it_is_longest(lengths: list[int], capacity: int) -> None:
    logs: list[Any] = [Logs(length) for length in lengths]
    shorten(logs, capacity)
    after = [log.length for log in logs]
    assert sum(after) == min(sum(lengths), capacity)
    fair = capacity // len(lengths)
    assert all(now == before or now >= min(before, fair) - 1 for now, before in zip(after, lengths, strict=True))


def test_a_small_journal_is_looked_at_with_each_event() -> None:
    assert all(is_due(number, number + 1, 100, 8) for number in range(50))
    assert sum(is_due(number, number + 1, 160_000, 10) for number in range(10_000)) == 10
