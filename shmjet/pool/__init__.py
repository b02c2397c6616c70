"""Floor 7: a `concurrent.futures.Executor` whose tasks go through rings to workers (`docs/design/0011-pool.md`).

It uses the rings and doorbells of floor 1, the fork server of floor 3 and the placement of floor 6, and starts no
member: a pool has no jobs, no vertices and no store, and nothing here knows of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from shmjet.pool.executor import PoolExecutor

__all__ = ["PoolExecutor"]


def __getattr__(name: str) -> Any:
    """Import what users see when they ask for it: the fork server starts without it in half the time."""
    if name != "PoolExecutor":
        raise AttributeError(f"module 'shmjet.pool' has no attribute {name!r}")
    from shmjet.pool.executor import PoolExecutor

    globals()[name] = PoolExecutor
    return PoolExecutor
