"""`map` and `imap_unordered` of a pool: order, chunks, endless input, what raises half way."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from shmjet import PoolExecutor
from tests.pool.functions import double, fail_deep, wait_for_file


@pytest.fixture(scope="module")
def pool() -> Iterator[PoolExecutor]:
    with PoolExecutor(2) as executor:
        yield executor


def test_map_keeps_order_and_takes_several_iterables(pool: PoolExecutor) -> None:
    assert list(pool.map(pow, range(3000), itertools.repeat(2))) == [i * i for i in range(3000)]
    assert list(pool.map(double, [])) == []
    assert list(pool.map(double, range(10), chunksize=3, buffersize=5)) == [2 * i for i in range(10)]


def test_imap_unordered_gives_everything_once(pool: PoolExecutor) -> None:
    assert sorted(pool.imap_unordered(double, iter(range(20_000)))) == [2 * i for i in range(20_000)]
    assert sorted(pool.imap_unordered(pow, [1, 2], [3, 4], chunksize=1)) == [1, 16]


def test_imap_unordered_does_not_wait_for_the_slow(pool: PoolExecutor, tmp_path: Path) -> None:
    gate = str(tmp_path / "gate")
    results = pool.imap_unordered(lambda path: wait_for_file(path) if path else path, [gate, "", "", ""])
    assert [next(results) for _ in range(3)] == ["", "", ""]
    Path(gate).touch()
    assert list(results) == [None]


@pytest.mark.parametrize("name", ["map", "imap_unordered"])
def test_an_endless_input_is_read_only_so_far(name: str) -> None:
    read = 0

    def numbers() -> Iterator[int]:
        nonlocal read
        for read in itertools.count():  # noqa: UP028
            yield read

    with PoolExecutor(2) as own:  # a pool that has run such calls before makes larger chunks
        results = getattr(own, name)(double, numbers())
        assert len(list(itertools.islice(results, 10))) == 10
        assert read < 4 * 2 * 4096  # chunks ahead of a worker, workers, items of the largest chunk
        results.close()
        seen = read
        assert own.submit(double, 1).result() == 2
        assert read == seen


def test_map_gives_what_came_before_an_exception(pool: PoolExecutor) -> None:
    results = pool.map(fail_deep, [1, 2, 4, 0, 5], chunksize=5)
    assert [next(results) for _ in range(3)] == [1, 0.5, 0.25]
    with pytest.raises(ZeroDivisionError):
        next(results)


def test_a_stop_iteration_of_the_users_loses_no_results(pool: PoolExecutor) -> None:
    def stop_at(n: int, stop: int = 3) -> int:
        if n == stop:
            raise StopIteration
        return n

    for iterables in ([range(6)], [range(6), [3] * 6]):
        results = pool.map(stop_at, *iterables, chunksize=6)
        assert [next(results) for _ in range(3)] == [0, 1, 2]
        with pytest.raises(RuntimeError, match="StopIteration"):  # as from the generator of the standard map
            next(results)


def test_map_has_a_timeout(pool: PoolExecutor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr("shmjet.pool.chunked_map.time", SimpleNamespace(monotonic=lambda: now))
    here, later = tmp_path / "here", tmp_path / "later"
    here.touch()
    try:
        for way in (pool.map, pool.imap_unordered):
            now = 0.0
            results = way(wait_for_file, [str(here), str(later)], timeout=60.0, chunksize=1)
            assert next(results) is None
            now = 60.0
            with pytest.raises(TimeoutError):
                next(results)
    finally:
        later.touch()  # the pool waits for what it runs


def test_map_checks_its_sizes(pool: PoolExecutor) -> None:
    for name, wrong in itertools.product(("map", "imap_unordered"), ("chunksize", "buffersize")):
        with pytest.raises(ValueError, match=wrong):
            getattr(pool, name)(double, [1], **{wrong: 0})


def test_map_of_arrays(pool: PoolExecutor) -> None:
    arrays = [np.full(200_000, i) for i in range(30)]
    assert [int(result[0]) for result in pool.map(double, arrays)] == [2 * i for i in range(30)]
