"""The library of ready-made processors: transformations, aggregations, joins, sources and sinks.

Floor 7. This floor is for users: it builds on the processor contract of `shmjet.core` and on nothing that runs or
ships processors. It must not know workers, rings or members; what it needs of the grid it gets through the context.

`map` and `filter` are also exported as `map_` and `filter_`. A star import leaves the names of builtins alone. Names
are loaded when they are first used, so that a program starts with what it uses.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from shmjet.aggregate_ops import AggregateOperation, counting, summing
    from shmjet.core.event_time import EventTimePolicy
    from shmjet.processors.checks.logging_wrappers import logger, noop, peek_input, peek_output, peek_snapshot
    from shmjet.processors.columns.group_by import group_by
    from shmjet.processors.columns.hash_join_batches import hash_join_batches
    from shmjet.processors.columns.map_batches import map_batches
    from shmjet.processors.columns.sort_batches import sort_batches
    from shmjet.processors.files.file_sink import write_files
    from shmjet.processors.files.file_source import read_files
    from shmjet.processors.files.npy_sink import write_npy
    from shmjet.processors.files.npy_source import read_npy, read_npz
    from shmjet.processors.general.aggregate import accumulate, aggregate, combine
    from shmjet.processors.general.aggregate_by_key import accumulate_by_key, aggregate_by_key, combine_by_key
    from shmjet.processors.general.batches_and_rows import to_batches, to_rows
    from shmjet.processors.general.distinct import distinct
    from shmjet.processors.general.generate import generate, read_items
    from shmjet.processors.general.group_reduce import group_and_accumulate, group_and_collect
    from shmjet.processors.general.hash_join import hash_join
    from shmjet.processors.general.sockets import read_lines_socket, write_socket
    from shmjet.processors.general.sort import sort
    from shmjet.processors.general.stateful import flat_map_stateful, map_stateful
    from shmjet.processors.general.transform import filter_, flat_map, map_
    from shmjet.processors.grid.maps_and_lists import read_list, read_map, write_list, write_map
    from shmjet.processors.time.insert_watermarks import insert_watermarks
    from shmjet.processors.time.windows import (
        accumulate_by_frame,
        aggregate_to_session_window,
        aggregate_to_sliding_window,
        combine_to_sliding_window,
    )

    map = map_  # noqa: A001
    filter = filter_  # noqa: A001

_PLACES = {
    "shmjet.aggregate_ops": ("AggregateOperation", "counting", "summing"),
    "shmjet.core.event_time": ("EventTimePolicy",),
    "shmjet.processors.checks.logging_wrappers": ("logger", "noop", "peek_input", "peek_output", "peek_snapshot"),
    "shmjet.processors.columns.group_by": ("group_by",),
    "shmjet.processors.columns.hash_join_batches": ("hash_join_batches",),
    "shmjet.processors.columns.map_batches": ("map_batches",),
    "shmjet.processors.columns.sort_batches": ("sort_batches",),
    "shmjet.processors.files.file_sink": ("write_files",),
    "shmjet.processors.files.file_source": ("read_files",),
    "shmjet.processors.files.npy_sink": ("write_npy",),
    "shmjet.processors.files.npy_source": ("read_npy", "read_npz"),
    "shmjet.processors.general.aggregate": ("accumulate", "aggregate", "combine"),
    "shmjet.processors.general.aggregate_by_key": ("accumulate_by_key", "aggregate_by_key", "combine_by_key"),
    "shmjet.processors.general.batches_and_rows": ("to_batches", "to_rows"),
    "shmjet.processors.general.distinct": ("distinct",),
    "shmjet.processors.general.generate": ("generate", "read_items"),
    "shmjet.processors.general.group_reduce": ("group_and_accumulate", "group_and_collect"),
    "shmjet.processors.general.hash_join": ("hash_join",),
    "shmjet.processors.general.sockets": ("read_lines_socket", "write_socket"),
    "shmjet.processors.general.sort": ("sort",),
    "shmjet.processors.general.stateful": ("flat_map_stateful", "map_stateful"),
    "shmjet.processors.general.transform": ("filter_", "flat_map", "map_"),
    "shmjet.processors.grid.maps_and_lists": ("read_list", "read_map", "write_list", "write_map"),
    "shmjet.processors.time.insert_watermarks": ("insert_watermarks",),
    "shmjet.processors.time.windows": (
        "accumulate_by_frame",
        "aggregate_to_session_window",
        "aggregate_to_sliding_window",
        "combine_to_sliding_window",
    ),
}
_HOMES = {name: module for module, names in _PLACES.items() for name in names}

__all__ = [
    "AggregateOperation",
    "EventTimePolicy",
    "accumulate",
    "accumulate_by_frame",
    "accumulate_by_key",
    "aggregate",
    "aggregate_by_key",
    "aggregate_to_session_window",
    "aggregate_to_sliding_window",
    "combine",
    "combine_by_key",
    "combine_to_sliding_window",
    "counting",
    "distinct",
    "filter_",
    "flat_map",
    "flat_map_stateful",
    "generate",
    "group_and_accumulate",
    "group_and_collect",
    "group_by",
    "hash_join",
    "hash_join_batches",
    "insert_watermarks",
    "logger",
    "map_",
    "map_batches",
    "map_stateful",
    "noop",
    "peek_input",
    "peek_output",
    "peek_snapshot",
    "read_files",
    "read_items",
    "read_lines_socket",
    "read_list",
    "read_map",
    "read_npy",
    "read_npz",
    "sort",
    "sort_batches",
    "summing",
    "to_batches",
    "to_rows",
    "write_files",
    "write_list",
    "write_map",
    "write_npy",
    "write_socket",
]


def __getattr__(name: str) -> Any:
    own = {"map": "map_", "filter": "filter_"}.get(name, name)
    if own not in _HOMES:
        raise AttributeError(f"module 'shmjet.processors' has no attribute {name!r}")
    value = getattr(importlib.import_module(_HOMES[own]), own)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, "map", "filter"})
