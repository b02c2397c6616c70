"""A run of a pipeline on Spark: RDDs for its steps, Spark jobs for its sinks, then the commit.

Everything that could refuse the pipeline is asked before the first Spark job. Sinks are computed one after the other,
each under temporary names or in the driver's memory; only when all have succeeded do results appear: what goes to
Spark's writers is written, files get their names, lists and maps are filled. Must not know what stages mean.
"""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Sequence
from typing import Any

from shmjet.cluster.client.instance import open_instances
from shmjet.core.context import MetaSupplierContext
from shmjet.core.job import JobConfig
from shmjet.core.processor import ProcessorMetaSupplier, supplier_for_all
from shmjet.data.errors import PlanError
from shmjet.pipeline import Pipeline
from shmjet.processors.general.service_use import ServiceSupplier
from shmjet.spark.back.sinks import OpenedSink
from shmjet.spark.runner.blocks import pack, unpack
from shmjet.spark.runner.ends import Place
from shmjet.spark.runner.exchange_receiver import bounds_of
from shmjet.spark.runner.failures import job_error
from shmjet.spark.runner.rdd_blocks import blocks_by, cached, collected, lists_by, numbered, shuffled, united
from shmjet.spark.runner.sink_steps import CollectSinkWriter, SinkWriter, sink_writer
from shmjet.spark.runner.source_steps import flow_of_source, prepared_source
from shmjet.spark.runner.tasks import CloseRun, Host, Merge, Pack, Received, Sample, Split, Unpack
from shmjet.spark.runner.translation import How, Input, SparkPlan, Step, translate
from shmjet.spark.runner.user_code import Code, Processes, close_run, is_gone, pickled

FEW = 20_000
"""So many sorted items are merged by one task: ranges are not worth a sample."""

CLOSING_JOBS = 4
"""Attempts to meet all workers that have services."""

_log = logging.getLogger("shmjet.spark")


def run_on_spark(pipeline: Pipeline, spark: Any, *, config: JobConfig | None = None, jet: Any = None) -> None:
    """Run a pipeline on Spark's own operators, and return when it has ended.

    Every stage does what it does in the engine, in Spark's Python workers. Keys lie in the partitions in which they lie
    in the engine, whatever `PYTHONHASHSEED` is. shmjet and its packages must be installed for the executors' Python.

    Args:
        pipeline: of bounded sources.
        spark: a `SparkSession` (not Spark Connect), which is left running.
        config: of the job; its name, modules and `intermediate_partitions` count.
        jet: the instance whose lists and maps are read and written; they pass through this process. None: the one
            that this process has open, if it has just one.

    Raises:
        PlanError: a stage cannot be run on Spark; the text names it, and nothing has been started.
        TypeError: `spark` or `pipeline` is something else.
        JobFailedError: a stage's code, or Spark, failed; no sink shows a part of a result.

    Example:
        >>> p = Pipeline()                                                              # doctest: +SKIP
        >>> words = p.read_from(sources.files("corpus/*.txt")).flat_map(str.split)      # doctest: +SKIP
        >>> counts = words.grouping_key(str.lower).aggregate(aggregate_ops.counting())  # doctest: +SKIP
        >>> counts.write_to(sinks.files("counts"))                                      # doctest: +SKIP
        >>> p.run_on_spark(SparkSession.builder.getOrCreate())                          # doctest: +SKIP
    """
    if not isinstance(pipeline, Pipeline):
        raise TypeError(f"run_on_spark: expected a Pipeline, got {type(pipeline).__name__}: {pipeline!r:.80}")
    config = JobConfig() if config is None else config
    instances = open_instances() if jet is None else [jet]
    plan = translate(pipeline.nodes, config, instances=len(instances))
    context = getattr(spark, "sparkContext", None) if hasattr(spark, "_jsparkSession") else None
    if context is None:
        raise TypeError(
            f"run_on_spark: expected a SparkSession, got {type(spark).__name__}; Spark Connect has no RDDs, so its "
            "sessions cannot run pipelines"
        )
    _Run(plan, spark, context, config, instances[0] if len(instances) == 1 else None).run()


