"""The two stages of counting words in native code, alone and joined by an edge between several workers."""

from __future__ import annotations

import operator
import pickle
import shutil
import subprocess
import sys
import sysconfig
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shmjet.columns.words import WordPiece
from shmjet.core import DAG, between
from shmjet.core.context import MetaSupplierContext
from shmjet.core.processor import ProcessorSupplier
from shmjet.data.batch import Batch
from shmjet.data.errors import BatchError
from shmjet.data.text import Text
from shmjet.processors import write_list
from shmjet.processors.columns.word_count import (
    CombineWordsProcessor,
    WordCountMetaSupplier,
    combine_words,
    count_words,
    count_words_of,
    share_partition,
)
from shmjet.testing import TestGrid
from tests.examples import examples
from tests.execution.harness import LocalRun

from .driving import Driver


def run_source(source: WordCountMetaSupplier, count: int = 1, members: int = 1, grid: Any = None) -> list[Driver]:
    """Run all processors of the first stage in turn, a call each."""
    source.init(MetaSupplierContext(local_parallelism=count, total_parallelism=count * members))
    suppliers = source.get([f"member-{i}" for i in range(members)])
    drivers: list[Driver] = []
    try:
        for member, supplier in enumerate(suppliers.values()):
            for i, processor in enumerate(pickle.loads(pickle.dumps(supplier)).get(count)):
                index = member * count + i
                drivers.append(Driver(processor, index=index, count=count * members, room=2, grid=grid))
        running = list(drivers)
        while running:
            running = [driver for driver in running if not driver.call(driver.processor.complete)]
    finally:
        for driver in drivers:
            driver.processor.close()
        source.close(None)
    return drivers


def pairs_of(items: list[Any]) -> list[tuple[str, int]]:
    """The words and counts of pieces or batches."""
    return [pair for item in items for pair in (item.tuples() if isinstance(item, Batch) else WordPiece(*item).pairs())]


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    folder = tmp_path / "corpus"
    folder.mkdir()
    (folder / "plain.txt").write_text("The cat and the Hat\n" * 30_000)
    (folder / "many.txt").write_text(" ".join(map(str, range(40_000))))
    (folder / "greek.txt").write_text("ΟΔΟΣ\u3000ßẞ Å\u2028Σ İstanbul " * 100)
    (folder / "latin.txt").write_bytes("na\xefve caf\xe9\n".encode("latin-1"))
    (folder / "empty.txt").write_bytes(b"")
    (folder / "image.bin").write_bytes(b"GIF89a\0\0 word word")
    return folder


def expected(folder: Path, lower: bool = True) -> Counter[str]:
    """What Python's own methods give."""
    counts: Counter[str] = Counter()
    for path in folder.glob("*.txt"):
        text = path.read_bytes().decode("utf-8", "replace")
        counts.update((text.lower() if lower else text).split())
    return counts


@pytest.mark.parametrize("batches", [False, True])
@pytest.mark.parametrize(("count", "members"), [(1, 1), (3, 1), (2, 2)])
def test_two_stages_count_as_a_counter_does(corpus: Path, batches: bool, count: int, members: int) -> None:
    source = count_words(corpus, skip_binary=True, batches=batches, block_size=50_000)
    assert isinstance(source, WordCountMetaSupplier)
    drivers = run_source(source, count, members)
    combine = Driver(CombineWordsProcessor(batches), room=1)
    for driver in drivers:
        assert all(isinstance(item, Batch) is batches for item in driver.output)
        combine.feed(driver.output)
    assert sorted(pairs_of(combine.complete())) == sorted(expected(corpus).items())


def test_case_may_be_kept(corpus: Path) -> None:
    (driver,) = run_source(count_words(corpus, lower=False, skip_binary=True))  # type: ignore[arg-type]
    assert dict(pairs_of(driver.output)) == expected(corpus, lower=False)


def test_equal_words_of_all_processors_are_in_equal_shares(corpus: Path) -> None:
    drivers = run_source(count_words(corpus, block_size=10_000), 3)  # type: ignore[arg-type]
    share_of: dict[str, int] = {}
    for driver in drivers:
        for item in driver.output:
            assert type(item) is tuple
            for word, _ in WordPiece(*item).pairs():
                assert share_of.setdefault(word, item[0]) == item[0]
    assert len(set(share_of.values())) == 12


def test_progress_is_reported_in_a_map(corpus: Path) -> None:
    grid = TestGrid()
    run_source(count_words(corpus, skip_binary=True, stats="reading"), grid=grid)  # type: ignore[arg-type]
    total = sum(path.stat().st_size for path in corpus.glob("*.txt"))
    words = expected(corpus).total()
    assert grid.get_map("reading")[0] == {"files": 5, "bytes": total, "skipped": 1, "words": words}


def test_a_file_that_vanishes_is_an_error_that_names_it(tmp_path: Path) -> None:
    path = tmp_path / "gone.txt"
    path.write_text("soon gone")
    source = count_words(path)
    source.init(MetaSupplierContext(local_parallelism=1, total_parallelism=1))
    driver = Driver(source.get(["here"])["here"].get(1)[0])  # type: ignore[union-attr]
    path.unlink()
    try:
        with pytest.raises(FileNotFoundError, match=r"gone\.txt") as caught:
            driver.call(driver.processor.complete)
        assert "bytes 0 to 9" in caught.value.__notes__[0]
    finally:
        driver.processor.close()
        source.close(None)


