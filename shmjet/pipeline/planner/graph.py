"""Analysis of the logical graph before vertices are made: checks, order, and chains to fuse.

Each node comes after its inputs, so one pass in either direction is enough. It must not know vertices and edges.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

from shmjet.data.errors import PlanError
from shmjet.pipeline import transforms as t
from shmjet.pipeline.endless import check_endless
from shmjet.pipeline.planner.event_time import EventTimes

STATELESS = (t.Map, t.Filter, t.FlatMap, t.Peek)
"""Transforms that can be fused."""

PASSING = (t.Filter, t.Peek)
"""Those of them that hand on the items that they were given."""

_KEEPS_ORDER = (
    *STATELESS,
    *t.PROJECTIONS,
    t.ToBatches,
    t.ToRows,
    t.MapBatches,
    t.UsingService,
    t.RollingAggregate,
    t.MapStateful,
)
_SORTS = (t.Sort, t.SortColumns, t.Top)
_ENDS = (t.Sink, t.SendToTable)

_KEYED_COLUMNS = (t.GroupColumns, t.JoinColumns, t.StreamJoinColumns, t.DistinctColumns)


class LogicalGraph:
    """The nodes of a pipeline with what follows from them.

    Args:
        nodes: of the pipeline.

    Raises:
        PlanError: there are none, one has nothing attached to it, one needs the end of an endless input, or a table is
            unknown; and when the order is asked
            for, a table feeds itself.
    """

    def __init__(self, nodes: Sequence[t.Node]) -> None:
        self.endless = check_endless(nodes)
        """The ids of the nodes whose items never end."""
        self.nodes = tuple(nodes)
        self.consumers: dict[int, list[t.Node]] = {node.id: [] for node in nodes}
        for node in nodes:
            for upstream in node.upstream:
                self.consumers[upstream].append(node)
        self.times = EventTimes(self.nodes, self.consumers)
        """Which nodes have to do with event time."""
        self._check_ends()
        self.senders: dict[str, list[t.Node]] = {}
        """By table, the nodes that send to it."""
        for node in nodes:
            if isinstance(node.transform, t.SendToTable):
                self.senders.setdefault(node.transform.table, []).append(node)
        self._check_tables()

    def _check_ends(self) -> None:
        if not self.nodes:
            raise PlanError("the pipeline is empty; begin with read_from(source)")
        loose = [
            node.name for node in self.nodes if not self.results_of(node) and not isinstance(node.transform, _ENDS)
        ]
        if loose:
            raise PlanError(
                f"These transforms have nothing attached to them: {', '.join(loose)}; write what they give to a sink, "
                "or take them out"
            )

    def _check_tables(self) -> None:
        joined = {node.transform.table for node in self.nodes if isinstance(node.transform, t.JoinTable)}
        for node in self.nodes:
            if isinstance(node.transform, t.JoinTable) and node.transform.table not in self.senders:
                known = ", ".join(map(repr, self.senders)) or "none"
                raise PlanError(
                    f"{node.name}: unknown table {node.transform.table!r}: nothing is sent to it and it has no side "
                    f"inputs; tables: {known}"
                )
        for table, senders in self.senders.items():
            if table not in joined:
                raise PlanError(
                    f"These transforms have nothing attached to them: {', '.join(s.name for s in senders)}; no stage "
                    f"says join_table() with table {table!r}"
                )

    def results_of(self, node: t.Node) -> list[t.Node]:
        """Return the nodes that a node's results feed, without those of its side outputs."""
        return [each for each in self.consumers[node.id] if not isinstance(each.transform, t.SIDES)]

    def feeders(self, node: t.Node) -> tuple[int, ...]:
        """Return the ids of the nodes that must be planned before a node: what feeds it, tables included."""
        if isinstance(node.transform, t.JoinTable):
            return (*node.upstream, *(s.upstream[0] for s in self.senders[node.transform.table]))
        return node.upstream

    @cached_property
    def order(self) -> list[t.Node]:
        """The nodes, each after all that feed it.

        Raises:
            PlanError: a table is fed from a stage that is joined with it.
        """
        done: dict[int, bool] = {}
        order: list[t.Node] = []
        for start in self.nodes:
            stack: list[tuple[t.Node, bool]] = [(start, False)]
            while stack:
                node, expanded = stack.pop()
                if expanded:
                    done[node.id] = True
                    order.append(node)
                elif done.get(node.id) is None:
                    done[node.id] = False
                    stack.append((node, True))
                    for feeder in reversed(self.feeders(node)):
                        if done.get(feeder) is False:
                            raise self._cyclic(node)
                        stack.append((self.nodes[feeder], False))
        return order

    def _cyclic(self, node: t.Node) -> PlanError:
        tables = {other.transform.table for other in self.nodes if isinstance(other.transform, t.JoinTable)}
        return PlanError(
            f"{node.name}: on bounded data a table is complete before it is joined, so what is joined with it cannot "
            f"be sent to it; tables that are joined: {', '.join(sorted(map(repr, tables)))}"
        )

    @cached_property
    def in_order(self) -> frozenset[int]:
        """The ids of the nodes whose items come from one processor, in an order that a sort has made."""
        found: set[int] = set()
        for node in self.order:
            if isinstance(node.transform, _SORTS) or (
                isinstance(node.transform, _KEEPS_ORDER)
                and node.upstream[0] in found
                and node.parallelism in (-1, 1)
                and not getattr(node.transform, "keyed", False)
                and getattr(node.transform, "preserve_order", True)
            ):
                found.add(node.id)
        return frozenset(found)

    def parallelism(self, node: t.Node) -> int:
        """Return the number of processors of a stage: the user's, else 1 where it keeps an order, else -1."""
        if node.parallelism == -1 and node.upstream and node.upstream[0] in self.in_order:
            if node.id in self.in_order and not isinstance(node.transform, _SORTS):
                return 1
            if isinstance(node.transform, t.Sink) and node.transform.sink.parallelism == -1:
                return 1
        return node.parallelism

    @cached_property
    def chains(self) -> dict[int, list[t.Node]]:
        """The chains of nodes that become one processor, of items or of batches, by the id of the first node."""
        chains: dict[int, list[t.Node]] = {}
        inside: dict[int, list[t.Node]] = {}
        for node in self.order:
            kind = next((each for each in (STATELESS, t.PROJECTIONS) if isinstance(node.transform, each)), None)
            if kind is None:
                continue
            before = self.nodes[node.upstream[0]]
            chain = inside.get(before.id)
            if (
                chain is not None
                and isinstance(before.transform, kind)
                and len(self.results_of(before)) == 1
                and self.parallelism(before) == self.parallelism(node)
            ):
                chain.append(node)
            else:
                chain = chains[node.id] = [node]
            inside[node.id] = chain
        return chains

    @cached_property
    def placed(self) -> frozenset[int]:
        """The ids of the nodes at which it matters that items stay on their processor: a stage by key follows."""
        found: set[int] = set()
        for node in reversed(self.order):
            for consumer in self.consumers[node.id]:
                keyed = getattr(consumer.transform, "keyed", False) or isinstance(
                    consumer.transform, t.Join | t.SendToTable | t.JoinTable | t.Distinct | t.PartitionBy
                )
                if isinstance(consumer.transform, t.Aggregate | t.Window):
                    keyed = consumer.transform.key_fns is not None
                if isinstance(consumer.transform, t.WindowColumns):
                    keyed = bool(consumer.transform.keys)
                keyed = keyed or isinstance(consumer.transform, _KEYED_COLUMNS)
                if keyed or (isinstance(consumer.transform, (*PASSING, *t.PROJECTIONS)) and consumer.id in found):
                    found.add(node.id)
        return frozenset(found)
