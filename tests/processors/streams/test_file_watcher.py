"""`file_watcher`: what is appended, new files, rotation, truncation, restores; by inotify and by looking."""

from __future__ import annotations

import errno
import logging
import math
import os
import random
import sys
import threading
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from shmjet import sources
from shmjet.core.event_time import EventTimePolicy
from shmjet.core.wake_up import set_wake_up
from shmjet.data.marks import IDLE, Watermark
from shmjet.processors.general.base import Supply
from shmjet.processors.streams import folder_changes
from shmjet.processors.streams.file_tail import PIECE, FileTail
from shmjet.processors.streams.file_watcher import FileWatcherProcessor
from shmjet.processors.streams.folder_changes import LOOK_EVERY, Changes, ToldChanges, changes_of
from shmjet.processors.streams.line_format import LineFormat
from shmjet.processors.time.timed_items import PartitionItems
from shmjet.testing import TestContext, TestInbox, TestOutbox, verify_processor
from tests.examples import seeds
from tests.processors.driving import processors_of


@pytest.fixture(params=["told", "looked for"], autouse=True)
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Both ways to learn of changes."""
    if request.param == "looked for":
        monkeypatch.setitem(sys.modules, "inotify_simple", None)
    else:
        pytest.importorskip("inotify_simple")
    return str(request.param)


class Watcher:
    """The processors of a watched folder."""

    def __init__(self, folder: Path, *arguments: Any, count: int = 1, policy: Any = None, **options: Any) -> None:
        source = sources.file_watcher(folder, *arguments, **options)
        self.woken = threading.Event()
        self.processors = processors_of(source.supplier_for(policy), count)
        self.outboxes = [TestOutbox() for _ in range(count)]
        for index, processor in enumerate(self.processors):
            context = TestContext(global_index=index, total_parallelism=count, local_parallelism=count)
            set_wake_up(context, self.woken.set)
            processor.init(self.outboxes[index], context)

    def __enter__(self) -> Watcher:
        return self

    def __exit__(self, *_: object) -> None:
        for processor in self.processors:
            processor.close()

    def lines(self) -> list[Any]:
        """Call the processors until they wait, and return what they emitted."""
        out: list[Any] = []
        for processor, outbox in zip(self.processors, self.outboxes, strict=True):
            while True:
                ended = processor.complete()
                out += outbox.drain()
                if ended or processor.next_call:
                    break
        return out

    def save(self) -> list[Any]:
        """Return the saved entries of all processors."""
        entries = []
        for processor, outbox in zip(self.processors, self.outboxes, strict=True):
            assert processor.save_to_snapshot()
            entries += outbox.drain_snapshot()
        return entries

    def restore(self, entries: list[Any]) -> Watcher:
        """Give entries back."""
        for processor in self.processors:
            processor.restore_from_snapshot(TestInbox(*entries))
            processor.finish_snapshot_restore()
        return self


def append(path: Path, text: str) -> None:
    with path.open("a") as file:
        file.write(text)


def test_lines_that_are_appended_and_new_files_from_their_beginning(tmp_path: Path) -> None:
    old = tmp_path / "old"
    append(old, "before\n")
    with Watcher(tmp_path) as watcher:
        assert watcher.lines() == []
        append(old, "one\r\ntwo\n")
        assert watcher.lines() == ["one", "two"]
        append(tmp_path / "new", "three\n\nfour\n")
        assert watcher.lines() == ["three", "", "four"]
        append(old, "five\n")
        assert watcher.lines() == ["five"]
        assert watcher.lines() == []


def test_a_file_that_is_made_before_the_first_read_is_new(tmp_path: Path) -> None:
    with Watcher(tmp_path) as watcher:
        append(tmp_path / "new", "one\n")
        assert watcher.lines() == ["one"]


def test_a_line_waits_for_its_newline(tmp_path: Path) -> None:
    path = tmp_path / "log"
    append(path, "cut at the st")
    with Watcher(tmp_path) as watcher:
        append(path, "art")
        assert watcher.lines() == []
        append(path, "\nwhole\npar")
        assert watcher.lines() == ["whole"]
        append(path, "tial")
        assert watcher.lines() == []
        append(path, "\n")
        assert watcher.lines() == ["partial"]


def test_lines_longer_than_a_piece_and_much_text(tmp_path: Path) -> None:
    lines = ["x" * (3 * PIECE), *map(str, range(50_000)), "y" * PIECE]
    with Watcher(tmp_path) as watcher:
        append(tmp_path / "log", "\n".join(lines) + "\n")
        assert watcher.lines() == lines


def test_rotated_files_go_on_and_their_successors_are_new(tmp_path: Path) -> None:
    path = tmp_path / "log"
    append(path, "before\n")
    with Watcher(tmp_path, "log") as watcher:
        append(path, "one\n")
        path.rename(tmp_path / "log.1")  # which the pattern does not name
        append(tmp_path / "log.1", "two\n")
        append(path, "three\n")
        assert sorted(watcher.lines()) == ["one", "three", "two"]
        (tmp_path / "log.1").rename(tmp_path / "log.2")
        append(tmp_path / "log.2", "four\n")
        path.rename(tmp_path / "log.1")
        append(path, "five\n")
        assert sorted(watcher.lines()) == ["five", "four"]


def test_a_file_that_was_cut_is_read_from_its_beginning(tmp_path: Path) -> None:
    path = tmp_path / "log"
    with Watcher(tmp_path) as watcher:
        append(path, "one\ntwo\n")
        assert watcher.lines() == ["one", "two"]
        path.write_text("3\n")
        assert watcher.lines() == ["3"]
        path.write_text("another beginning, and longer\n")
        assert watcher.lines() == ["another beginning, and longer"]


def test_a_file_that_is_replaced_or_deleted_and_made_anew_is_new(tmp_path: Path) -> None:
    path = tmp_path / "log"
    with Watcher(tmp_path) as watcher:
        append(path, "one\n")
        assert watcher.lines() == ["one"]
        path.unlink()
        append(path, "two, longer\n")
        assert watcher.lines() == ["two, longer"]
        append(tmp_path / ".hidden", "three\n")
        assert watcher.lines() == []
        (tmp_path / ".hidden").replace(path)
        assert watcher.lines() == ["three"]


def test_only_files_that_the_pattern_names(tmp_path: Path) -> None:
    with Watcher(tmp_path, "*.log") as watcher:
        append(tmp_path / "a.log", "a\n")
        append(tmp_path / "a.txt", "b\n")
        (tmp_path / "folder.log").mkdir()
        assert watcher.lines() == ["a"]
        (tmp_path / "a.txt").rename(tmp_path / "b.log")
        assert watcher.lines() == ["b"]


def test_links_to_files_elsewhere_are_followed(tmp_path: Path) -> None:
    folder, target = tmp_path / "folder", tmp_path / "target"
    folder.mkdir()
    append(target, "before\n")
    (folder / "link").symlink_to(target)
    (folder / "broken").symlink_to(tmp_path / "nothing")
    with Watcher(folder) as watcher:
        append(target, "one\n")
        assert watcher.lines() == ["one"]
        append(tmp_path / "later", "two\n")
        (folder / "second").symlink_to(tmp_path / "later")
        assert watcher.lines() == ["two"]
        append(tmp_path / "later", "three\n")
        assert watcher.lines() == ["three"]


def test_it_sleeps_until_something_changes(tmp_path: Path, way: str) -> None:
    with Watcher(tmp_path) as watcher:
        watcher.lines()
        (processor,) = watcher.processors
        if way == "looked for":
            assert processor.next_call == LOOK_EVERY
            return
        assert processor.next_call == math.inf
        watcher.woken.clear()
        append(tmp_path / "log", "one\n")
        assert watcher.woken.wait(60)
        assert watcher.lines() == ["one"]


def test_the_stream_ends_when_the_folder_is_removed(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    with Watcher(folder) as watcher:
        assert watcher.lines() == []
        folder.rmdir()
        watcher.lines()
        assert watcher.processors[0].complete()


def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"there is no folder '.*nowhere'; make it before the job starts"):
        Watcher(tmp_path / "nowhere")
    append(tmp_path / "file", "")
    with pytest.raises(NotADirectoryError, match=r"there is no folder '.*file'"):
        Watcher(tmp_path / "file")


def test_an_overflow_has_the_whole_folder_looked_at(tmp_path: Path, way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if way == "looked for":
        pytest.skip("nothing overflows")
    take = ToldChanges.take

    def without_names(changes: ToldChanges) -> Changes:
        """Lose what was told, and say so."""
        return Changes(all=True, gone=take(changes).gone)

    with Watcher(tmp_path) as watcher:
        (processor,) = watcher.processors
        append(tmp_path / "log", "one\n")
        monkeypatch.setattr(ToldChanges, "take", without_names)
        assert processor.complete() is False
        assert watcher.outboxes[0].drain() == ["one"]


# -- state -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [1, 3])
def test_a_restored_source_reads_what_was_appended_meanwhile_once(tmp_path: Path, count: int) -> None:
    append(tmp_path / "old", "before\nhal")
    with Watcher(tmp_path, count=2) as first:
        append(tmp_path / "a", "a1\na2\npart")
        assert first.lines() == ["a1", "a2"]
        entries = first.save()
    append(tmp_path / "a", "ial\na4\n")
    (tmp_path / "a").rename(tmp_path / "a.1")
    append(tmp_path / "a", "a5\n")
    append(tmp_path / "old", "f\nold1\n")
    with Watcher(tmp_path, count=count) as second:
        second.restore(entries)
        assert sorted(second.lines()) == ["a4", "a5", "old1", "partial"]
        append(tmp_path / "a.1", "a6\n")
        assert second.lines() == ["a6"]


def test_a_snapshot_before_the_first_read_has_what_was_there_at_the_start(tmp_path: Path) -> None:
    append(tmp_path / "old", "before\n")
    with Watcher(tmp_path) as first:
        entries = first.save()
    append(tmp_path / "old", "one\n")
    with Watcher(tmp_path) as second:
        assert second.restore(entries).lines() == ["one"]


@pytest.mark.parametrize("seed", seeds(6))
def test_each_line_comes_once_through_rotation_kills_and_other_parallelism(tmp_path: Path, seed: int, way: str) -> None:
    dice = random.Random(seed)
    written: list[str] = []
    counted: list[str] = []
    entries: list[Any] = []
    watcher = Watcher(tmp_path, count=dice.randrange(1, 4))
    out: list[str] = []
    watcher.lines()
    for step in range(60):
        choice = dice.random()
        name = dice.choice("abc")
        if choice < 0.6:
            path = tmp_path / name
            for _ in range(dice.randrange(3)):
                line = f"{step} {len(written)} {name}"
                written.append(line)
                append(path, line + "\n")
        elif choice < 0.7 and (tmp_path / name).exists():
            (tmp_path / name).rename(tmp_path / f"{name}.{step}")
        elif choice < 0.85:
            out += watcher.lines()
        elif choice < 0.93:
            out += watcher.lines()
            entries = watcher.save()
            counted = list(out)
        elif entries:
            watcher.__exit__()
            watcher = Watcher(tmp_path, count=dice.randrange(1, 4)).restore(entries)
            out = list(counted)
    with watcher:
        out += watcher.lines()
    assert sorted(out) == sorted(written)


# -- formats -----------------------------------------------------------------------------------------------------------


@dataclass
class Trade:
    symbol: str
    price: float


def test_json_and_csv_as_plain_values_or_as_a_type(tmp_path: Path) -> None:
    (tmp_path / "json").mkdir()
    (tmp_path / "csv").mkdir()
    old = tmp_path / "csv" / "old"
    append(old, "symbol,price\nX,1\n")
    with (
        Watcher(tmp_path / "json", format="json") as plain,
        Watcher(tmp_path / "json", format="json", as_=Trade) as typed,
        Watcher(tmp_path / "csv", format="csv") as records,
        Watcher(tmp_path / "csv", format="csv", as_=Trade, with_path=True) as trades,
    ):
        append(tmp_path / "json" / "a", '{"symbol": "A", "price": 1.5}\n\n{"symbol": "B", "price": 2}\n')
        assert plain.lines() == [{"symbol": "A", "price": 1.5}, {"symbol": "B", "price": 2}]
        assert typed.lines() == [Trade("A", 1.5), Trade("B", 2.0)]
        append(old, '"Y, Z",2.5\n')
        append(tmp_path / "csv" / "new", "price,symbol\r\n3,W\r\n")
        expected = [{"symbol": "Y, Z", "price": "2.5"}, {"price": "3", "symbol": "W"}]
        assert sorted(records.lines(), key=str) == sorted(expected, key=str)
        assert sorted(trades.lines(), key=str) == [
            (str(tmp_path / "csv" / "new"), Trade("W", 3.0)),
            (str(old), Trade("Y, Z", 2.5)),
        ]


@pytest.mark.parametrize(
    ("format_", "text", "error"),
    [
        ("json", "{}\nno\n", r"a, line 2 after byte 0: no JSON"),
        ("csv", "x,y\n1,2\n3\n", r"a, line 3 after byte 0: 1 values for the 2 columns"),
        ("csv", 'x\n"open\n', r"a, line 2 after byte 0: unexpected end of data"),
    ],
)
def test_a_bad_line_is_named_with_its_file(tmp_path: Path, format_: Any, text: str, error: str) -> None:
    with Watcher(tmp_path, format=format_) as watcher:
        append(tmp_path / "a", text)
        with pytest.raises(ValueError, match=error):
            watcher.lines()


def test_text_in_another_charset(tmp_path: Path) -> None:
    with Watcher(tmp_path, charset="latin-1") as watcher:
        (tmp_path / "a").write_bytes("ä\n".encode("latin-1"))
        assert watcher.lines() == ["ä"]


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        ({"format": "xml"}, ValueError, "format must be"),
        ({"as_": Trade}, TypeError, "as_ does not apply"),
        ({"glob": "a/*"}, ValueError, "without a slash"),
        ({"charset": "utf-16"}, ValueError, "cannot be split at newline bytes"),
        ({"errors": "no-such"}, LookupError, "no-such"),
        ({"delimiter": ",,"}, ValueError, "delimiter must be one character"),
    ],
)
def test_wrong_arguments_are_refused(options: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        sources.file_watcher("/tmp", **options)


def test_events_have_time_and_the_watermark_is_saved(tmp_path: Path) -> None:
    policy = EventTimePolicy("items", int, stride=10)
    with Watcher(tmp_path, policy=policy) as first:
        append(tmp_path / "a", "25\n")
        assert first.lines() == [Watermark(20), (25, "25")]
        entries = first.save()
    append(tmp_path / "a", "12\n31\n")
    with Watcher(tmp_path, policy=policy) as second:
        assert second.restore(entries).lines() == [(12, "12"), Watermark(30), (31, "31")]


def test_without_files_it_is_idle_and_holds_no_watermark_back(tmp_path: Path) -> None:
    with Watcher(tmp_path, policy=EventTimePolicy("items", int, stride=10)) as watcher:
        assert watcher.lines() == [IDLE]
        append(tmp_path / "a", "25\n")
        assert watcher.lines() == [Watermark(20), (25, "25")]


class Whole(FileWatcherProcessor):
    """Reads what is there from its beginning, and ends."""

    def _first(self, path: str, inode: int, at_start: bool) -> FileTail:
        return FileTail(path, inode)

    def _begin_files(self) -> None:
        is_first = not self._is_looked_through
        super()._begin_files()
        if is_first:
            self._unread = dict.fromkeys(self._tails)

    def read(self) -> Iterable[PartitionItems]:
        runs = list(super().read())
        self.ended = not runs
        return runs


@pytest.mark.parametrize("policy", [None, EventTimePolicy("items", int, stride=10)], ids=["bare", "timed"])
def test_all_modes(tmp_path: Path, policy: EventTimePolicy | None) -> None:
    append(tmp_path / "a", "".join(f"{n}\n" for n in range(25)))
    expected: list[Any] = [str(n) for n in range(25)]
    if policy is not None:
        expected = [(n, str(n)) for n in range(25)]
        for mark in (20, 10, 0):
            expected.insert(mark, Watermark(mark))
    supply = Supply(Whole, str(tmp_path), "*", LineFormat("lines"), policy)
    verify_processor(supply).without_progress_check().expect(expected)


def test_where_inotify_has_reached_a_limit_the_folder_is_looked_at(
    tmp_path: Path, way: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    if way == "looked for":
        pytest.skip("inotify is not asked")

    def full(*_: object) -> None:
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(folder_changes, "ToldChanges", full)
    with Watcher(tmp_path) as watcher:
        append(tmp_path / "a", "one\n")
        assert watcher.lines() == ["one"]
    assert "raise fs.inotify.max_user_instances" in caplog.text


def test_a_watch_that_cannot_be_made_leaves_nothing_open(tmp_path: Path, way: str) -> None:
    if way == "told":
        before = len(os.listdir("/proc/self/fd"))
        with pytest.raises(OSError, match=r"."):
            ToldChanges(__import__("inotify_simple"), str(tmp_path / "no"), lambda: None)
        assert len(os.listdir("/proc/self/fd")) == before
    else:
        changes_of(str(tmp_path), lambda: None, logging.getLogger("shmjet")).close()
