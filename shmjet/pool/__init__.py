"""Floor 7: a `concurrent.futures.Executor` whose tasks go through rings to workers (`docs/design/0011-pool.md`).

It uses rings, doorbells, the fork server and the placement of workers on cores. It starts no member: a pool has no
jobs, no vertices and no store, and must not know of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from shmjet.pool.executor import PoolExecutor

__all__ = ["PoolExecutor"]


def __getattr__(name: str) -> Any:
    """Import the public class when it is first used: the fork server starts without it in half the time."""
    if name != "PoolExecutor":
        raise AttributeError(f"module 'shmjet.pool' has no attribute {name!r}")
    from shmjet.pool.executor import PoolExecutor

    globals()[name] = PoolExecutor
    return PoolExecutor
