"""`Pipeline`: a list of nodes that only grows, and the views of it.

It must not know how anything is planned: `shmjet.pipeline.planner` reads the nodes when a DAG is asked for.
"""

from __future__ import annotations

import dataclasses
import importlib
from typing import TYPE_CHECKING, Any, Literal, TypeVar, overload

from msgspec import structs

from shmjet.core.dag import DAG
from shmjet.core.job import JobConfig
from shmjet.data.errors import PlanError
from shmjet.data.sendable_text import sendable
from shmjet.pipeline import transforms as t
from shmjet.pipeline.definitions import SinkDef, SourceDef, StreamSourceDef

if TYPE_CHECKING:
    from shmjet.pipeline.general import GeneralStage
    from shmjet.pipeline.handles import SinkStage, Stage
    from shmjet.pipeline.planner import Plan
    from shmjet.pipeline.source_stage import StreamSourceStage
    from shmjet.pipeline.stages import BatchStage

T = TypeVar("T")


class Pipeline:
    """What a job does, as stages from sources to sinks; `jet.new_job(pipeline)` runs it.

    A pipeline can be pickled (by cloudpickle, which the engine uses, with lambdas and classes of the script).

    Example:
        >>> from shmjet import aggregate_ops, sinks, sources          # doctest: +SKIP
        >>> p = Pipeline()
        >>> words = p.read_from(sources.files("*.txt")).flat_map(str.split)        # doctest: +SKIP
        >>> counts = words.grouping_key(str.lower).aggregate(aggregate_ops.counting())        # doctest: +SKIP
        >>> counts.write_to(sinks.map("counts"))        # doctest: +SKIP
        >>> jet.new_job(p).run()        # doctest: +SKIP
    """

    def __init__(self) -> None:
        self._nodes: list[t.Node] = []

    # -- building -----------------------------------------------------------------------------------------------

    @overload
    def read_from(self, source: StreamSourceDef[T]) -> StreamSourceStage[T]: ...  # type: ignore[overload-overlap]
    @overload
    def read_from(self, source: SourceDef[T]) -> BatchStage[T]: ...
    def read_from(self, source: SourceDef[T]) -> BatchStage[T] | StreamSourceStage[T]:
        """Return the stage of a source's items; of an endless source, that on which their event time is to be said.

        Args:
            source: from `shmjet.sources`.

        Raises:
            TypeError: it is not a source.

        Example:
            >>> lines = Pipeline().read_from(sources.files("corpus/*.txt"))        # doctest: +SKIP
        """
        from shmjet.pipeline.stages import BatchStage

        if not isinstance(source, SourceDef):
            raise TypeError(
                f"read_from: expected a source (see shmjet.sources), got {type(source).__name__}: {source!r:.80}"
            )
        node_id = self._add(source.name, t.Source(source))
        if isinstance(source, StreamSourceDef):
            from shmjet.pipeline.source_stage import StreamSourceStage

            return StreamSourceStage(self, node_id)
        return BatchStage(self, node_id)

    def write_to(self, sink: SinkDef[T], *stages: GeneralStage[T]) -> SinkStage:
        """Write the items of one or several stages to one sink.

        Args:
            sink: from `shmjet.sinks`.
            stages: of this pipeline, at least one.

        Raises:
            TypeError: `sink` is not a sink, or an argument is not a stage. PlanError: there is no stage, or a stage is
                of another pipeline.

        Example:
            >>> p.write_to(sinks.files("out"), errors, warnings)        # doctest: +SKIP
        """
        from shmjet.pipeline.handles import SinkStage

        if not isinstance(sink, SinkDef):
            raise TypeError(f"write_to: expected a sink (see shmjet.sinks), got {type(sink).__name__}: {sink!r:.80}")
        if not stages:
            raise PlanError(f"write_to: expected at least one stage to write to sink {sink.name!r}, got none")
        after_sinks = getattr(sink.supplier, "after_sinks", None)
        if after_sinks is not None:
            before = [node.transform.sink.supplier for node in self._nodes if isinstance(node.transform, t.Sink)]
            sink = dataclasses.replace(sink, supplier=after_sinks(before))
        return SinkStage(self, self._add(sink.name, t.Sink(sink), *stages))

    @property
    def is_empty(self) -> bool:
        """True as long as nothing has been read from a source."""
        return not self._nodes

    @property
    def nodes(self) -> tuple[t.Node, ...]:
        """The logical graph: all stages in the order in which they were made; for planners and translators."""
        return tuple(self._nodes)

    def _add(self, name: str, transform: t.Transform, *upstream: Stage, parallelism: int = -1) -> int:
        """Add a node and return its id; `name` gets a number when it is taken."""
        for stage in upstream:
            self._check_own(name, stage)
        node_id = len(self._nodes)
        ids = tuple(stage.node_id for stage in upstream)
        self._nodes.append(t.Node(node_id, self._unique(name), transform, ids, parallelism))
        return node_id

    def _change(self, node_id: int, **changes: Any) -> None:
        """Change what is said of a node. Another node that has the name by itself gives it up."""
        if "name" in changes:
            holder = next((node for node in self._nodes if node.name == changes["name"] and node.id != node_id), None)
            if holder is not None and not holder.is_named:  # saved state belongs to the name that the user has set
                self._nodes[holder.id] = structs.replace(holder, name=self._unique(holder.name))
            changes["name"] = self._unique(changes["name"], but=node_id)
        node = self._nodes[node_id] = structs.replace(self._nodes[node_id], **changes)
        if "name" in changes and node.inner is not None:
            kind = type(self._nodes[node.inner].transform).__name__.lower()
            self._change(node.inner, name=f"{node.name}-{kind}", is_named=node.is_named)

    def _unique(self, name: str, but: int = -1) -> str:
        taken = {node.name for node in self._nodes if node.id != but}
        stem = sendable(name)  # it may come from a file
        found, number = stem, 1
        while found in taken:
            number += 1
            found = f"{stem}-{number}"
        return found

    def _check_own(self, name: str, stage: Stage) -> None:
        from shmjet.pipeline.general import GeneralStage
        from shmjet.pipeline.handles import SinkStage
        from shmjet.pipeline.source_stage import FOUR, StreamSourceStage

        if not isinstance(stage, GeneralStage):
            hint = ""
            if isinstance(stage, SinkStage):
                hint = "; nothing can follow a sink"
            elif isinstance(stage, StreamSourceStage):
                hint = f"; first say what the time of the source's items is, with {FOUR}"
            elif hasattr(stage, "__arrow_c_stream__"):
                hint = "; pipeline.read_from(sources.frames(table)) makes a stage of a table"
            shown = repr(stage).partition("\n")[0]
            raise TypeError(f"{name}: expected a stage of this pipeline, got {type(stage).__name__}: {shown:.80}{hint}")
        if stage.pipeline is not self:
            raise PlanError(f"{name}: stage {stage.name!r} belongs to another pipeline; build both in one Pipeline()")

    # -- looking ------------------------------------------------------------------------------------------------

    def plan(self, config: JobConfig | None = None) -> Plan:
        """Plan the pipeline: choose vertices and edges, each with its reason.

        Args:
            config: of the job; `intermediate_partitions` has a say in the plan.

        Raises:
            PlanError: the pipeline is empty, a stage has nothing attached to it, or streams that are joined do not
                agree in their partitions; the text names them.
        """
        from shmjet.pipeline.planner import plan

        return plan(self._nodes, JobConfig() if config is None else config)

    def to_dag(self, config: JobConfig | None = None) -> DAG:
        """Return the DAG that does what the pipeline describes; see `plan` for what is raised.

        Args:
            config: of the job; `intermediate_partitions` has a say in the plan.
        """
        return self.plan(config).to_dag()

    def explain(self, config: JobConfig | None = None, *, target: Literal["engine", "spark"] = "engine") -> str:
        """Return the plan as a tree, from sinks to sources, with the reason of each choice.

        Args:
            config: of the job. If it has a processing guarantee, each source and sink is shown with the guarantee that
                it keeps, which is the weaker one of the job's and its own.
            target: "spark" tells what `run_on_spark` would do.

        Raises:
            PlanError: see `plan`; with target="spark" also when a stage cannot be run there.
            ValueError: an unknown target.
        """
        if target == "spark":
            text: str = _spark().explain_on_spark(self._nodes, JobConfig() if config is None else config)
            return text
        if target != "engine":
            raise ValueError(f'explain: target must be "engine" or "spark", got {target!r}')
        return self.plan(config).explain()

    def run_on_spark(self, spark: Any, *, config: JobConfig | None = None, jet: Any = None) -> None:
        """Run the pipeline on Spark's own operators instead of the engine, and return when it has ended.

        Args:
            spark: a `SparkSession`.
            config: of the job.
            jet: the instance whose lists and maps are read and written; None: the only open instance.

        Raises:
            PlanError: a stage cannot be run on Spark; the text names it, and nothing has been started.
            JobFailedError: a stage's code, or Spark, failed.
            ModuleNotFoundError: PySpark is not installed.

        See `shmjet.spark.run_on_spark`.
        """
        _spark().run_on_spark(self, spark, config=config, jet=jet)

    def to_dot(self) -> str:
        """Return the pipeline, stage by stage, in Graphviz' language; `to_dag().to_dot()` gives the DAG."""
        from shmjet.pipeline.graph import as_graph

        return as_graph(self._nodes).to_dot()

    def to_svg(self) -> str:
        """Return the pipeline as a picture, a complete SVG document; `to_dag().to_svg()` gives the DAG."""
        from shmjet.pipeline.graph import as_graph

        return as_graph(self._nodes).to_svg()

    def to_mermaid(self, dag: bool = False) -> str:
        """Return the pipeline as a Mermaid flow chart, which many viewers of Markdown draw.

        Args:
            dag: the planned DAG instead of the stages.
        """
        from shmjet.pipeline.graph import as_graph

        return (self.to_dag() if dag else as_graph(self._nodes)).to_mermaid()

    def _repr_svg_(self) -> str | None:
        return self.to_svg() if self._nodes else None

    def _repr_html_(self) -> str | None:
        return self.to_svg() if self._nodes else None

    def __repr__(self) -> str:
        names = "".join(f" {node.name}" for node in self._nodes)
        return f"<Pipeline of {len(self._nodes)} stages{names and ':'}{names}>"


def _spark() -> Any:
    """Return the package that translates pipelines for Spark: a floor above, which only these two methods reach."""
    return importlib.import_module("shmjet.spark")
