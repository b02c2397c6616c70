"""Pipelines: the high-level API and its planner.

Floor 7, above the processors: it may import them, `shmjet.columns` and `shmjet.core`, and must not know processes,
rings or members. Nothing here imports numpy before columns are used.
"""

from __future__ import annotations

from shmjet.pipeline.builders import AggregateBuilder, HashJoinBuilder
from shmjet.pipeline.definitions import SinkDef, SourceDef, StreamSourceDef
from shmjet.pipeline.handles import SinkStage
from shmjet.pipeline.join_clauses import join_map_entries, on_keys
from shmjet.pipeline.keyed import KeyedBatchStage, KeyedStreamStage
from shmjet.pipeline.pipeline import Pipeline
from shmjet.pipeline.source_stage import StreamSourceStage
from shmjet.pipeline.stages import BatchStage
from shmjet.pipeline.stream_stage import StreamStage
from shmjet.pipeline.tables import Table
from shmjet.pipeline.transforms import JoinClause
from shmjet.pipeline.windows import KeyedStageWithWindow, StageWithWindow
from shmjet.processors.general.services import ServiceFactory

__all__ = [
    "AggregateBuilder",
    "BatchStage",
    "HashJoinBuilder",
    "JoinClause",
    "KeyedBatchStage",
    "KeyedStageWithWindow",
    "KeyedStreamStage",
    "Pipeline",
    "ServiceFactory",
    "SinkDef",
    "SinkStage",
    "SourceDef",
    "StageWithWindow",
    "StreamSourceDef",
    "StreamSourceStage",
    "StreamStage",
    "Table",
    "join_map_entries",
    "on_keys",
]
