"""Which processor owns which partition, and which feeds which over an isolated edge."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shmjet.core.partition_assignment import NOT_HERE, distributed_table, isolated_consumers, local_table

counts = st.integers(1, 300)


@given(counts, st.integers(1, 9), st.data())
def test_an_own_partition_has_the_same_processor_on_local_and_distributed_edges(count, parallelism, data):
    own = data.draw(st.lists(st.integers(0, count - 1), unique=True))
    local, distributed = local_table(count, own, parallelism), distributed_table(count, own, parallelism)
    for partition in range(count):
        assert distributed[partition] == (local[partition] if partition in own else NOT_HERE)


@given(counts, st.integers(1, 9), st.data())
def test_partitions_are_dealt_evenly(count, parallelism, data):
    own = data.draw(st.lists(st.integers(0, count - 1), unique=True))
    for table, total in (
        (local_table(count, own, parallelism), count),
        (distributed_table(count, own, parallelism), len(own)),
    ):
        shares = [table.tolist().count(i) for i in range(parallelism)]
        assert sum(shares) == total
        assert max(shares) - min(shares) <= 1


def test_own_partitions_are_dealt_ascending_before_foreign_ones():
    assert local_table(6, [5, 4, 1], 2).tolist() == [1, 0, 0, 1, 1, 0]
    assert local_table(4, range(4), 3).tolist() == [0, 1, 2, 0]


def test_a_table_holds_16_bit_integers_for_the_native_router():
    table = local_table(271, range(271), 2)
    assert (table.typecode, table.itemsize, len(table)) == ("H", 2, 271)


@pytest.mark.parametrize("own", [[-1], [6]])
def test_foreign_numbers_are_refused(own):
    with pytest.raises(ValueError, match=r"must lie in 0\.\.5"):
        local_table(6, own, 2)


@pytest.mark.parametrize("parallelism", [0, 65535])
def test_parallelism_must_fit(parallelism):
    with pytest.raises(ValueError, match="parallelism must be from 1 to 65534"):
        local_table(6, [], parallelism)


@given(st.integers(1, 12), st.integers(1, 12))
def test_isolated_pairs_reach_everyone_and_mix_nothing(producers, consumers):
    fed = [isolated_consumers(p, producers, consumers) for p in range(producers)]
    assert all(fed)
    assert {c for some in fed for c in some} == set(range(consumers))
    if producers <= consumers:
        assert sorted(c for some in fed for c in some) == list(range(consumers))
    else:
        assert all(len(some) == 1 for some in fed)
    if producers == consumers:
        assert fed == [[p] for p in range(producers)]
