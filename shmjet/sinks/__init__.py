"""The sinks of a pipeline: files, maps, lists, sockets, Hazelcast, the log, the client, a test's expectations.

Each function returns a `SinkDef` for `stage.write_to(...)`; the processors do the work. Must not know stages or the
planner. `list` and `map` are also exported as `list_` and `map_`; a star import leaves builtins alone.
"""

from __future__ import annotations

from shmjet.sinks.checks import (
    assert_any_order,
    assert_collected,
    assert_collected_eventually,
    assert_contains,
    assert_ordered,
)
from shmjet.sinks.files import csv, files, json
from shmjet.sinks.hazelcast import remote_list, remote_map
from shmjet.sinks.observables import observable
from shmjet.sinks.plain import list_, logger, map_, noop, socket
from shmjet.sinks.results import Results, collect
from shmjet.sinks.user_functions import SinkBuilder, builder

list = list_  # noqa: A001
map = map_  # noqa: A001

__all__ = [
    "Results",
    "SinkBuilder",
    "assert_any_order",
    "assert_collected",
    "assert_collected_eventually",
    "assert_contains",
    "assert_ordered",
    "builder",
    "collect",
    "csv",
    "files",
    "json",
    "list_",
    "logger",
    "map_",
    "noop",
    "observable",
    "remote_list",
    "remote_map",
    "socket",
]
