"""The sources of a pipeline: given items, files of many formats, maps, lists, sockets, functions, Hazelcast.

Each function returns a `SourceDef` for `Pipeline.read_from(...)`; the processors do the work. Must not know stages or
the planner. `list` and `map` are also exported as `list_` and `map_`; a star import leaves builtins
alone.
"""

from __future__ import annotations

from shmjet.processors.streams.item_stream import SimpleEvent
from shmjet.sources.file_watcher import file_watcher
from shmjet.sources.files import csv, files, json
from shmjet.sources.frames import frames
from shmjet.sources.given import items
from shmjet.sources.hazelcast import remote_list, remote_map, remote_map_journal
from shmjet.sources.plain import list_, map_, map_journal, socket, socket_stream
from shmjet.sources.spark import spark
from shmjet.sources.streams import batch_stream, item_stream
from shmjet.sources.user_functions import SourceBuilder, builder

list = list_  # noqa: A001
map = map_  # noqa: A001

__all__ = [
    "SimpleEvent",
    "SourceBuilder",
    "batch_stream",
    "builder",
    "csv",
    "file_watcher",
    "files",
    "frames",
    "item_stream",
    "items",
    "json",
    "list_",
    "map_",
    "map_journal",
    "remote_list",
    "remote_map",
    "remote_map_journal",
    "socket",
    "socket_stream",
    "spark",
]
