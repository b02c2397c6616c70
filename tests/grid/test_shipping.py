"""What a backup is sent when it gets copies of further partitions while changes are on their way to it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from shmjet.core.keys import partition_id
from shmjet.grid.change_log import ends, note_changes
from shmjet.grid.ownership import open_partitions
from shmjet.grid.shipping import Batch, Shipping
from tests.grid.divided import COUNT, Stores

OLD, NEW = (next(key for key in range(1000) if partition_id(key, COUNT) == partition) for partition in (0, 2))
"""Keys of partitions in the same environment: a backup of the first is there, one of the other is being made."""
TERM = (1, 0)


@pytest.fixture
def stores(tmp_path: Path) -> Iterator[Stores]:
    stores = Stores(tmp_path, 2)
    stores.move(list(range(COUNT)), 0)
    open_partitions(stores.grids["0"].opened.environments, {0: stores.lineages[0]}, {0: 1})
    yield stores
    stores.close()


def sent(batch: Batch | None) -> set[int]:
    return set() if batch is None else {group[0] for record in batch.sent for group in record.groups}


def test_who_joins_lacks_what_has_changed_since_its_copy_whatever_is_on_the_way(stores: Stores) -> None:
    opened, there = stores.grids["0"].opened, stores.grid(0).get_map("m")
    shipping = Shipping(opened)
    shipping.follow({0: ["1"]}, {0: TERM, 2: TERM})
    numbers = note_changes(opened.environments, [2], are_copied=True)
    shipping.begin_copy("1", [2], numbers)
    there.put(NEW, "changed")
    there.put(OLD, "changed")
    under_way = shipping.batch("1")
    assert under_way is not None
    assert sent(under_way) == {0}
    shipping.join("1", [2])
    shipping.follow({0: ["1"], 2: ["1"]}, {0: TERM, 2: TERM})
    shipping.confirmed("1", under_way)
    now = ends(opened.environments)
    assert not shipping.has("1", now)
    rest = shipping.batch("1")
    assert rest is not None
    assert sent(rest) == {0, 2}
    shipping.confirmed("1", rest)
    assert shipping.has("1", now)
    shipping.end_copy("1")
