"""Who owns a partition: every reader asks one table, whatever it says."""

from __future__ import annotations

import random

import pytest

from shmjet.core.context import MetaSupplierContext, ProcessorContext
from shmjet.core.keys import partition_id
from shmjet.core.ownership import PartitionOwners, dealt, hand_in, owners_in
from shmjet.core.processor import FactorySupplier, Processor, ProcessorMetaSupplier, is_stand_in
from tests.examples import seeds


def uneven(seed: int, count: int, members: int) -> PartitionOwners:
    chance = random.Random(seed)
    return PartitionOwners(members, [chance.randrange(members) for _ in range(count)])


@pytest.mark.parametrize("count", [12, 7])
@pytest.mark.parametrize("seed", seeds(5))
def test_every_partition_has_one_owner_and_one_processor(seed: int, count: int) -> None:
    owners = uneven(seed, 12, 3)
    found: list[int] = []
    for member in range(3):
        own = owners.partitions_of(member, count)
        assert own == sorted(own)
        assert {owners.owner_of(partition, count) for partition in own} <= {member}
        for local in range(2):
            at = ProcessorContext(member_index=member, member_count=3, local_index=local, local_parallelism=2)
            found += owners.share_of(at, count)
    assert sorted(found) == list(range(count))


def test_without_an_engine_partitions_are_dealt_in_turn() -> None:
    at = ProcessorContext(member_index=1, member_count=3, local_index=1, local_parallelism=2, partition_count=20)
    assert owners_in(at).share_of(at, 20) == list(range(4, 20, 6))
    assert owners_in(at).places == dealt(20, 3).places


def test_the_table_of_the_engine_comes_with_the_context() -> None:
    at, owners = ProcessorContext(member_count=2, partition_count=4), PartitionOwners(2, [1, 1, 0, 1])
    hand_in(at, owners)
    assert owners_in(at) is owners
    assert at == ProcessorContext(member_count=2, partition_count=4)


def test_a_total_parallelism_of_one_is_on_the_owner_of_its_key() -> None:
    key, count = "the key", 8
    places = [1] * count
    places[partition_id(key, count)] = 2
    context = MetaSupplierContext(member_count=3, partition_count=count)
    hand_in(context, PartitionOwners(3, places))
    meta = ProcessorMetaSupplier.force_total_parallelism_one(FactorySupplier(Processor), key)
    meta.init(context)
    given = meta.get(["a", "b", "c"])
    assert not callable(given)
    assert [is_stand_in(given[address]) for address in "abc"] == [True, True, False]
