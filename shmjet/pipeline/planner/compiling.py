"""From the logical graph to the physical plan: which vertices do a stage's work, and how items get there.

One method for each kind of stage; each takes the planned outputs of what feeds it, adds vertices and edges with their
reasons, and returns the output of the stage. The rules are Jet's planner's, with two of its own: what lies by the right
key already does not move, and batches of columns stay batches as long as stages can use them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from operator import itemgetter
from typing import Any

from shmjet.core.column_key import ColumnKey
from shmjet.pipeline import transforms as t
from shmjet.pipeline.checking import inputs_of
from shmjet.pipeline.planner.graph import PASSING, STATELESS, LogicalGraph
from shmjet.pipeline.planner.keys import identity_of
from shmjet.pipeline.planner.model import GRID_PARTITIONS, Partitioning, PhysicalPlan, PlannedVertex
from shmjet.pipeline.planner.ordering import Descending
from shmjet.pipeline.planner.outputs import Feed, Output, Spread, Wires, described, partitioned_by
from shmjet.processors import (
    accumulate,
    accumulate_by_key,
    aggregate,
    aggregate_by_key,
    combine,
    combine_by_key,
    distinct,
    hash_join,
    map_batches,
    map_stateful,
    sort,
    to_batches,
)
from shmjet.processors.async_services import using_service_async
from shmjet.processors.fusing import Kind, Step, fused
from shmjet.processors.keying import KeyFn
from shmjet.processors.peeking import Peeking
from shmjet.processors.service_use import using_service
from shmjet.processors.stateful import filter_stateful, flat_map_stateful, rolling_aggregate
from shmjet.processors.table_joining import join_table

_KINDS: dict[type[t.Transform], Kind] = {t.Map: "map", t.Filter: "filter", t.FlatMap: "flat_map", t.Peek: "peek"}
FIRST = itemgetter(0)


class Compiler:
    """Makes the physical plan of a logical graph.

    Args:
        graph: the pipeline's.
        counts: partition counts by node id, of intermediate streams and of joins; those that are missing have the
            grid's.
    """

    def __init__(self, graph: LogicalGraph, counts: Mapping[int, int]) -> None:
        self._graph = graph
        self._counts = counts
        self.plan = PhysicalPlan()
        self._wires = Wires(self.plan)
        self._outputs: dict[int, Output] = {}
        self._names: set[str] = set()

    def compile(self) -> PhysicalPlan:
        """Return the plan; call it once."""
        for node in self._graph.order:
            if isinstance(node.transform, STATELESS):
                chain = self._graph.chains.get(node.id)
                if chain is not None:
                    self._outputs[chain[-1].id] = self._chain(chain)
                continue
            method: Callable[[t.Node, Any], Output | None] = getattr(self, f"_{_method(node.transform)}")
            output = method(node, node.transform)
            if output is not None:
                self._outputs[node.id] = output
        return self.plan

    # -- vertices -----------------------------------------------------------------------------------------------

    def _vertex(self, name: str, supplier: Any, parallelism: int, node: t.Node, *why: str) -> PlannedVertex:
        found, number = name, 1
        while found in self._names:
            number += 1
            found = f"{name}-{number}"
        self._names.add(found)
        vertex = PlannedVertex(found, supplier, parallelism, (node.name,), [reason for reason in why if reason])
        self.plan.vertices.append(vertex)
        return vertex

    def _inputs(self, node: t.Node) -> list[Output]:
        return [self._outputs[upstream] for upstream in node.upstream]

    def _only_input(self, node: t.Node) -> Output:
        return self._outputs[node.upstream[0]]

    def _single(self, output: Output, node: t.Node) -> Output:
        """Return an output of one vertex, for stages whose inputs are told apart by ordinals."""
        if len(output.feeds) == 1:
            return output
        passing = self._vertex(f"{node.name}-merge", fused([]), -1, node, "joins what was merged, as one input")
        columnar = output.columnar
        if not columnar:
            output = self._rows(output, node)
        return Output((Feed(passing, self._passed(output, passing, node), columnar),))

    def _passed(self, output: Output, vertex: PlannedVertex, node: t.Node) -> Partitioning | None:
        """Join an output to a vertex that hands its items on to a stage; they stay where they lie if that pays.

        Returns:
            how they lie then.
        """
        if any(upstream in self._graph.placed for upstream in node.upstream) and self._lies_alike(output, vertex):
            self._wires.in_place(output, vertex, f"items stay where they lie by key, which {node.name} makes use of")
            return output.feeds[0].partitioning
        return self._wires.any_way(output, vertex)

    def _rows(self, output: Output, node: t.Node) -> Output:
        """Return an output of items: batches become dicts, row by row."""
        if not any(feed.columnar for feed in output.feeds):
            return output
        feeds = []
        for feed in output.feeds:
            if feed.columnar:
                why = f"{node.name} works on items: rows of batches become dicts"
                vertex = self._vertex(f"{node.name}-rows", fused([_ROWS]), feed.vertex.parallelism, node, why)
                feeds.append(Feed(vertex, self._passed(Output((feed,)), vertex, node)))
            else:
                feeds.append(feed)
        return Output(tuple(feeds))

    # -- in and out ---------------------------------------------------------------------------------------------

    def _source(self, node: t.Node, transform: t.Source) -> Output:
        source = transform.source
        parallelism = source.parallelism if node.parallelism == -1 else node.parallelism
        vertex = self._vertex(node.name, source.supplier, parallelism, node)
        vertex.expand = source.expand
        partitioning = None
        if source.partitions is not None:
            partitioning = partitioned_by(source.partition_key, source.partitions)
            vertex.why.append(f"its items lie in {source.partitions} partitions by {described(source.partition_key)}")
        if source.columnar:
            vertex.why.append("its items are batches of columns")
        return Output((Feed(vertex, partitioning, source.columnar),))

    def _sink(self, node: t.Node, transform: t.Sink) -> None:
        sink = transform.sink
        parallelism = self._graph.parallelism(node)
        why = ""
        if node.parallelism == -1:
            if sink.parallelism != -1:
                parallelism = sink.parallelism
            elif parallelism == 1:
                why = "one processor, which keeps the order"
        vertex = self._vertex(node.name, sink.supplier, parallelism, node, why)
        vertex.expand = sink.expand
        ordinal = 0
        for output in self._inputs(node):
            self._wires.any_way(output, vertex, ordinal, absorbed=True)
            ordinal += len(output.feeds)

    # -- item by item -------------------------------------------------------------------------------------------

    def _chain(self, chain: list[t.Node]) -> Output:
        """Plan stateless stages that follow one another as one vertex."""
        first, last = chain[0], chain[-1]
        steps = [_step(node) for node in chain]
        output = self._only_input(first)
        why = []
        if any(feed.columnar for feed in output.feeds):
            if output.columnar:
                steps.insert(0, _ROWS)
                why.append("rows of batches become dicts on the way in")
            else:
                output = self._rows(output, first)
        if len(chain) > 1:
            why.append(f"{len(chain)} stateless stages of equal parallelism in one processor: no queue between them")
        parallelism = self._graph.parallelism(first)
        if parallelism == 1 and first.parallelism == -1:
            why.append("one processor, which keeps the order")
        name = first.name if len(chain) == 1 else f"fused({', '.join(node.name for node in chain)})"
        vertex = self._vertex(name, fused(steps), parallelism, first, *why)
        vertex.stages = tuple(node.name for node in chain)
        passes = all(isinstance(node.transform, PASSING) for node in chain)
        if passes and last.id in self._graph.placed and self._lies_alike(output, vertex):
            reason = "items stay on the processor where they lie by key, which a later stage makes use of"
            self._wires.in_place(output, vertex, reason)
            return Output((Feed(vertex, output.feeds[0].partitioning),))
        partitioning = self._wires.any_way(output, vertex)
        return Output((Feed(vertex, partitioning if passes else None),))

    def _lies_alike(self, output: Output, vertex: PlannedVertex) -> bool:
        """Tell whether all items lie by the same key, on as many processors as a vertex has; it adopts their number."""
        first = output.feeds[0]
        if first.partitioning is None or not output.lies_as(first.partitioning):
            return False
        self._adopt(vertex, first.vertex)
        return bool(first.vertex.processors == vertex.processors)

    def _adopt(self, vertex: PlannedVertex, like: PlannedVertex) -> None:
        """Give a vertex as many processors as another one has, if nobody has said how many."""
        if vertex.parallelism == -1 and isinstance(like.processors, int):
            vertex.parallelism = like.processors

    def _map_batches(self, node: t.Node, transform: t.MapBatches) -> Output:
        output = self._only_input(node)
        parallelism = self._graph.parallelism(node)
        if not output.columnar:
            why = f"{node.name} works on batches of columns: items are gathered into such"
            gathering = self._vertex(f"{node.name}-batches", to_batches(), parallelism, node, why)
            self._wires.any_way(self._rows(output, node), gathering)
            output = Output((Feed(gathering, columnar=True),))
        vertex = self._vertex(node.name, map_batches(transform.fn, transform.as_), parallelism, node)
        self._wires.any_way(output, vertex)
        return Output((Feed(vertex, columnar=True),))

    def _custom(self, node: t.Node, transform: t.Custom) -> Output:
        output = self._single(self._only_input(node), node)
        vertex = self._vertex(node.name, transform.supplier, self._graph.parallelism(node), node)
        self._wires.any_way(output, vertex)
        return Output((Feed(vertex),))

    # -- with a state or a service ------------------------------------------------------------------------------

    def _map_stateful(self, node: t.Node, transform: t.MapStateful) -> Output:
        create, fn, key_fn = transform.create, transform.fn, transform.key_fn
        if isinstance(transform, t.FilterStateful):
            supplier = filter_stateful(create, fn, key_fn, transform.keyed)
        elif isinstance(transform, t.FlatMapStateful):
            supplier = flat_map_stateful(create, fn, key_fn, transform.keyed)
        elif transform.keyed:
            supplier = map_stateful(create, fn, key_fn)
        else:
            supplier = map_stateful(create, fn)
        return self._by_key_or_one(node, supplier, key_fn, transform.keyed, isinstance(transform, t.FilterStateful))

    def _rolling_aggregate(self, node: t.Node, transform: t.RollingAggregate) -> Output:
        supplier = rolling_aggregate(transform.op, transform.key_fn, transform.keyed)
        output = self._by_key_or_one(node, supplier, transform.key_fn, transform.keyed, False)
        if not transform.keyed:
            return output
        return Output((Feed(output.feeds[0].vertex, partitioned_by(FIRST)),))

    def _by_key_or_one(self, node: t.Node, supplier: Any, key_fn: KeyFn, keyed: bool, passes: bool) -> Output:
        """Plan a stage that has a state for each key, or one in all."""
        output = self._rows(self._only_input(node), node)
        if not keyed:
            vertex = self._vertex(node.name, supplier, 1, node, "one state for the whole stream: one processor")
            self._wires.to_one(output, vertex, "all items reach the one state")
            return Output((Feed(vertex),))
        vertex = self._vertex(node.name, supplier, node.parallelism, node, "a state for each key")
        wanted = self._wanted(output, vertex, key_fn)
        self._wires.by_key(output, vertex, key_fn, wanted)
        return Output((Feed(vertex, wanted if passes else None),))

    def _using_service(self, node: t.Node, transform: t.UsingService) -> Output:
        output = self._rows(self._only_input(node), node)
        service = transform.service
        if isinstance(transform, t.UsingServiceAsync):
            supplier = using_service_async(
                transform.kind,
                service,
                transform.fn,
                transform.key_fn,
                transform.keyed,
                transform.max_concurrent_ops,
                transform.preserve_order,
            )
        else:
            supplier = using_service(transform.kind, service, transform.fn, transform.key_fn, transform.keyed)
        kept = "one service for each " + ("worker process" if service.shared else "processor")
        own = "" if service.is_cooperative else "its calls block: each processor has a process of its own"
        vertex = self._vertex(node.name, supplier, self._graph.parallelism(node), node, kept, own)
        if not transform.keyed:
            self._wires.any_way(output, vertex)
            return Output((Feed(vertex),))
        wanted = self._wanted(output, vertex, transform.key_fn)
        self._wires.by_key(output, vertex, transform.key_fn, wanted)
        return Output((Feed(vertex, wanted if transform.kind == "filter" else None),))

    def _wanted(self, output: Output, vertex: PlannedVertex, key_fn: KeyFn) -> Partitioning:
        """Return how a keyed stage wants its items to lie: as they do, if that is by its key."""
        first = output.feeds[0]
        identity = identity_of(key_fn)
        if first.partitioning is not None and first.partitioning.key == identity and output.lies_as(first.partitioning):
            self._adopt(vertex, first.vertex)
            return first.partitioning
        if first.spread is not None and first.spread.keyed and output.is_spread_by(Partitioning(identity)):
            return Partitioning(identity, first.spread.count)
        return Partitioning(identity)

    # -- spreading ----------------------------------------------------------------------------------------------

    def _merge(self, node: t.Node, transform: t.Merge) -> Output:
        outputs = self._inputs(node)
        merged = Output(tuple(feed for output in outputs for feed in output.feeds))
        if node.parallelism == -1 and not node.is_named:
            return merged if merged.columnar else self._rows(merged, node)
        vertex = self._vertex(
            node.name, fused([]), node.parallelism, node, "a vertex of its own, as it was given a name"
        )
        columnar = merged.columnar
        self._wires.any_way(merged if columnar else self._rows(merged, node), vertex)
        return Output((Feed(vertex, columnar=columnar),))

    def _rebalance(self, node: t.Node, transform: t.Rebalance) -> Output:
        output = self._only_input(node)
        if transform.keyed and not isinstance(transform.key_fn, ColumnKey):
            output = self._rows(output, node)
        return output.spreading(Spread(node.name, transform.key_fn, transform.keyed))

    def _partition_by(self, node: t.Node, transform: t.PartitionBy) -> Output:
        output = self._only_input(node)
        if not isinstance(transform.key_fn, ColumnKey):
            output = self._rows(output, node)
        count = self._counts.get(node.id, GRID_PARTITIONS)
        if output.lies_as(partitioned_by(transform.key_fn, count)):
            return output
        return output.spreading(Spread(node.name, transform.key_fn, True, count))

    # -- all items ----------------------------------------------------------------------------------------------

    def _sort(self, node: t.Node, transform: t.Sort) -> Output:
        output = self._rows(self._only_input(node), node)
        key_fn, reverse = transform.key_fn, transform.reverse
        local = self._vertex(
            f"{node.name}-local",
            sort(key_fn, reverse=reverse),
            node.parallelism,
            node,
            "each processor sorts its share",
        )
        self._wires.any_way(output, local, absorbed=True)
        merging = self._vertex(node.name, fused([]), 1, node, "one processor, which merges the sorted shares")
        order_key = Descending(key_fn) if reverse else key_fn
        self._wires.to_one(
            Output((Feed(local),)), merging, "sorted streams are merged into one", ordered=True, order_key=order_key
        )
        return Output((Feed(merging),))

    def _distinct(self, node: t.Node, transform: t.Distinct) -> Output:
        output = self._rows(self._only_input(node), node)
        key_fn = transform.key_fn
        supplier = distinct(key_fn)
        wanted = partitioned_by(key_fn)
        first = output.feeds[0].partitioning
        if first is not None and first.key == wanted.key and output.lies_as(first):
            vertex = self._vertex(
                node.name, supplier, node.parallelism, node, "one stage: equal items are together already"
            )
            self._adopt(vertex, output.feeds[0].vertex)
            self._wires.by_key(output, vertex, key_fn, first)
            return Output((Feed(vertex, first),))
        local = self._vertex(
            f"{node.name}-local", supplier, node.parallelism, node, "what is repeated on a processor does not move"
        )
        self._wires.any_way(output, local)
        vertex = self._vertex(node.name, supplier, node.parallelism, node, "what is repeated between processors goes")
        self._wires.by_key(Output((Feed(local),)), vertex, key_fn, wanted)
        return Output((Feed(vertex, wanted),))

    def _aggregate(self, node: t.Node, transform: t.Aggregate) -> Output:
        inputs = [self._rows(output, node) for output in self._inputs(node)]
        if inputs_of(transform.op) > 1:
            inputs = [self._single(output, node) for output in inputs]
        if transform.key_fns is None:
            return self._aggregate_all(node, transform.op, inputs)
        return self._aggregate_by_key(node, transform.op, list(transform.key_fns), inputs)

    def _aggregate_all(self, node: t.Node, op: Any, inputs: list[Output]) -> Output:
        if op.combine is None:
            why = "one stage on one processor: the operation has no combine function"
            vertex = self._vertex(node.name, aggregate(op), 1, node, why)
            for ordinal, output in enumerate(inputs):
                self._wires.to_one(output, vertex, "everything is one group", ordinal, absorbed=True)
            return Output((Feed(vertex),))
        first = self._vertex(
            f"{node.name}-accumulate", accumulate(op), node.parallelism, node, "each processor folds what it gets"
        )
        for ordinal, output in enumerate(inputs):
            self._wires.any_way(output, first, ordinal, absorbed=True)
        vertex = self._vertex(f"{node.name}-combine", combine(op), 1, node, "one processor combines the parts")
        self._wires.to_one(Output((Feed(first),)), vertex, "one accumulator from each processor", absorbed=True)
        return Output((Feed(vertex),))

    def _aggregate_by_key(self, node: t.Node, op: Any, key_fns: list[KeyFn], inputs: list[Output]) -> Output:
        one_key: Any = key_fns[0] if len(inputs) == 1 else key_fns
        lying = self._common_partitioning(inputs, key_fns)
        spread = all(
            output.is_spread_by(partitioned_by(key_fn)) for output, key_fn in zip(inputs, key_fns, strict=True)
        )
        if lying is not None or spread or op.combine is None:
            why = "one stage: "
            if lying is not None:
                why += "items of equal keys are together already"
            elif spread:
                why += "the items have been spread by this key on purpose"
            else:
                why += "the operation has no combine function"
            vertex = self._vertex(node.name, aggregate_by_key(one_key, op), node.parallelism, node, why)
            if lying is not None:
                self._adopt(vertex, inputs[0].feeds[0].vertex)
            for ordinal, (output, key_fn) in enumerate(zip(inputs, key_fns, strict=True)):
                wanted = lying and Partitioning(identity_of(key_fn), lying.count)
                self._wires.by_key(output, vertex, key_fn, wanted or partitioned_by(key_fn), ordinal, absorbed=True)
            return Output((Feed(vertex, Partitioning(identity_of(FIRST), lying.count if lying else GRID_PARTITIONS)),))
        why = "two stages: a processor folds what it gets, and one accumulator for each key moves"
        first = self._vertex(f"{node.name}-accumulate", accumulate_by_key(one_key, op), node.parallelism, node, why)
        for ordinal, output in enumerate(inputs):
            self._wires.any_way(output, first, ordinal, absorbed=True)
        vertex = self._vertex(
            f"{node.name}-combine", combine_by_key(op), node.parallelism, node, "combines the accumulators of each key"
        )
        self._wires.by_key(Output((Feed(first),)), vertex, FIRST, partitioned_by(FIRST), absorbed=True)
        return Output((Feed(vertex, partitioned_by(FIRST)),))

    def _common_partitioning(self, inputs: list[Output], key_fns: list[KeyFn]) -> Partitioning | None:
        """Return the partitioning that all inputs have, each by its key, on equally many processors; None otherwise."""
        first = inputs[0].feeds[0]
        if first.partitioning is None:
            return None
        for output, key_fn in zip(inputs, key_fns, strict=True):
            if not output.lies_as(Partitioning(identity_of(key_fn), first.partitioning.count)):
                return None
            if output.feeds[0].vertex.processors != first.vertex.processors:
                return None
        return first.partitioning

    def _group_columns(self, node: t.Node, transform: t.GroupColumns) -> Output:
        grouping = transform.grouping
        output = self._only_input(node)
        first = self._vertex(
            f"{node.name}-accumulate", grouping.accumulate, node.parallelism, node, "each processor groups its columns"
        )
        self._wires.any_way(output, first, absorbed=True)
        feeds = Output((Feed(first, columnar=True),))
        if not grouping.keys:
            vertex = self._vertex(f"{node.name}-combine", grouping.combine, 1, node, "one group in all")
            self._wires.to_one(feeds, vertex, "one row from each processor", absorbed=True)
            return Output((Feed(vertex, columnar=True),))
        vertex = self._vertex(
            f"{node.name}-combine", grouping.combine, node.parallelism, node, "combines the groups of equal keys"
        )
        wanted = partitioned_by(grouping.key)
        self._wires.by_key(feeds, vertex, grouping.key, wanted, absorbed=True)
        return Output((Feed(vertex, wanted, columnar=True),))

    # -- joins --------------------------------------------------------------------------------------------------

    def _hash_join(self, node: t.Node, transform: t.HashJoin) -> Output:
        inputs = [self._single(self._rows(output, node), node) for output in self._inputs(node)]
        clauses = [(c.left_key, c.right_key, c.projection) for c in transform.clauses]
        supplier = hash_join(*clauses, project=transform.project, inner=transform.inner)
        why = "each processor keeps the joined sides in memory, so the stream need not move"
        vertex = self._vertex(node.name, supplier, node.parallelism, node, why)
        self._wires.any_way(inputs[0], vertex)
        for ordinal, side in enumerate(inputs[1:], 1):
            reason = "the small side goes to every processor, before the stream"
            self._wires.to_all(side, vertex, reason, ordinal, priority=-1, absorbed=True)
        return Output((Feed(vertex),))

    def _join(self, node: t.Node, transform: t.Join) -> Output:
        left, right = (self._single(self._rows(output, node), node) for output in self._inputs(node))
        supplier = hash_join((transform.left_key, transform.right_key), project=transform.project, inner=True)
        vertex = self._vertex(node.name, supplier, node.parallelism, node, "both sides are partitioned by the key")
        count = self._join_count(node, vertex, [(left, transform.left_key), (right, transform.right_key)])
        wanted = Partitioning(identity_of(transform.left_key), count)
        self._wires.by_key(left, vertex, transform.left_key, wanted)
        wanted = Partitioning(identity_of(transform.right_key), count)
        self._wires.by_key(right, vertex, transform.right_key, wanted, 1, priority=-1, absorbed=True)
        return Output((Feed(vertex),))

    def _join_table(self, node: t.Node, transform: t.JoinTable) -> Output:
        stream = self._single(self._rows(self._only_input(node), node), node)
        entries: list[tuple[Output, KeyFn, KeyFn | bool]] = []
        for sender in self._graph.senders[transform.table]:
            sent = sender.transform
            assert isinstance(sent, t.SendToTable)
            output = self._rows(self._only_input(sender), sender)
            entries += [
                (Output((feed,)), sent.key_fn if sent.keyed else FIRST, sent.key_fn if sent.keyed else False)
                for feed in output.feeds
            ]
        supplier = join_table(transform.key_fn, [entry_key for _, _, entry_key in entries], transform.fn)
        vertex = self._vertex(
            node.name, supplier, node.parallelism, node, "stream and table are partitioned by the key"
        )
        sides = [(stream, transform.key_fn), *((output, key_fn) for output, key_fn, _ in entries)]
        count = self._join_count(node, vertex, sides)
        self._wires.by_key(stream, vertex, transform.key_fn, Partitioning(identity_of(transform.key_fn), count))
        for ordinal, (output, key_fn, _) in enumerate(entries, 1):
            wanted = Partitioning(identity_of(key_fn), count)
            self._wires.by_key(output, vertex, key_fn, wanted, ordinal, priority=-1, absorbed=True)
        return Output((Feed(vertex),))

    def _send_to_table(self, node: t.Node, transform: t.SendToTable) -> None:
        """Nothing: the entries go straight to the joins that look the table up."""

    def _join_count(self, node: t.Node, vertex: PlannedVertex, sides: list[tuple[Output, KeyFn]]) -> int:
        """Return the partitions of a join: the planned number, else that of a side that lies by its key already."""
        planned = self._counts.get(node.id)
        for output, key_fn in sides:
            found = output.feeds[0].partitioning
            if found is None or found.key != identity_of(key_fn) or not output.lies_as(found):
                continue
            if planned in (None, found.count):
                self._adopt(vertex, output.feeds[0].vertex)
                return found.count
        for output, key_fn in sides:
            spread = output.feeds[0].spread
            if planned is None and spread is not None and output.is_spread_by(Partitioning(identity_of(key_fn))):
                return spread.count
        return GRID_PARTITIONS if planned is None else planned


def _rows_of(batch: Any) -> Any:
    return batch.rows()


_ROWS = Step("flat_map", _rows_of, "rows")


def _step(node: t.Node) -> Step:
    transform = node.transform
    if isinstance(transform, t.Peek):
        return Step("peek", Peeking(node.name, transform.to_text, transform.predicate), node.name)
    assert isinstance(transform, t.Map | t.Filter | t.FlatMap)
    return Step(_KINDS[type(transform)], transform.fn, node.name)


def _method(transform: t.Transform) -> str:
    """Return the name of the method that plans a kind of stage: `HashJoin` → `hash_join`."""
    for kind in type(transform).__mro__:
        name = "".join(f"_{c.lower()}" if c.isupper() else c for c in kind.__name__).lstrip("_")
        if hasattr(Compiler, f"_{name}"):
            return name
    raise AssertionError(f"no rule for {type(transform).__name__}")
