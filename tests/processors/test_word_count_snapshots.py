"""Counts of words in snapshots: positions in files, shares that stay, sums by share or by word."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from shmjet import Batch
from shmjet.columns.words import WordPiece
from shmjet.core import BroadcastKey
from shmjet.core.context import MetaSupplierContext
from shmjet.core.inbox import Inbox
from shmjet.core.job import JobConfig, ProcessingGuarantee
from shmjet.core.keys import partition_id
from shmjet.core.state_placement import StatePlacement
from shmjet.data.errors import ProcessorError
from shmjet.data.text import Text
from shmjet.processors.columns import word_blocks
from shmjet.processors.columns.word_count import combine_words, count_words, count_words_of, share_partition
from shmjet.testing import verify_processor

from .restoring import Entries, Stage

CONFIG = JobConfig(processing_guarantee=ProcessingGuarantee.EXACTLY_ONCE)


@pytest.fixture
def corpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(word_blocks, "PIECE", 64)
    monkeypatch.setattr("shmjet.processors.columns.word_count.CALL_SECONDS", 0.0)
    monkeypatch.setattr("shmjet.processors.files.file_window.PIECE", 64)
    numbers = random.Random(5)
    words = ["ab", "abc", "ÉtÉ", "ΟΔΟΣ", "x" * 300, "the", "The", "na\u2028ive", "z\u3000y"]
    for name in "pqr":
        (tmp_path / name).write_text(" ".join(numbers.choices(words, k=120)))
    return tmp_path


def expected(folder: Path) -> Counter[str]:
    return Counter(word for path in folder.iterdir() for word in path.read_text().lower().split())


class Files(Stage):
    """The first stage: as many processors as wished, on one member."""

    def __init__(self, folder: Path, count: int, batches: bool = False) -> None:
        self.folder, self.batches = folder, batches
        self.meta = count_words(str(folder), skip_binary=True, batches=batches, block_size=500)
        self.meta.init(MetaSupplierContext(local_parallelism=count, total_parallelism=count, job_config=CONFIG))
        supplier = self.meta.get(["here"])["here"]
        super().__init__(supplier, count, room=1)

    def step(self, calls: int) -> bool:
        """Call each processor so many times; say whether all are through."""
        through = True
        for index, processor in enumerate(self.processors):
            for _ in range(calls):
                if is_through := self.call(index, processor.complete):
                    break
            through &= is_through
        return through

    def lost(self, count: int, entries: Entries) -> Files:
        """Return a source that goes on from entries."""
        self.close()
        self.meta.close(None)
        other = Files(self.folder, count, self.batches)
        other.restore(entries)
        return other


@pytest.mark.parametrize("batches", [False, True])
@pytest.mark.parametrize("counts", [(1, 1), (1, 3), (3, 2, 1)])
@pytest.mark.parametrize("calls", [1, 4])
def test_each_word_counts_once(corpus: Path, batches: bool, counts: tuple[int, ...], calls: int) -> None:
    placement = StatePlacement(271, ("word",)) if batches else StatePlacement(271, None, share_partition)
    files, sums = Files(corpus, counts[0], batches), Stage(combine_words(batches=batches), 1, placement)
    turn = 0
    while True:
        through = files.step(calls)
        entries = [] if through and not turn else files.save()
        deal(sums, files.output)
        turn += 1
        if through:
            break
        files = files.lost(counts[turn % len(counts)], entries)
        sums = sums.restored(counts[(turn + 1) % len(counts)], overdue_after=2)
    assert turn > 5
    files.close()
    files.meta.close(None)
    assert words_of(sums.complete()) == expected(corpus)


def deal(sums: Stage, items: list[Any]) -> None:
    """Bring pieces to the owners of their shares, and the rows of batches to those of their words."""
    processors = len(sums.processors)
    for item in items:
        if not isinstance(item, Batch):
            sums.feed(share_partition(item[0], 271) % processors, [item])
            continue
        owners = [partition_id(word) % processors for word in item["word"].tolist()]
        for index in range(processors):
            own = item.take([row for row, owner in enumerate(owners) if owner == index])
            sums.feed(index, [own] if own.num_rows else [])


def words_of(output: list[Any]) -> Counter[str]:
    found: Counter[str] = Counter()
    for item in output:
        pairs = list(item.tuples()) if isinstance(item, Batch) else WordPiece(*item).pairs()
        assert not found.keys() & dict(pairs).keys()
        found.update(dict(pairs))
    return found


def test_shares_stay_what_they_were(corpus: Path) -> None:
    files = Files(corpus, 2)
    shares: dict[str, int] = {}
    entries: Entries = []
    for _ in range(4):
        files.step(2)
        entries = files.save()
        for item in files.output:
            for word, _ in WordPiece(*item).pairs():
                assert shares.setdefault(word, item[0]) == item[0]
        files = files.lost(2, entries)
    assert len(shares) > 5
    files.close()
    files.meta.close(None)


def test_other_files_and_changed_files_are_refused(corpus: Path) -> None:
    files = Files(corpus, 1)
    files.step(3)
    entries = files.save()
    other = Files(corpus / "p", 1)
    inbox = Inbox()
    inbox.fill(list(entries))
    other.processors[0].restore_from_snapshot(inbox)
    with pytest.raises(ProcessorError, match="the snapshot is of files"):
        other.processors[0].finish_snapshot_restore()
    other.close()
    other.meta.close(None)
    for path in corpus.iterdir():
        path.write_text("other words")
    files = files.lost(1, entries)
    with pytest.raises(ProcessorError, match="changed since the job began"):
        files.step(100)
    files.close()
    files.meta.close(None)


@pytest.mark.parametrize("calls", range(3))
def test_a_column_is_counted_before_the_barrier(calls: int) -> None:
    stage = Stage(count_words_of("line"), room=1)
    stage.feed(0, [Batch({"line": Text.of(["The cat", "the été"])})])
    stage.complete(calls)
    assert stage.save() == []
    if not calls:
        stage.feed(0, [Batch({"line": Text.of(["ÉTÉ"])})])
    found: Counter[str] = Counter()
    for batch in stage.complete():
        found.update(dict(batch.tuples()))
    assert found == {"the": 2, "cat": 1, "été": 2 - (calls > 0)}


@pytest.mark.parametrize("calls", range(4))
def test_sums_that_have_been_emitted_are_not_saved(calls: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shmjet.processors.columns.word_totals.ROWS", 2)
    words = Batch({"word": ["a", "b", "c", "d", "e"], "count": [1, 2, 3, 4, 5]})
    stage = Stage(combine_words(batches=True), room=1)
    stage.feed(0, [words, words])
    stage.complete(calls)
    assert words_of(stage.restored(room=1).complete()) == {"a": 2, "b": 4, "c": 6, "d": 8, "e": 10}


def test_sums_without_partitions_go_by_place() -> None:
    stage = Stage(combine_words(batches=True), 3, StatePlacement(271, is_partitioned=False))
    for index in range(3):
        stage.feed(index, [Batch({"word": ["w"], "count": [index + 1]})])
    entries = stage.save()
    assert [key for key, _ in entries] == [BroadcastKey((index, 0)) for index in range(3)]
    assert [list(batch.tuples()) for batch in stage.restored().complete()] == [[("w", 1)], [("w", 2)], [("w", 3)]]


def test_sums_pass_all_modes() -> None:
    batches = [Batch({"word": ["a", "b"], "count": [1, 2]}), Batch({"word": ["b", "c"], "count": [3, 4]})]
    expected_ = Batch({"word": ["a", "b", "c"], "count": [1, 5, 4]})
    verify_processor(combine_words(batches=True)).inputs(batches).any_order().expect([expected_])
