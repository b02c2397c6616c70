"""Stages of columns behind a Spark DataFrame as operations of that DataFrame, where they mean the same.

As much of a pipeline as Spark can say with the same results becomes one DataFrame, which Spark plans, compiles and
shuffles by itself; what it gives goes on as batches through the engine's own processors. Spark says no sum or mean of
floats here (its order of adding is chance, and it does not compensate), nothing that goes by the order of rows, and no
expression for which `shmjet.spark.expressions` has no translation. Must not know RDDs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from msgspec import structs

from shmjet.core.column_key import ColumnKey
from shmjet.data.errors import PlanError
from shmjet.pipeline import transforms as t
from shmjet.pipeline.planner.column_needs import known_names, plain_column, suffixed
from shmjet.spark.expressions import FLOATS, INTEGERS, NotOnSparkError, Translator, check_names, quoted
from shmjet.spark.feed import SparkSource
from shmjet.spark.schema import Field

_KEYS = (*INTEGERS, *FLOATS, "bool", "text", "bytes", "date", "timestamp", "timestamp_ntz")
"""Kinds whose equal values are equal in both."""

_HOW = {"inner": "inner", "left": "left", "right": "right", "outer": "full", "semi": "left_semi", "anti": "left_anti"}


@dataclass(frozen=True)
class Frame:
    """What a stage gives, as a DataFrame.

    Args:
        df: of PySpark.
        source: the first source of its rows, whose settings it keeps.
        notes: what Spark does, in order.
    """

    df: Any
    source: SparkSource
    notes: tuple[str, ...] = ()

    def then(self, df: Any, node: t.Node) -> Frame:
        """Return the frame behind one more stage."""
        check_names(df.columns)
        return replace(self, df=df, notes=(*self.notes, f"{node.name}: by Spark itself"))

    @property
    def kinds(self) -> dict[str, str]:
        """The kinds of the columns which can be compared, by name."""
        return {name: field.kind for name, field in self.fields.items()}

    @property
    def fields(self) -> Mapping[str, Field]:
        """The columns which can be compared, by name."""
        return Translator.of(self.df).fields


def on_frames(nodes: Sequence[t.Node]) -> tuple[t.Node, ...]:
    """Return the stages of a pipeline with those replaced by DataFrames that Spark can do itself."""
    frames: dict[int, Frame] = {}
    for node in nodes:
        try:
            frame = _frame(node, [frames.get(id_) for id_ in node.upstream])
        except NotOnSparkError:
            continue  # the engine's processor does it
        if frame is not None:
            frames[node.id] = frame
    consumers = {node.id: [each for each in nodes if node.id in each.upstream] for node in nodes}
    last = {id_ for id_ in frames if any(each.id not in frames for each in consumers[id_])}
    number: dict[int, int] = {}
    left: list[t.Node] = []
    for node in nodes:
        if node.id in frames and node.id not in last:
            continue
        upstream = tuple(number[id_] for id_ in node.upstream if id_ in number)
        if node.id in frames:
            left.append(_source(node, len(left), frames[node.id]))
        elif isinstance(node.transform, t.Union):
            left += _merged(node, upstream, left)
        else:
            left.append(structs.replace(node, id=len(left), upstream=upstream))
        number[node.id] = len(left) - 1
    return tuple(left)


def _merged(node: t.Node, upstream: tuple[int, ...], before: Sequence[t.Node]) -> list[t.Node]:
    """Return a union that the engine's processors do: tasks see some inputs only, so columns are compared here.

    Raises:
        PlanError: they differ, or are not known before the pipeline runs.
    """
    known = known_names(before)
    inputs = [known[id_] for id_ in upstream]
    first = inputs[0]
    for place, names in enumerate(inputs):
        if names is None or first is None:
            raise PlanError(
                f"{node.name}: on Spark the columns of all inputs have to be known before the pipeline runs; those of "
                f"input {place if names is None else 0} are not: put select(...) with their names before it"
            )
        odd = sorted(set(names) ^ set(first))
        if odd:
            raise PlanError(
                f"{node.name}: inputs 0 and {place} differ in the column {odd[0]!r}; select the same ones on all inputs"
            )
    assert first is not None
    outputs = tuple((name, ColumnKey((name,))) for name in first)
    made = [
        t.Node(len(before) + place, f"{node.name}-input-{place}", t.Select(outputs), (id_,))
        for place, id_ in enumerate(upstream)
    ]
    ids = tuple(each.id for each in made)
    return [*made, structs.replace(node, id=len(before) + len(made), transform=t.Merge(), upstream=ids)]


def _source(node: t.Node, number: int, frame: Frame) -> t.Node:
    if isinstance(node.transform, t.Source):
        return structs.replace(node, id=number)
    source = frame.source.made(frame.df, frame.notes)
    return structs.replace(node, id=number, transform=t.Source(source), upstream=(), on_error=None)


def _frame(node: t.Node, inputs: list[Frame | None]) -> Frame | None:
    """Return a stage as a DataFrame; None where it is none of the stages which could be one.

    Raises:
        NotOnSparkError: Spark would give something else.
    """
    transform = node.transform
    if isinstance(transform, t.Source):
        source = transform.source
        if not isinstance(source, SparkSource) or source.frame is None or transform.policy is not None:
            return None
        if not source.frame._jdf.queryExecution().analyzed().deterministic():
            return None  # what several stages read would be other rows for each
        check_names(source.frame.columns)
        return Frame(source.frame, source)
    given = [each for each in inputs if each is not None]
    if not given or len(given) < len(inputs) or node.on_error is not None:
        return None
    make = _STAGES.get(type(transform))
    return None if make is None else make(node, transform, given)


def _of_rows(node: t.Node, transform: Any, inputs: list[Frame]) -> Frame:
    from pyspark.sql import functions as f

    (frame,) = inputs
    translator = Translator.of(frame.df, may_raise=True)
    if isinstance(transform, t.Where):
        return frame.then(frame.df.where(translator.condition(transform.expression)), node)
    made = {}
    for name, expression in transform.outputs:
        plain = plain_column(expression)
        if plain is not None and plain in frame.df.columns:
            made[name] = f.col(quoted(plain)).alias(name)
        else:
            made[name] = translator.column(expression).column.alias(name)
    if isinstance(transform, t.With):
        kept = {name: f.col(quoted(name)) for name in frame.df.columns}
        made = {**kept, **made}
    check_names(list(made))
    return frame.then(frame.df.select(*made.values()), node)


def _groups(node: t.Node, transform: Any, inputs: list[Frame]) -> Frame:
    from pyspark.sql import functions as f

    (frame,) = inputs
    if not transform.keys:
        raise NotOnSparkError("without rows Spark gives a row, and the engine none")
    translator, kinds = Translator.of(frame.df, may_raise=True), frame.kinds
    _check_keys(kinds, transform.keys)
    made = []
    for name, aggregate in transform.aggregates.items():
        expression = getattr(aggregate, "expression", None)
        function = aggregate.function
        if aggregate.column is None and expression is None and function == "count":
            made.append(f.count(f.lit(1)).alias(name))
            continue
        found = translator.column(expression) if expression is not None else translator.plain(aggregate.column)
        if function == "count":
            column = f.count(found.column)
        elif function in ("min", "max") and found.kind in _KEYS and found.kind not in ("bool", "bytes"):
            column = f.min(found.column) if function == "min" else f.max(found.column)
        elif function == "n_unique" and found.kind in _KEYS:
            column = f.count_distinct(found.column)
        elif function == "sum" and found.kind in INTEGERS:
            whole = found.column if found.kind != "int64" else found.column.cast("decimal(38, 0)")
            column = f.sum(whole).cast("bigint")  # through more digits: on its way a sum may leave 64 bits
        else:
            raise NotOnSparkError(f"{function} of {found.kind}")
        made.append(column.alias(name))
    keys = [quoted(name) for name in transform.keys]
    df = frame.df.groupBy(*keys).agg(*made) if made else frame.df.select(*keys).distinct()
    return frame.then(df, node)


def _join(node: t.Node, transform: Any, inputs: list[Frame]) -> Frame:
    from pyspark.sql import functions as f

    one, two = inputs
    left, right = one.df.alias("shmjet_left"), two.df.alias("shmjet_right")
    of_left, of_right = one.kinds, two.kinds
    _check_keys(of_left, transform.left_keys)
    _check_keys(of_right, transform.right_keys)

    def on(side: str, name: str) -> Any:
        return f.col(f"shmjet_{side}.{quoted(name)}")

    condition = f.lit(True)
    for mine, theirs in zip(transform.left_keys, transform.right_keys, strict=True):
        if of_left[mine] != of_right[theirs]:
            raise NotOnSparkError(f"keys of types {of_left[mine]} and {of_right[theirs]}")
        condition &= on("left", mine) == on("right", theirs)
        if of_left[mine] in FLOATS:
            condition &= ~f.isnan(on("left", mine))
    df = left.join(right, condition, _HOW[transform.how])
    if transform.how in ("semi", "anti"):
        return one.then(df, node)
    pairs = dict(zip(transform.left_keys, transform.right_keys, strict=True))
    made = []
    for name in one.df.columns:
        column = on("left", name)
        if name in pairs and transform.how in ("right", "outer"):
            column = f.coalesce(column, on("right", pairs[name]))
        made.append(column.alias(name))
    for name in two.df.columns:
        if name in transform.right_keys:
            continue
        called = suffixed(transform, name, one.df.columns)
        if called in one.df.columns:
            raise NotOnSparkError(f"both sides have a column {called!r}")
        made.append(on("right", name).alias(called))
    return one.then(df.select(*made), node)


def _distinct(node: t.Node, transform: Any, inputs: list[Frame]) -> Frame:
    (frame,) = inputs
    if isinstance(transform, t.Distinct):
        if transform.key_fn is not None:
            raise NotOnSparkError("a key by a function")
        names = frame.df.columns
    else:
        names = list(transform.names) or frame.df.columns
    _check_keys(frame.kinds, names)
    return frame.then(frame.df.dropDuplicates(names), node)


def _union(node: t.Node, transform: Any, inputs: list[Frame]) -> Frame:
    first, *others = inputs
    df = first.df
    for other in others:
        if set(other.df.columns) != set(first.df.columns) or other.fields != first.fields:
            raise NotOnSparkError("columns of other names or types")
        df = df.unionByName(other.df)
    return first.then(df, node)


def _same(node: t.Node, transform: Any, inputs: list[Frame]) -> Frame:
    if transform.schema is not None:
        raise NotOnSparkError("a schema is for rows")
    return inputs[0]


def _check_keys(kinds: dict[str, str], names: Sequence[str]) -> None:
    """Raise NotOnSparkError where a column is missing, or its values are equal in another way."""
    for name in names:
        if kinds.get(name) not in _KEYS:
            raise NotOnSparkError(f"column {name!r} is not a key there")


_STAGES: dict[type[t.Transform], Callable[[t.Node, Any, list[Frame]], Frame]] = {
    t.Select: _of_rows,
    t.With: _of_rows,
    t.Where: _of_rows,
    t.GroupColumns: _groups,
    t.JoinColumns: _join,
    t.DistinctColumns: _distinct,
    t.Distinct: _distinct,
    t.Union: _union,
    t.ToBatches: _same,
}
