"""The sources of a pipeline: given items, files of many formats, maps, lists, sockets, functions.

Each function returns a `SourceDef` for `Pipeline.read_from(...)`; the processors do the work. Must not know stages or
the planner. `list` and `map` are also exported as `list_` and `map_`; a star import leaves builtins
alone.
"""

from __future__ import annotations

from shmjet.sources.files import csv, files, json
from shmjet.sources.given import items
from shmjet.sources.plain import list_, map_, socket
from shmjet.sources.spark import spark
from shmjet.sources.user_functions import SourceBuilder, builder

list = list_  # noqa: A001
map = map_  # noqa: A001

__all__ = [
    "SourceBuilder",
    "builder",
    "csv",
    "files",
    "items",
    "json",
    "list_",
    "map_",
    "socket",
    "spark",
]