class _Run:
    def __init__(self, plan: SparkPlan, spark: Any, context: Any, config: JobConfig, jet: Any) -> None:
        self._plan = plan
        self._spark = spark
        self._context = context
        self._config = config
        self._jet = jet
        self._id = os.urandom(6).hex()
        self._name = repr(config.name) if config.name else self._id
        self._usual = max(1, int(context.defaultParallelism))
        self._flows: dict[str, Any] = {}
        self._cached: list[Any] = []
        self._shipped: list[Any] = []
        self._metas: list[ProcessorMetaSupplier] = []
        self._sinks: list[SinkWriter] = []
        self._opened: dict[int, OpenedSink] = {}
        self._homes: Any = None

    def run(self) -> None:
        """Do everything, and clean up."""
        error: BaseException | None = None
        before = self._context.getLocalProperty("spark.job.description")
        try:
            self._context.setJobDescription(f"shmjet {self._name}")
            self._do()
        except BaseException as raised:
            expected = isinstance(raised, PlanError) or not isinstance(raised, Exception)
            error = raised if expected else job_error(raised, self._name)
            for sink in self._sinks:
                with contextlib.suppress(Exception):
                    sink.abort(error)
            if expected:
                raise
            raise error from error.__cause__
        finally:
            self._clean_up(error)
            self._context.setLocalProperty("spark.job.description", before)

    def _do(self) -> None:
        suppliers = {step.name: self._supplier(step) for step in self._plan.steps}
        shipment = self._ship(pickled(suppliers, self._plan.functions, self._config.modules))
        if any(isinstance(supplier, ServiceSupplier) for supplier in suppliers.values()):
            self._homes = self._context.accumulator(frozenset(), Processes())
        self._code = Code(self._id, shipment, self._homes)
        for step in self._plan.steps:
            if step.end is None or step.is_source:
                flow = self._source(step) if step.is_source else self._stage(step)
                self._flows[step.name] = self._kept(step, flow)
            else:
                self._sink(step).compute(self._sink_input(step))
        for sink in sorted(self._sinks, key=lambda each: each.rank):
            sink.commit()

    def _sink(self, step: Step) -> SinkWriter:
        """Return what does a sink; steps that end in the same collect() are done by the same."""
        for sink in self._sinks:
            if isinstance(sink, CollectSinkWriter) and sink.supplier is step.supplier:
                return sink
        self._sinks.append(sink_writer(step, self._code, self._opened.get(id(step.supplier)), self._jet))
        return self._sinks[-1]

    def _supplier(self, step: Step) -> Any:
        """Return what makes the processors of a step in tasks; None where the driver has them."""
        supplier: Any = step.supplier
        if step.end is not None and step.end.place is Place.FILES:
            return supplier.elsewhere().supply()
        if step.end is not None and step.end.place is Place.SPARK and not step.is_source:
            if id(supplier) not in self._opened:  # else it is the sink of another step too
                self._opened[id(supplier)] = supplier.on_spark(self._spark)
            return self._opened[id(supplier)].supply()
        if step.end is not None and step.end.place is not Place.TASKS:
            return None
        if not isinstance(supplier, ProcessorMetaSupplier):
            return supplier
        for_all = supplier_for_all(supplier)
        if for_all is not None:
            return for_all
        step.tasks = self._tasks(step)
        context = MetaSupplierContext(
            vertex_name=step.name,
            local_parallelism=step.tasks,
            total_parallelism=step.tasks,
            job_id=self._id,
            job_config=self._config,
        )
        return prepared_source(supplier, context, self._metas)

    # -- flows --------------------------------------------------------------------------------------------------

    def _tasks(self, step: Step) -> int:
        return step.tasks if step.tasks > 0 else self._usual

    def _source(self, step: Step) -> Any:
        flow = flow_of_source(step, self._code, self._spark, self._jet, self._tasks(step))
        if step.partitions:
            split = Split(self._code, step.name, "key", self._tasks(step), 0, step.partitions, step.key)
            flow = lists_by(shuffled(flow, split, self._tasks(step)), Received())
        return flow

    def _stage(self, step: Step) -> Any:
        edges = tuple(each.ordinal for each in step.inputs)
        main = [each for each in step.inputs if each.how is not How.BROADCAST]
        sides = tuple((each.ordinal, self._broadcast(each)) for each in step.inputs if each.how is How.BROADCAST)
        if len(main) == 1 and main[0].how in (How.NARROW, How.IN_PLACE):
            flow, reads_blocks = self._flows[main[0].source], False
        elif len(main) == 1 and main[0].how is How.SORTED:
            flow, reads_blocks = self._sorted(step, main[0]), False
        else:
            self._align(step, main)
            flow, reads_blocks = united([self._blocks(step, each) for each in main]), True
        total = flow.getNumPartitions()
        return lists_by(flow, Host(self._code, step.name, total, edges, reads_blocks, sides))

    def _align(self, step: Step, inputs: Sequence[Input]) -> None:
        """Join inputs that are shuffled by key with inputs that are already partitioned by it."""
        lying = {self._flows[each.source].getNumPartitions() for each in inputs if each.how is How.IN_PLACE}
        if lying:
            assert len(lying) == 1, f"{step.name}: inputs lie in {lying} partitions"
            (step.tasks,) = lying

    def _blocks(self, step: Step, each: Input) -> Any:
        """Return the blocks of an input, moved to where they are wanted."""
        flow = self._flows[each.source]
        tasks = self._tasks(step)
        match each.how:
            case How.NARROW | How.IN_PLACE:
                return blocks_by(flow, Pack(each.ordinal))
            case How.DEAL:
                return shuffled(flow, Split(self._code, step.name, "deal", tasks, each.ordinal), tasks)
            case How.TO_ONE:
                return shuffled(flow, Split(self._code, step.name, "one", 1, each.ordinal), 1)
            case How.BY_KEY:
                tells = getattr(step.supplier, "takes_schemas", False) is True
                split = Split(self._code, step.name, "key", tasks, each.ordinal, each.count, each.key, (), tells)
                return shuffled(flow, split, tasks)
        raise AssertionError(f"{step.name}: no blocks for {each.how}")

    def _sorted(self, step: Step, each: Input) -> Any:
        """Return sorted partitions as one sorted run over all partitions."""
        blocks = self._keep(blocks_by(self._flows[each.source], Pack(each.ordinal)))
        flow = lists_by(blocks, Unpack())
        samples = [unpack(block)[0] for block in collected(blocks_by(flow, Sample()))]
        ranges = self._tasks(step) if sum(count for count, _ in samples) > FEW else 1
        order_key: Any = None if each.key is None else self._plan.functions[each.key]
        bounds = bounds_of([taken for _, taken in samples], ranges, order_key)
        shipped = (pack(bounds),) if bounds else ()
        split = Split(self._code, step.name, "range", len(bounds) + 1, 0, 0, each.key, shipped)
        return lists_by(shuffled(flow, split, len(bounds) + 1), Merge(self._code, step.name, each.key))

    def _broadcast(self, each: Input) -> Any:
        return self._ship(collected(blocks_by(self._flows[each.source], Pack(each.ordinal))))

    def _sink_input(self, step: Step) -> Any:
        """Return the lists that reach a sink."""
        inputs = step.inputs
        if len(inputs) == 1 and inputs[0].how in (How.NARROW, How.IN_PLACE):
            return self._flows[inputs[0].source]
        edges = tuple(each.ordinal for each in inputs)
        return lists_by(united([self._blocks(step, each) for each in inputs]), Received(edges))

    # -- what is kept -------------------------------------------------------------------------------------------

    def _ship(self, value: Any) -> Any:
        shipment = self._context.broadcast(value)
        self._shipped.append(shipment)
        return shipment

    def _keep(self, blocks: Any) -> Any:
        self._cached.append(cached(blocks))
        return blocks

    def _kept(self, step: Step, flow: Any) -> Any:
        """Cache what several steps read."""
        return lists_by(self._keep(blocks_by(flow, Pack())), Unpack()) if step.shared else flow

    def _clean_up(self, error: BaseException | None) -> None:
        for meta in self._metas:
            with contextlib.suppress(Exception):
                meta.close(error)
        close_run(self._id)
        if isinstance(error, KeyboardInterrupt):
            return
        with contextlib.suppress(Exception):
            self._close_services()
        for blocks in self._cached:
            with contextlib.suppress(Exception):
                blocks.unpersist()
        for shipment in self._shipped:
            with contextlib.suppress(Exception):
                shipment.destroy()
        kept: list[SinkWriter | OpenedSink] = [*self._sinks, *self._opened.values()]
        for sink in kept:
            with contextlib.suppress(Exception):
                sink.close()

    def _close_services(self) -> None:
        """Close the services in the workers that have them, by small Spark jobs whose tasks meet them there.

        Spark deals tasks to the workers that wait as they come, so a job with twice as many tasks as there are such
        workers meets all of them, unless other jobs keep them busy; then once more.
        """
        if self._homes is None:
            return
        left = {process for process in self._homes.value if not is_gone(process)}
        for _ in range(CLOSING_JOBS):
            flow = numbered(self._context, 2 * max(self._usual, len(left)))
            for block in collected(blocks_by(flow, CloseRun(self._id))):
                process, why = unpack(block)[0]
                left.discard(process)
                if why:
                    _log.warning("closing a service of %s on Spark: %s", self._name, why)
            left = {process for process in left if not is_gone(process)}
            if not left:
                return
        _log.warning("services of %s were not closed in %d Spark workers, which other jobs keep", self._name, len(left))
