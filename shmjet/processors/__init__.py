"""The library of ready-made processors: transformations, aggregations, joins, sources and sinks.

Floor 7. This floor is for users: it builds on the processor contract of `shmjet.core` and on nothing that runs or
ships processors. It must not know workers, rings or members; what it needs of the grid it gets through the context.

`map` and `filter` are also exported as `map_` and `filter_`. A star import leaves the names of builtins alone.
"""

from __future__ import annotations

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
