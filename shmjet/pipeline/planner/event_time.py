"""Event time in the plan: where items carry it, how often watermarks are sent, and the policy of a source. Pure.

Must not know vertices. After `preferredWatermarkStride` of Jet's transforms, for each source by itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from math import gcd
from typing import Any

from shmjet.core.column_key import ColumnKey
from shmjet.core.event_time import EventTimePolicy
from shmjet.core.windows import SessionWindow
from shmjet.pipeline import transforms as t
from shmjet.pipeline.definitions import SourceDef, StreamSourceDef

LONGEST_STRIDE = 1_000
"""Milliseconds of event time between two watermarks at most, where nothing behind the source counts in time."""


_BY_TIME = (t.WithTime, t.StreamJoin, t.StreamJoinColumns)


def stride_of(transform: t.Transform) -> int:
    """Return of which number of milliseconds watermarks have to be multiples, for a stage; 0: it does not matter."""
    if isinstance(transform, t.WINDOWS):
        definition = transform.definition
        return definition.gap if isinstance(definition, SessionWindow) else definition.policy.slide
    if isinstance(transform, _BY_TIME):
        return 0
    return 1 if isinstance(transform, t.Custom) or uses_time(transform) else 0


def uses_time(transform: t.Transform) -> bool:
    """Tell whether what a stage does depends on the event time of its items."""
    return isinstance(transform, (*t.WINDOWS, *_BY_TIME)) or getattr(transform, "ttl", None) is not None


class EventTimes:
    """Which stages of a pipeline have to do with event time.

    Args:
        nodes: of the pipeline, each after the nodes that feed it.
        consumers: by node id, what it feeds.
    """

    def __init__(self, nodes: Sequence[t.Node], consumers: dict[int, list[t.Node]]) -> None:
        self._nodes = nodes
        self._consumers = consumers

    @cached_property
    def _carried(self) -> frozenset[int]:
        found: set[int] = set()
        for node in reversed(self._nodes):
            for consumer in self._consumers[node.id]:
                transform = consumer.transform
                begins = isinstance(transform, (t.AddTimestamps, *t.WINDOWS))
                if uses_time(transform) or (not begins and consumer.id in found and self._is_stream(consumer, node)):
                    found.add(node.id)
        return frozenset(found)

    @staticmethod
    def _is_stream(consumer: t.Node, node: t.Node) -> bool:
        """Tell whether what a node gives a consumer goes on behind it, and is not only looked up there."""
        looks_up = isinstance(consumer.transform, t.HashJoin | t.Join | t.JoinColumns)
        return not looks_up or isinstance(consumer.transform, t.StreamJoin) or consumer.upstream[0] == node.id

    def carries(self, node: t.Node) -> bool:
        """Tell whether what a node emits has to have its time, for a stage that is behind it."""
        return node.id in self._carried

    def takes(self, node: t.Node) -> bool:
        """Tell whether a node needs the time of the items that come in."""
        return uses_time(node.transform) or (
            self.carries(node) and not isinstance(node.transform, (t.AddTimestamps, *t.WINDOWS))
        )

    def stride(self, node: t.Node) -> int:
        """Return of which number of milliseconds the watermarks of a node that makes them are multiples."""
        found, most, seen, waiting = 0, LONGEST_STRIDE, {node.id}, [node.id]
        while waiting:
            for consumer in self._consumers[waiting.pop()]:
                if consumer.id not in seen and not isinstance(consumer.transform, t.AddTimestamps):
                    seen.add(consumer.id)
                    waiting.append(consumer.id)
                    transform = consumer.transform
                    found = gcd(found, stride_of(transform))
                    if isinstance(transform, t.StreamJoin | t.StreamJoinColumns):
                        most = min(most, max(1, transform.within))  # later than that would hold rows for twice as long
        if not 0 < found <= LONGEST_STRIDE:
            found = gcd(found, LONGEST_STRIDE)
        return next(stride for stride in range(min(found, most), 0, -1) if found % stride == 0)

    @cached_property
    def _is_aligned(self) -> bool:
        """Whether the sources have to know how far the others are, as one of them has a `max_skew`."""
        found = [node.transform.source for node in self._nodes if isinstance(node.transform, t.Source)]
        return any(isinstance(source, StreamSourceDef) and source.max_skew is not None for source in found)

    def policy(self, node: t.Node, said: EventTimePolicy, source: SourceDef[Any] | None = None) -> EventTimePolicy:
        """Return the policy of a node that makes timestamps, complete.

        Args:
            node: which.
            said: what the user has said at the stage.
            source: it is that of a source, whose settings count.
        """
        policy = replace(said, stride=self.stride(node), timed=self.carries(node))
        if isinstance(source, StreamSourceDef):
            policy = replace(
                policy,
                idle_timeout=source.partition_idle_timeout,
                advance_when_idle=source.advance_when_idle,
                max_skew=source.max_skew,
                is_aligned=self._is_aligned,
            )
        return policy


def of_rows(policy: EventTimePolicy) -> EventTimePolicy:
    """Return a policy for items that come one by one, if it names a column: that of each row."""
    fn = policy.timestamp_fn
    return replace(policy, timestamp_fn=RowTime(fn)) if isinstance(fn, ColumnKey) else policy


class RowTime:
    """The timestamp of a row, by the name of its column."""

    def __init__(self, key: ColumnKey) -> None:
        self.key = key

    def __call__(self, row: Any) -> Any:
        """Return it."""
        return self.key(row)

    @property
    def __name__(self) -> str:
        """What drawings and messages call it."""
        return self.key.names[0]
