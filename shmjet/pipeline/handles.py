"""The base of all stages: a handle of one node of a pipeline, with a name and a parallelism.

Must not know what stages do.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeVar

from shmjet.core.checks import check_int, check_name
from shmjet.data.errors import PlanError
from shmjet.data.suggestions import unknown_attribute
from shmjet.pipeline.pipeline import Pipeline

S_ = TypeVar("S_", bound="Stage")

_RESULTS: Final = "the results of a job are in a sink: write_to(sinks.collect()), and then jet.new_job(pipeline).run()"
_ADVICE: Final = {
    **dict.fromkeys(("head", "limit", "take"), "top(n, by) gives the first rows of an order"),
    **dict.fromkeys(("order_by", "orderBy", "sort_by", "sort_values"), "sort(*names, descending=) sorts"),
    **dict.fromkeys(("drop", "drop_columns"), "select(*names) says what stays"),
    "rename": "select(new=column('old'), ...) gives columns other names",
    **dict.fromkeys(("unique", "drop_duplicates", "dropDuplicates"), "distinct(*names) does that"),
    **dict.fromkeys(("groupby", "groupBy"), "group_by(*names).agg(...) does that"),
    "where": "filter(expression) does that",
    **dict.fromkeys(("with_column", "withColumn", "assign"), "with_columns(name=expression) does that"),
    **dict.fromkeys(("union_all", "unionAll", "unionByName", "vstack", "concat"), "union(*others) does that"),
    **dict.fromkeys(("collect", "show", "to_pandas", "toPandas", "fetchall", "rows"), _RESULTS),
    **dict.fromkeys(("count", "sum", "mean", "min", "max", "len"), "group_by().agg(n=count()) gives totals"),
    "window": "windows are of endless sources; items that end have aggregate(op) and group_by(...) without one",
    **dict.fromkeys(
        ("with_timestamps", "with_native_timestamps", "with_ingestion_timestamps", "without_timestamps"),
        "only endless sources have event time",
    ),
    "add_timestamps": "only endless sources have event time",
}
"""What is done here by methods of other libraries."""

_WITH_TIME = "with_timestamps(fn, allowed_lag=seconds) does that, where the source is read"
_ON_WINDOWS = "say it of the window: window(...).{}(...).aggregate(op)"
STREAM_ADVICE: Final = {
    **dict.fromkeys(("key_by", "keyBy", "key_on", "keyed"), "grouping_key(fn) does that"),
    **dict.fromkeys(("assign_timestamps_and_watermarks", "assignTimestampsAndWatermarks"), _WITH_TIME),
    **dict.fromkeys(("with_watermark", "withWatermark"), _WITH_TIME),
    **dict.fromkeys(("process", "stateful_map"), "map_stateful(create, fn), or custom_transform(name, Processor)"),
    **dict.fromkeys(("add_sink", "addSink", "sink_to", "sinkTo", "sink", "output"), "write_to(sink) does that"),
    "print": "write_to(sinks.logger()) does that",
    **dict.fromkeys(("tumbling_window", "time_window", "window_all"), "window(tumbling(seconds)) does that"),
    **{name: _ON_WINDOWS.format(name) for name in ("late_to", "early_results")},
}
"""What is done here by methods of streams in other libraries, or elsewhere."""


@dataclass(frozen=True, repr=False)
class Stage:
    """A handle of a node of a pipeline.

    Args:
        pipeline: which it belongs to.
        node_id: its place there.
    """

    pipeline: Pipeline
    node_id: int

    @property
    def name(self) -> str:
        """The stage's name, from which its vertices have theirs."""
        return self.pipeline.nodes[self.node_id].name

    def set_name(self: S_, name: str) -> S_:
        """Name the stage, for drawings, metrics and messages; saved state belongs to it by this name.

        A stage that has the name without `set_name` gets a number; if both are named so, this one gets it.

        Raises:
            PlanError: the name is not a str, is empty, or has characters that UTF-8 has not.
        """
        check_name(f"stage {self.name!r}: the name given to set_name()", name, PlanError)
        self.pipeline._change(self.node_id, name=name, is_named=True)
        return self

    def _named_with(self: S_, inner: Stage) -> S_:
        """Let another stage, which has the state of this one, go by the name that this one is given."""
        self.pipeline._change(self.node_id, inner=inner.node_id)
        return self

    def set_local_parallelism(self: S_, count: int) -> S_:
        """Set the number of processors that do this stage's work on each member.

        Args:
            count: at least 1; -1 leaves it to the planner.

        Raises:
            PlanError: it is not an int, or it is 0 or below -1.
        """
        check_int(f"stage {self.name!r}: local parallelism", count, PlanError)
        if count == 0 or count < -1:
            raise PlanError(
                f"stage {self.name!r}: local parallelism must be at least 1, or -1 (the planner's choice), got {count}"
            )
        self.pipeline._change(self.node_id, parallelism=count)
        return self

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name!r}>"

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            raise unknown_attribute("a stage", name, type(self), _ADVICE)

        def __getitem__(self, name: object) -> Any:
            raise TypeError(
                f"a stage has no [{name!r:.80}] and no rows before the job has run; its methods take column('name'), "
                f"and {_RESULTS}"
            )


class SinkStage(Stage):
    """The end of a branch: a sink, or a table that items are sent to."""