def test_arguments_and_paths_are_checked(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no paths"):
        count_words([])
    with pytest.raises(ValueError, match="block_size must be at least 1 byte, got 0"):
        count_words("x", block_size=0)
    with pytest.raises(FileNotFoundError, match="no-such"):
        count_words(tmp_path / "no-such").init(MetaSupplierContext(local_parallelism=1, total_parallelism=1))


def wordcount_dag(source: ProcessorSupplier) -> DAG:
    """Both stages and a list."""
    dag = DAG()
    count = dag.new_vertex("count", source)
    combine = dag.new_vertex("combine", combine_words())
    write = dag.new_vertex("write", write_list("counts"))
    dag.edge(between(count, combine).partitioned(operator.itemgetter(0), share_partition))
    dag.edge(between(combine, write))
    return dag


@pytest.mark.parametrize(("workers", "force_rings"), [(1, False), (1, True), (3, True)])
def test_pieces_travel_between_workers(corpus: Path, workers: int, force_rings: bool) -> None:
    source = count_words(corpus, skip_binary=True, block_size=100_000)
    source.init(MetaSupplierContext(local_parallelism=workers, total_parallelism=workers))
    supplier = source.get(["here"])["here"]
    assert isinstance(supplier, ProcessorSupplier)
    run = LocalRun(wordcount_dag(supplier), workers, force_rings=force_rings).run()
    source.close(None)
    pairs = pairs_of(run.grid.get_list("counts"))
    assert len(pairs) == len(dict(pairs))  # no word comes from two processors
    assert dict(pairs) == expected(corpus)


def test_words_of_a_column_are_counted_over_all_batches() -> None:
    lines = ["To be or not", "to BE", "", "Straße ÄRGER  ärger"]
    batches = [
        Batch({"line": Text.of(lines), "n": range(4)}),
        Batch({"line": Text.of(["lost", "or"]), "n": range(2)}, {"line": np.array([False, True])}),
    ]
    wanted = Counter(" ".join([*lines, "or"]).lower().split())
    for lower, counts in ((True, wanted), (False, Counter(" ".join([*lines, "or"]).split()))):
        driver = Driver(pickle.loads(pickle.dumps(count_words_of("line", lower=lower)))())
        found = driver.feed(batches).complete()
        assert all(isinstance(batch, Batch) for batch in found)
        assert dict(row for batch in found for row in batch.tuples()) == counts


def test_words_of_a_column_that_is_none_are_an_error() -> None:
    for item in ({"line": "no batch"}, Batch({"line": [1, 2]})):
        driver = Driver(count_words_of("line")())
        with pytest.raises(BatchError):
            driver.feed([item])


RAW = st.lists(
    st.one_of(st.binary(max_size=6), st.text(max_size=6).map(lambda text: text.encode("utf-8", "replace"))), max_size=40
).map(b" ".join)


@examples(50)
@given(st.lists(RAW, min_size=1, max_size=3), st.integers(1, 200))
def test_whatever_files_hold_both_stages_count_it(
    tmp_path_factory: pytest.TempPathFactory, files: list[bytes], block_size: int
) -> None:
    folder = tmp_path_factory.getbasetemp() / "anything"
    folder.mkdir(exist_ok=True)
    for old in folder.iterdir():
        old.unlink()
    for i, data in enumerate(files):
        (folder / f"{i}.txt").write_bytes(data)
    combine = Driver(CombineWordsProcessor(False))
    for driver in run_source(count_words(folder, block_size=block_size), 2):  # type: ignore[arg-type]
        combine.feed(driver.output)
    assert dict(pairs_of(combine.complete())) == expected(folder)


def two_stages(source: Any, count: int = 2) -> dict[str, int]:
    """Everything that both stages find."""
    combine = Driver(CombineWordsProcessor(False))
    for driver in run_source(source, count):
        combine.feed(driver.output)
    return dict(pairs_of(combine.complete()))


@pytest.mark.slow
def test_the_standard_library_and_its_binaries_are_counted_as_by_python() -> None:
    folder = Path(sysconfig.get_path("stdlib"))
    paths = [path for suffix in ("py", "so") for path in sorted(folder.rglob(f"*.{suffix}"))[::20][:20]]
    counts: Counter[str] = Counter()
    for path in paths:
        counts.update(path.read_bytes().decode("utf-8", "replace").lower().split())
    assert two_stages(count_words(paths, block_size=300_000)) == counts


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("apt-cache") is None, reason="no apt-cache on this machine")
def test_the_index_of_debian_is_counted_as_by_python(tmp_path: Path) -> None:
    with subprocess.Popen(["apt-cache", "dumpavail"], stdout=subprocess.PIPE) as index:  # all of it is large
        assert index.stdout is not None
        text = index.stdout.read(2_000_000)
        index.kill()
    path = tmp_path / "index"
    path.write_bytes(text)
    assert two_stages(count_words(path)) == Counter(text.decode("utf-8", "replace").lower().split())


def test_counting_words_without_batches_loads_no_numpy() -> None:
    check = "import sys, shmjet.cli.wordcount, shmjet.columns.words; sys.exit('numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", check], check=False).returncode == 0
