"""`BatchScatter` deals every row to the consumer of its key, once and in order, whatever the columns are."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shmjet.core.keys import partition_id
from shmjet.data.batch import Batch
from shmjet.data.column_keys import hash_rows
from shmjet.data.errors import BatchError
from shmjet.data.text import Text
from shmjet.ring.scatter import BatchScatter
from tests.data.batches import columns
from tests.examples import examples

PARTITIONS = 13


def gather(scatter: BatchScatter, batches: list[Batch]) -> list[list[Batch]]:
    """Put all batches, taking builders away when they are full and at the end; copies of what each consumer got."""
    taken: list[list[Batch]] = [[] for _ in range(scatter.consumers)]

    def take(consumer: int) -> None:
        taken[consumer].append(scatter.batch_of(consumer).copy())
        scatter.reset(consumer)

    for batch in batches:
        row = 0
        while (row := scatter.put(batch, row)) < batch.num_rows:
            full = scatter.full
            assert full
            for consumer in full:
                take(consumer)
    for consumer in scatter.pending:
        take(consumer)
    assert scatter.gathered == 0
    assert scatter.pending == []
    assert scatter.full == []
    return taken


def dealt(batches: list[Batch], keys: tuple[str, ...], table: list[int], consumers: int) -> list[list[int]]:
    """The rows of each consumer by the path of objects, as row numbers over all batches."""
    shares: list[list[int]] = [[] for _ in range(consumers)]
    row = 0
    for batch in batches:
        values = [batch.values(key) for key in keys]
        for key in values[0] if len(keys) == 1 else zip(*values, strict=True):
            shares[table[partition_id(key, len(table))]].append(row)
            row += 1
    return shares


def tidy(batch: Batch) -> Batch:
    """Return the batch without masks in which nothing is null."""
    return Batch(dict(batch.items()), {name: batch.validity(name) for name in batch.names})


def check(batches: list[Batch], keys: tuple[str, ...], consumers: int, rows: int) -> list[list[Batch]]:
    table = [partition * 7 % consumers for partition in range(PARTITIONS)]
    taken = gather(BatchScatter(table, consumers, keys, rows), batches)
    whole = Batch.concat(batches)
    for got, share in zip(taken, dealt(batches, keys, table, consumers), strict=True):
        assert all(0 < batch.num_rows <= rows for batch in got)
        if share:
            assert tidy(Batch.concat(got)).equals(tidy(whole.take(np.array(share))))
        else:
            assert got == []
    return taken


@st.composite
def streams(draw: st.DrawFn) -> list[Batch]:
    """Batches of one schema: an integer key and up to three columns of any kind, nulls here and there."""
    rows = draw(st.integers(1, 60))
    made: dict[str, Any] = {"key": np.array(draw(st.lists(st.integers(0, 9), min_size=rows, max_size=rows)))}
    for name in "xyz"[: draw(st.integers(0, 3))]:
        made[name] = draw(columns(rows))
    whole = Batch(made)
    cuts = sorted(draw(st.lists(st.integers(0, rows), max_size=4)))
    parts = [whole[start:stop] for start, stop in zip([0, *cuts], [*cuts, rows], strict=True)]
    for place, part in enumerate(parts):
        masks = {}
        for name in part.names:
            if draw(st.booleans()):
                drawn = draw(st.lists(st.booleans(), min_size=part.num_rows, max_size=part.num_rows))
                masks[name] = np.array(drawn, np.bool_)
        parts[place] = Batch(dict(part.items()), masks)
    return parts


@given(streams(), st.integers(1, 12), st.integers(1, 12))
@examples(150)
def test_every_row_reaches_the_consumer_of_its_key_in_order(batches: list[Batch], consumers: int, rows: int) -> None:
    check(batches, ("key",), consumers, rows)


@pytest.mark.parametrize("consumers", [1, 2, 8, 9, 64])
@pytest.mark.parametrize("others", [0, 1, 2, 3])
def test_blocks_of_eight_byte_columns(consumers: int, others: int) -> None:
    """The ways through the kernel: one, two or more columns of 8 bytes, few or many consumers, room or none."""
    random = np.random.default_rng(consumers)
    made = {
        "key": random.integers(-(2**62), 2**62, 150_000),
        **{f"v{i}": random.random(150_000) for i in range(others)},
    }
    batch = Batch(made)
    table = random.permutation(np.arange(271) % consumers)
    scatter = BatchScatter(table, consumers, ("key",), 3000)
    taken = gather(scatter, [batch[:100_000], batch[100_000:]])
    assigned = table[hash_rows(batch, ["key"]) % 271]
    for consumer, got in enumerate(taken):
        assert Batch.concat(got).equals(batch.filter(assigned == consumer))
        assert [part.num_rows for part in got[:-1]] == [3000] * (len(got) - 1)


def test_all_rows_of_one_key_go_one_way() -> None:
    check([Batch({"key": np.zeros(5000, np.int64), "v": np.arange(5000)})], ("key",), 3, 700)


@pytest.mark.parametrize("dtype", ["i1", "i2", "i4", "i8", "f2", "g", "c16", "S3", "U7", "V33", "M8[us]", "m8[s]"])
def test_every_width(dtype: str) -> None:
    raw = np.random.default_rng(1).integers(1, 100, 3000 * np.dtype(dtype).itemsize, np.uint8)
    values = np.arange(3000).astype(dtype) if np.dtype(dtype).kind in "fcUS" else raw.view(dtype)
    check([Batch({"key": np.arange(3000) % 100, "v": values})], ("key",), 5, 800)


@pytest.mark.parametrize(("consumers", "full"), [(1, 34_816), (2, 34_816), (8, 16_384), (16, 8192), (200, 8192)])
def test_few_consumers_get_larger_batches(consumers: int, full: int) -> None:
    scatter = BatchScatter([consumers - 1], consumers, ("key",))
    batch = Batch({"key": np.arange(40_000), "v": np.arange(40_000) / 2})
    assert scatter.put(batch, 0) == full
    assert scatter.full == [consumers - 1]
    assert scatter.batch_of(consumers - 1).equals(batch[:full])


def test_composite_and_text_keys() -> None:
    words = Text.of([f"word {i % 50}" for i in range(2000)])
    batch = Batch({"a": np.arange(2000) % 7, "w": words, "f": np.arange(2000) * 0.5})
    check([batch], ("w",), 4, 500)
    check([batch], ("a", "w"), 4, 500)
    check([batch], ("f", "a"), 4, 500)


def test_text_of_all_sizes() -> None:
    random = np.random.default_rng(2)
    lengths = [*random.integers(0, 70, 3000), 300_000, 5, 2_000_000, 0, 40_000, 31, 32, 33]
    words = Text.of(["é" * int(length) for length in lengths])
    batch = Batch({"key": np.arange(len(words)) % 3, "w": words, "raw": Text.of([b"x" * int(n) for n in lengths])})
    taken = check([batch[:1000], batch[1000:]], ("key",), 2, 8192)
    assert any(part.num_rows == 1 for part in taken[0] + taken[1])


def test_a_value_larger_than_a_builder_travels_alone() -> None:
    large = "x" * 2_000_000
    scatter = BatchScatter([0], 1, ("k",))
    batch = Batch({"k": [1, 2, 3], "w": [large, "a", large]})
    assert scatter.put(batch, 0) == 1
    assert (scatter.full, scatter.pending, scatter.gathered) == ([0], [0], 1)
    assert scatter.batch_of(0).equals(batch[:1])
    scatter.reset(0)
    assert scatter.gathered == 0
    assert scatter.put(batch, 1) == 2
    assert scatter.full == [0]
    assert scatter.batch_of(0).equals(batch[1:2])
    scatter.reset(0)
    assert scatter.put(batch, 2) == 3
    assert scatter.batch_of(0).equals(batch[2:])


def test_a_mask_may_appear_late_and_goes_when_it_is_not_needed() -> None:
    plain = Batch({"k": [1, 1], "v": [1.0, 2.0]})
    masked = Batch({"k": [1, 1], "v": [3.0, 4.0]}, {"v": np.array([True, False])})
    scatter = BatchScatter([0], 1, ("k",))
    for batch in (plain, masked, plain):
        assert scatter.put(batch, 0) == 2
    assert list(scatter.batch_of(0).values("v")) == [1.0, 2.0, 3.0, None, 1.0, 2.0]
    scatter.reset(0)
    assert scatter.put(plain, 0) == 2
    assert scatter.batch_of(0).validity("v") is None


def test_a_full_builder_holds_the_rest_back() -> None:
    batch = Batch({"k": np.arange(10), "v": np.arange(10)})
    scatter = BatchScatter([0], 1, ("k",), 4)
    assert scatter.put(batch, 0) == 4
    assert scatter.put(batch, 4) == 4
    assert scatter.full == [0]
    assert scatter.gathered == 4
    view = scatter.batch_of(0)
    assert view["v"].tolist() == [0, 1, 2, 3]
    assert not view["v"].flags.writeable
    scatter.reset(0)
    assert scatter.put(batch, 4) == 8
    assert scatter.batch_of(0)["v"].tolist() == [4, 5, 6, 7]


def test_another_batch_may_come_between() -> None:
    first, second = Batch({"k": [1, 2, 3]}), Batch({"k": [4, 5]})
    scatter = BatchScatter([0], 1, ("k",), 2)
    assert scatter.put(first, 0) == 2
    scatter.reset(0)
    assert scatter.put(second, 0) == 2
    scatter.reset(0)
    assert scatter.put(first, 2) == 3
    assert scatter.batch_of(0)["k"].tolist() == [3]


def test_batches_without_rows() -> None:
    scatter = BatchScatter([0, 1], 2, ("k",))
    assert scatter.put(Batch({"k": np.zeros(0, np.int64), "t": Text.of([])}), 0) == 0
    assert (scatter.gathered, scatter.full, scatter.pending) == (0, [], [])
    scatter.put(Batch({"k": [1], "t": ["x"]}), 0)
    empty = ({0, 1} - set(scatter.pending)).pop()
    assert scatter.batch_of(empty).equals(Batch({"k": np.zeros(0, np.int64), "t": Text.of([])}))


def test_other_columns_fit_only_when_nothing_is_gathered() -> None:
    scatter = BatchScatter([0], 1, ("k",))
    ints, texts = Batch({"k": [1], "v": [1]}), Batch({"k": [1], "v": ["x"]})
    assert scatter.fits(ints)
    assert scatter.fits(texts)
    scatter.put(ints, 0)
    assert scatter.fits(ints[:0])
    assert not scatter.fits(texts)
    assert not scatter.fits(ints.select("v", "k"))
    with pytest.raises(BatchError, match="cannot be gathered with 1 rows"):
        scatter.put(texts, 0)
    scatter.reset(0)
    assert scatter.fits(texts)
    assert scatter.put(texts, 0) == 1
    assert scatter.batch_of(0).equals(texts)


def test_wrong_arguments_are_named() -> None:
    with pytest.raises(BatchError, match=r"no column 'user'.*\['k'\]"):
        BatchScatter([0], 1, ("user",)).put(Batch({"k": [1]}), 0)
    with pytest.raises(BatchError, match="one of 2 consumers"):
        BatchScatter([0, 2], 2, ("k",))
    with pytest.raises(BatchError, match="one of 2 consumers"):
        BatchScatter([], 2, ("k",))
    with pytest.raises(BatchError, match="at least one key column"):
        BatchScatter([0], 1, ())
    with pytest.raises(BatchError, match="of dtype complex128 cannot be a key"):
        BatchScatter([0], 1, ("k",)).put(Batch({"k": [1j]}), 0)


def test_wide_rows_make_small_builders() -> None:
    """A thousand columns for 64 consumers stay within a MiB each."""
    batch = Batch({f"c{i}": np.arange(500) + i for i in range(1000)})
    scatter = BatchScatter(list(range(64)), 64, ("c0",))
    row = 0
    seen = 0
    while (row := scatter.put(batch, row)) < 500:
        for consumer in scatter.full:
            seen += scatter.batch_of(consumer).num_rows
            scatter.reset(consumer)
    assert scatter.capacity * 9 * 1000 <= 1 << 20
    assert seen + scatter.gathered == 500
    huge = Batch({"k": [1, 2], "v": np.zeros(2, "V3000000")})
    check([huge], ("k",), 2, 100)


def test_nothing_refers_to_a_batch_that_is_in() -> None:
    import weakref

    batch = Batch({"k": [1, 2]})
    reference = weakref.ref(batch)
    scatter = BatchScatter([0], 1, ("k",))
    scatter.put(batch, 0)
    del batch
    assert reference() is None
