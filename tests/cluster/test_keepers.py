"""Copies of partitions that go from keeper to keeper while tables come and go."""

from __future__ import annotations

import asyncio
from pathlib import Path

from tests.cluster.keepers import Keepers
from tests.cluster.test_asking_again import until


def test_no_partition_is_copied_anew_to_a_member_that_has_it(tmp_path: Path) -> None:
    async def story() -> None:
        keepers = Keepers(tmp_path, 64, 1)
        for _ in range(3):
            await keepers.add()
            await until(lambda: keepers.table.is_settled)
        await keepers.stop()
        assert keepers.faults == []

    asyncio.run(story())
