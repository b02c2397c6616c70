"""The output of a planned stage: vertices that emit its items, and how the items lie on their processors.

Stages that only say how items are to be spread (`merge`, `rebalance`, `partition_by`) have no vertex of their own: they
change the output, and the next edge does what they say. It must not know transforms.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any, Final

from shmjet.core.key_functions import RoutableKey
from shmjet.core.keys import PartitionCount
from shmjet.core.timed import TimedKey
from shmjet.pipeline.planner.keys import KeyIdentity, identity_of
from shmjet.pipeline.planner.model import GRID_PARTITIONS, Partitioning, PhysicalPlan, PlannedEdge, PlannedVertex

KEEPING_ORDER = "set_local_parallelism(1) would keep it"

LATE = -1
"""In the place of a side output: that of late items."""


class Timed(Enum):
    """How items have their event time, where they are not batches."""

    PAIRS = "pairs"


TIMED: Final = Timed.PAIRS
"""Items are pairs `(timestamp, item)`."""

Time = Timed | str | None
"""How items have their event time: as pairs, in a column of that name, or not at all."""


@dataclass(frozen=True)
class Spread:
    """How the next edge is to spread items.

    Args:
        stage: which stage says so.
        key_fn: by the key, when `keyed`.
        keyed: by key; else evenly over all processors.
        count: number of partitions by key.
    """

    stage: str
    key_fn: Callable[[Any], Any] | None = None
    keyed: bool = False
    count: int = GRID_PARTITIONS


@dataclass(frozen=True)
class Feed:
    """One vertex that emits items of a stage.

    Args:
        vertex: which.
        partitioning: how its items lie on its processors, if that is known.
        columnar: its items are batches; None: some may be.
        spread: what the next edge has to do.
        time: how its items have their event time; key functions of all others are of the bare item.
        side: which side output it is (see `PlannedEdge`); None: what comes out in the first place.
    """

    vertex: PlannedVertex
    partitioning: Partitioning | None = None
    columnar: bool | None = False
    spread: Spread | None = None
    time: Time = None
    side: int | None = None


@dataclass(frozen=True)
class Output:
    """Where the items of a stage come from.

    Args:
        feeds: one, or several behind a merge.
    """

    feeds: tuple[Feed, ...]

    def spreading(self, spread: Spread) -> Output:
        """Return the same items, to be spread by the next edge."""
        return Output(tuple(replace(feed, spread=spread) for feed in self.feeds))

    @property
    def columnar(self) -> bool:
        """Whether all of it is batches, for certain."""
        return all(feed.columnar for feed in self.feeds)

    @property
    def has_batches(self) -> bool:
        """Whether some of it may be batches."""
        return any(feed.columnar is not False for feed in self.feeds)

    @property
    def timed(self) -> bool:
        """Whether all of it is pairs of timestamp and item."""
        return all(feed.time is TIMED for feed in self.feeds)

    @property
    def times(self) -> frozenset[Time]:
        """How the items have their event time: several ways, perhaps, behind a merge."""
        return frozenset(feed.time for feed in self.feeds)

    def lies_as(self, wanted: Partitioning) -> bool:
        """Tell whether all items lie as wanted already, all on as many processors."""
        return (
            all(feed.partitioning == wanted and feed.spread is None for feed in self.feeds)
            and len({feed.vertex.processors for feed in self.feeds}) == 1
        )

    def is_spread_by(self, wanted: Partitioning) -> bool:
        """Tell whether a stage has asked for what is wanted, so that the next edge has to move everything anyway."""
        return all(
            feed.spread is not None and feed.spread.keyed and identity_of(feed.spread.key_fn) == wanted.key
            for feed in self.feeds
        )


class Wires:
    """Makes the edges of a plan.

    Args:
        plan: gets the edges.
    """

    def __init__(self, plan: PhysicalPlan) -> None:
        self._plan = plan

    def _edge(self, feed: Feed, to: PlannedVertex, ordinal: int, **properties: Any) -> PlannedEdge:
        if feed.time is TIMED and properties.get("routing") == "partitioned":
            properties["key_fn"] = TimedKey(properties["key_fn"])
        edge = PlannedEdge(feed.vertex, to, ordinal, side=feed.side, **properties)
        self._plan.edges.append(edge)
        return edge

    def any_way(
        self, output: Output, to: PlannedVertex, ordinal: int = 0, *, in_order: bool = False, **properties: Any
    ) -> Partitioning | None:
        """Join an output to a vertex that does not mind who gets what; return how the items then lie, if known.

        Args:
            in_order: what one processor emits stays together, where both vertices have equally many.
        """
        found: set[Partitioning | None] = set()
        for number, feed in enumerate(output.feeds):
            spread = feed.spread
            if spread is None and in_order and feed.vertex.processors == to.processors:
                self._edge(feed, to, ordinal + number, routing="isolated", why=["each in its order"], **properties)
                found.add(feed.partitioning)
            elif spread is None:
                why = []
                if feed.vertex.processors == 1 != to.processors and not properties.get("absorbed"):
                    why.append(f"dealt to several processors, whose results come in any order: {KEEPING_ORDER}")
                self._edge(feed, to, ordinal + number, why=why, **properties)
                found.add(None)
            elif not spread.keyed:
                why = [f"{spread.stage}: items are dealt to all processors in turn"]
                self._edge(feed, to, ordinal + number, distributed=True, why=why, **properties)
                found.add(None)
            else:
                self._edge(
                    feed,
                    to,
                    ordinal + number,
                    routing="partitioned",
                    key_fn=spread.key_fn,
                    partitioner=partitioner_for(spread.count),
                    distributed=True,
                    why=[f"{spread.stage}: {_counted(spread.count)} by {described(spread.key_fn)}"],
                    **properties,
                )
                found.add(Partitioning(identity_of(spread.key_fn), spread.count))
        return found.pop() if len(found) == 1 else None

    def in_place(self, output: Output, to: PlannedVertex, why: str, ordinal: int = 0, **properties: Any) -> None:
        """Join processor `i` with processor `i`, so that nothing moves."""
        for number, feed in enumerate(output.feeds):
            self._edge(feed, to, ordinal + number, routing="isolated", why=[why], **properties)

    def by_key(
        self,
        output: Output,
        to: PlannedVertex,
        key_fn: Callable[[Any], Any] | None,
        wanted: Partitioning,
        ordinal: int = 0,
        **properties: Any,
    ) -> None:
        """Join an output to a vertex that wants items of equal keys together: in place where they lie so already."""
        if output.lies_as(wanted) and output.feeds[0].vertex.processors == to.processors:
            why = f"the items are partitioned by {described(key_fn)} already: nothing moves"
            self.in_place(output, to, why, ordinal, **properties)
            return
        for number, feed in enumerate(output.feeds):
            self._edge(
                feed,
                to,
                ordinal + number,
                routing="partitioned",
                key_fn=key_fn,
                partitioner=partitioner_for(wanted.count),
                distributed=True,
                why=[f"items of equal {described(key_fn)} meet on one processor{_in_counted(wanted.count)}"],
                **properties,
            )

    def to_one(self, output: Output, to: PlannedVertex, why: str, ordinal: int = 0, **properties: Any) -> None:
        """Join an output to the one processor of a vertex."""
        for number, feed in enumerate(output.feeds):
            self._edge(feed, to, ordinal + number, routing="all_to_one", distributed=True, why=[why], **properties)

    def to_all(self, output: Output, to: PlannedVertex, why: str, ordinal: int, **properties: Any) -> None:
        """Join an output to all processors of a vertex, each of which gets every item."""
        for number, feed in enumerate(output.feeds):
            self._edge(feed, to, ordinal + number, routing="broadcast", distributed=True, why=[why], **properties)


def partitioner_for(count: int) -> PartitionCount:
    """Return what makes an edge have so many partitions, also where the instance has another number."""
    return PartitionCount(count)


def partitioned_by(key_fn: Callable[[Any], Any] | None, count: int = GRID_PARTITIONS) -> Partitioning:
    """Return how items lie behind an edge that is partitioned by a key."""
    key: KeyIdentity = identity_of(key_fn)
    return Partitioning(key, count)


def described(key_fn: Callable[[Any], Any] | None) -> str:
    """Return how a key is called in a reason."""
    if isinstance(key_fn, RoutableKey):
        return described(key_fn.key_fn)
    match identity_of(key_fn):
        case ("item",):
            return "item"
        case ("at", *places):
            return f"item[{', '.join(map(repr, places))}]"
        case ("attribute", *names):
            return ", ".join(f"item.{name}" for name in names)
    name = getattr(key_fn, "__name__", None) or type(key_fn).__name__
    return "key" if name == "<lambda>" else f"{name}(item)"


def _counted(count: int) -> str:
    return f"{count} partition{'' if count == 1 else 's'}"


def _in_counted(count: int) -> str:
    return "" if count == GRID_PARTITIONS else f", in {_counted(count)}"
