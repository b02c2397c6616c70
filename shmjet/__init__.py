"""shmjet: Hazelcast Jet's engine in Python, on every core of one big host.

A DAG of cooperative processors joined by bounded queues, worker processes pinned to cores, items moving through
shared-memory rings. Everything public is importable from here; names are loaded when they are first used, so that
importing the package costs nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from shmjet.aggregate_ops import AggregateOperation
    from shmjet.cluster.client.embedded import new_instance
    from shmjet.cluster.client.execution import Execution
    from shmjet.cluster.client.instance import JetInstance
    from shmjet.cluster.client.job import Job
    from shmjet.cluster.client.members import Cluster, Member
    from shmjet.cluster.client.observable import Observable
    from shmjet.cluster.client.remote import ClientConfig, new_client
    from shmjet.cluster.client.snapshot import Snapshot
    from shmjet.core import (
        DAG,
        AbstractProcessor,
        AuthenticationError,
        BatchError,
        BroadcastKey,
        ConfigError,
        DagError,
        Edge,
        EdgeConfig,
        Expression,
        FlatMapper,
        Inbox,
        JetConfig,
        JobAlreadyExistsError,
        JobConfig,
        JobFailedError,
        JobNotFoundError,
        JobStateError,
        JobStatus,
        MapConfig,
        MemberLostError,
        Outbox,
        PartitionError,
        PlanError,
        ProcessingGuarantee,
        Processor,
        ProcessorContext,
        ProcessorError,
        ProcessorMetaSupplier,
        ProcessorSupplier,
        RestartableError,
        Routing,
        ShmjetError,
        Traverser,
        Vertex,
        Watermark,
        WorkerLostError,
        between,
        column,
        columns,
        from_,
        literal,
        traverse,
        when,
    )
    from shmjet.core.windows import session, sliding, tumbling
    from shmjet.data.batch import Batch
    from shmjet.data.failed_item import FailedItem
    from shmjet.data.nullable import Nullable
    from shmjet.data.text import Text
    from shmjet.data.window_results import KeyedWindowResult, WindowResult
    from shmjet.execution.metrics import Metrics
    from shmjet.grid import IList, IMap, MapEvent
    from shmjet.pipeline import (
        BatchStage,
        JoinClause,
        KeyedBatchStage,
        KeyedStageWithWindow,
        KeyedStreamStage,
        Pipeline,
        ServiceFactory,
        StageWithWindow,
        StreamSourceStage,
        StreamStage,
        Table,
        join_map_entries,
        on_keys,
    )
    from shmjet.pool import PoolExecutor

_PLACES = {
    "AggregateOperation": "shmjet.aggregate_ops",
    "ClientConfig": "shmjet.cluster.client.remote",
    "new_client": "shmjet.cluster.client.remote",
    "Cluster": "shmjet.cluster.client.members",
    "JetInstance": "shmjet.cluster.client.instance",
    "Member": "shmjet.cluster.client.members",
    "new_instance": "shmjet.cluster.client.embedded",
    "Execution": "shmjet.cluster.client.execution",
    "Job": "shmjet.cluster.client.job",
    "Observable": "shmjet.cluster.client.observable",
    "Snapshot": "shmjet.cluster.client.snapshot",
    "Metrics": "shmjet.execution.metrics",
    "IList": "shmjet.grid",
    "IMap": "shmjet.grid",
    "MapEvent": "shmjet.grid",
    "BatchStage": "shmjet.pipeline",
    "JoinClause": "shmjet.pipeline",
    "KeyedBatchStage": "shmjet.pipeline",
    "KeyedStageWithWindow": "shmjet.pipeline",
    "KeyedStreamStage": "shmjet.pipeline",
    "StageWithWindow": "shmjet.pipeline",
    "StreamSourceStage": "shmjet.pipeline",
    "StreamStage": "shmjet.pipeline",
    "Pipeline": "shmjet.pipeline",
    "ServiceFactory": "shmjet.pipeline",
    "Table": "shmjet.pipeline",
    "join_map_entries": "shmjet.pipeline",
    "on_keys": "shmjet.pipeline",
    "PoolExecutor": "shmjet.pool",
    "Batch": "shmjet.data.batch",
    "Nullable": "shmjet.data.nullable",
    "Text": "shmjet.data.text",
    "FailedItem": "shmjet.data.failed_item",
    "KeyedWindowResult": "shmjet.data.window_results",
    "WindowResult": "shmjet.data.window_results",
    "session": "shmjet.core.windows",
    "sliding": "shmjet.core.windows",
    "tumbling": "shmjet.core.windows",
}
_MODULES = ("aggregate_ops", "columns", "console", "pipeline", "processors", "sinks", "sources", "testing")
_WITH_EXTRAS = ("spark",)
"""Modules that need a package of an extra; `dir` leaves them out, so that looking at all names needs none."""


__version__: str

__all__ = [
    "DAG",
    "AbstractProcessor",
    "AggregateOperation",
    "AuthenticationError",
    "Batch",
    "BatchError",
    "BatchStage",
    "BroadcastKey",
    "ClientConfig",
    "Cluster",
    "ConfigError",
    "DagError",
    "Edge",
    "EdgeConfig",
    "Execution",
    "Expression",
    "FailedItem",
    "FlatMapper",
    "IList",
    "IMap",
    "Inbox",
    "JetConfig",
    "JetInstance",
    "Job",
    "JobAlreadyExistsError",
    "JobConfig",
    "JobFailedError",
    "JobNotFoundError",
    "JobStateError",
    "JobStatus",
    "JoinClause",
    "KeyedBatchStage",
    "KeyedStageWithWindow",
    "KeyedStreamStage",
    "KeyedWindowResult",
    "MapConfig",
    "MapEvent",
    "Member",
    "MemberLostError",
    "Metrics",
    "Nullable",
    "Observable",
    "Outbox",
    "PartitionError",
    "Pipeline",
    "PlanError",
    "PoolExecutor",
    "ProcessingGuarantee",
    "Processor",
    "ProcessorContext",
    "ProcessorError",
    "ProcessorMetaSupplier",
    "ProcessorSupplier",
    "RestartableError",
    "Routing",
    "ServiceFactory",
    "ShmjetError",
    "Snapshot",
    "StageWithWindow",
    "StreamSourceStage",
    "StreamStage",
    "Table",
    "Text",
    "Traverser",
    "Vertex",
    "Watermark",
    "WindowResult",
    "WorkerLostError",
    "aggregate_ops",
    "between",
    "column",
    "columns",
    "from_",
    "join_map_entries",
    "literal",
    "new_client",
    "new_instance",
    "on_keys",
    "processors",
    "session",
    "sinks",
    "sliding",
    "sources",
    "traverse",
    "tumbling",
    "when",
]


def __getattr__(name: str) -> Any:
    if name in _MODULES or name in _WITH_EXTRAS:
        return importlib.import_module(f"shmjet.{name}")
    if name == "__version__":
        value: Any = importlib.import_module("shmjet._version").version()
        globals()[name] = value
        return value
    if name not in __all__:
        raise AttributeError(f"module 'shmjet' has no attribute {name!r}")
    value = getattr(importlib.import_module(_PLACES.get(name, "shmjet.core")), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__, *_MODULES])
