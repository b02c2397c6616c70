"""The model of a computation: DAG, processor contract, inbox and outbox, traversers, keys, watermarks, errors.

Floor 3. It describes and holds, and it is pure: no process, thread, socket, clock or file is known here. What it needs
of a higher floor is a `Protocol` (`DataGrid`) that the higher floor fulfils. `JetConfig` is loaded when it is first
used: clients need it, members and workers do not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from shmjet.core.abstract_processor import AbstractProcessor, FlatMapper
from shmjet.core.broadcast_key import BroadcastKey
from shmjet.core.column_key import ColumnKey, column, columns
from shmjet.core.context import DataGrid, MetaSupplierContext, ProcessorContext, SupplierContext
from shmjet.core.dag import DAG
from shmjet.core.edge import Edge, EdgeConfig, Routing, between, from_
from shmjet.core.expressions import Expression, literal, when
from shmjet.core.inbox import Inbox
from shmjet.core.job import JobConfig, JobStatus, ProcessingGuarantee
from shmjet.core.keys import default_partitioner, partition_id
from shmjet.core.map_config import MapConfig
from shmjet.core.outbox import Outbox
from shmjet.core.processor import (
    Processor,
    ProcessorMetaSupplier,
    ProcessorSupplier,
    make_processors,
    supplier_for_all,
)
from shmjet.core.traverser import Traverser, traverse
from shmjet.core.vertex import Vertex
from shmjet.core.watermark import WatermarkCoalescer
from shmjet.data.errors import (
    AuthenticationError,
    BatchError,
    ConfigError,
    DagError,
    JobAlreadyExistsError,
    JobFailedError,
    JobNotFoundError,
    JobStateError,
    MemberLostError,
    OutboxError,
    PartitionError,
    PlanError,
    ProcessorError,
    RestartableError,
    ShmjetError,
    WatermarkError,
    WorkerLostError,
)
from shmjet.data.marks import IDLE, Watermark

if TYPE_CHECKING:
    from shmjet.core.config import JetConfig

__all__ = [
    "DAG",
    "IDLE",
    "AbstractProcessor",
    "AuthenticationError",
    "BatchError",
    "BroadcastKey",
    "ColumnKey",
    "ConfigError",
    "DagError",
    "DataGrid",
    "Edge",
    "EdgeConfig",
    "Expression",
    "FlatMapper",
    "Inbox",
    "JetConfig",
    "JobAlreadyExistsError",
    "JobConfig",
    "JobFailedError",
    "JobNotFoundError",
    "JobStateError",
    "JobStatus",
    "MapConfig",
    "MemberLostError",
    "MetaSupplierContext",
    "Outbox",
    "OutboxError",
    "PartitionError",
    "PlanError",
    "ProcessingGuarantee",
    "Processor",
    "ProcessorContext",
    "ProcessorError",
    "ProcessorMetaSupplier",
    "ProcessorSupplier",
    "RestartableError",
    "Routing",
    "ShmjetError",
    "SupplierContext",
    "Traverser",
    "Vertex",
    "Watermark",
    "WatermarkCoalescer",
    "WatermarkError",
    "WorkerLostError",
    "between",
    "column",
    "columns",
    "default_partitioner",
    "from_",
    "literal",
    "make_processors",
    "partition_id",
    "supplier_for_all",
    "traverse",
    "when",
]


def __getattr__(name: str) -> Any:
    if name != "JetConfig":
        raise AttributeError(f"module 'shmjet.core' has no attribute {name!r}")
    from shmjet.core.config import JetConfig

    globals()[name] = JetConfig
    return JetConfig
