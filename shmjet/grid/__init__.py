"""Floor 5: maps and lists that all processes of an instance share, and the store they lie in.

`Grid` opens the store; `IMap` and `IList` are what users see. This floor must not know jobs, vertices or how members
talk: the engine hands a `Grid` to processors as `shmjet.core.context.DataGrid`, and the client opens one itself.

From the outside in: `store` (the folder), `imap`, `ilist` and `journal` (the user's view), `map_entries`, `map_scan`
and `map_journal` (what a map does for it), `table` and `table_reads` (operations), `bounded_table`, `changes` and `log`
(what each transaction does), `limits` (what is removed after it), `times` (of entries), `scan` and `read_ahead`
(reading in pages), `entries`, `pickles` and `blobs` (objects to bytes), `environment` (LMDB and its rules), `layout`
(the bytes). `disk` keeps a store on disk, `disk_link` is what writers see of that. docs/design/0003-grid-store.md says
why, docs/formats/grid.md what is stored. Names are loaded when they are first used: who wants the errors only does not
load LMDB.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from shmjet.grid.errors import GridError, GridFullError
    from shmjet.grid.ilist import IList
    from shmjet.grid.imap import IMap
    from shmjet.grid.map_event import MapEvent
    from shmjet.grid.store import Grid

_PLACES = {
    "Grid": "shmjet.grid.store",
    "GridError": "shmjet.grid.errors",
    "GridFullError": "shmjet.grid.errors",
    "IList": "shmjet.grid.ilist",
    "IMap": "shmjet.grid.imap",
    "MapEvent": "shmjet.grid.map_event",
}

__all__ = ["Grid", "GridError", "GridFullError", "IList", "IMap", "MapEvent"]


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module 'shmjet.grid' has no attribute {name!r}")
    value = getattr(importlib.import_module(_PLACES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
