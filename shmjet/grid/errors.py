"""What can go wrong in a store, as types.

They sit under `ShmjetError` and are raised wherever a map or a list is used: in the client, in a worker's sink, in a
source. This module knows nothing of the store.
"""

from __future__ import annotations

from typing import Any

from shmjet.data.errors import ShmjetError


class GridError(ShmjetError):
    """A store is missing, closed, of another version or used in the wrong process; the text names its folder.

    Importable from `shmjet.grid`.
    """


class PartitionMovedError(GridError):
    """A partition is not where it was looked for. The asking process looks into the table again, and asks anew."""


class GridFullError(GridError):
    """A store cannot take more: its file system or its address range is used up.

    The text names the limit, what was being written and the remedy. What had been committed before stays readable,
    and `clear()`, `destroy()` and `remove()` make room.
    """


class NotOnDiskError(GridError):
    """A change is in memory, but not on disk, where it should be; it gets there when the disk takes it again.

    `result` is what the change would have returned.
    """

    result: Any = None
