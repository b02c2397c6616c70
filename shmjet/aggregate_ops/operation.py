"""Aggregate operations: how a stream of items is folded into an accumulator and that into a result.

Must not know: processors, keys' partitions, windows. After Jet's `AggregateOperation`: primitives `create`,
`accumulate`, `combine`, `deduct`, `export`, `finish`. An operation may also bring kernels that fold whole lists:
Python's price is per call, so counting a list of a thousand words is one call and not a thousand.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from copy import deepcopy
from dataclasses import dataclass, field, fields
from typing import Any, Generic, TypeVar

from shmjet.aggregate_ops.tables import ABSENT, KeyedTable
from shmjet.core.column_key import ColumnKey
from shmjet.core.key_functions import is_identity

T = TypeVar("T")
A = TypeVar("A")
R = TypeVar("R")

_PRIMITIVES = ("combine", "deduct", "export", "finish")
_NEVER_CHANGE = frozenset((int, float, complex, bool, str, bytes, type(None)))


class _Then:
    """`then(first(x))`, picklable when both are."""

    __slots__ = ("first", "then")

    def __init__(self, first: Callable[[Any], Any] | None, then: Callable[[Any], Any]) -> None:
        self.first = first
        self.then = then

    def __call__(self, value: Any) -> Any:
        return self.then(value if self.first is None else self.first(value))

    def __reduce__(self) -> tuple[Any, ...]:
        return _Then, (self.first, self.then)


class _Combining:
    """The accumulate primitive of `with_combining_accumulate_fn`."""

    def __init__(self, combine: Callable[[Any, Any], Any], get: Callable[[Any], Any]) -> None:
        self._combine = combine
        self._get = get

    def one(self, accumulator: Any, item: Any) -> Any:
        return self._combine(accumulator, self._get(item))


@dataclass(frozen=True, eq=False, repr=False)
class AggregateOperation(Generic[T, A, R]):
    """The primitives of one aggregation.

    `accumulate`, `combine` and `deduct` return the new accumulator, or None when they changed the first argument in
    place: `lambda total, x: total + x` and `list.append` both do. So None as an accumulator means "nothing yet".

    Args:
        create: makes a fresh accumulator.
        accumulate: `(accumulator, item) -> accumulator | None`. For an operation over several inputs (co-aggregation)
            a sequence of such functions, one for each.
        combine: `(accumulator, other accumulator) -> accumulator | None`; the other one is left alone. None: the
            operation can only be done in one stage.
        deduct: the reverse of `combine`; sliding windows use it. The accumulator must then support `==`: a key whose
            accumulator equals a fresh one is dropped from the window.
        export: accumulator -> result, without touching the accumulator, and without handing out a part of it that
            changes later. Default: `finish`, or nothing, of a deep copy of the accumulator.
        finish: accumulator -> result, which may consume the accumulator. Default: `export`.
        table: makes the table in which keyed processors keep accumulators by key: a dict, or, when the operation
            brings `accumulate_groups` and `combine_groups`, anything that these two take and that has `items`; as a
            part of other operations it is used when it is a `KeyedTable`.
        accumulate_list: `(accumulator, items) -> accumulator`, the same as `accumulate` on each item, which leaves the
            list alone; one per input.
        accumulate_groups: `(table, keys, items) -> None`, the same as `accumulate` on each item of its key's
            accumulator; `keys` is an iterable as long as `items`; one per input.
        combine_groups: `(table, pairs) -> None` for (key, accumulator) pairs.
        sees_empty: an accumulator equals a fresh one only when everything has been deducted from it. So it is with
            a count inside; it is not with a sum, which may be 0 again.
        accumulator: names the accumulators where they are saved with a job: a new version of the job goes on from what
            an operation with the same name has saved, or with none. Empty: it is not known what they are.

    Raises:
        TypeError: a primitive is not callable. ValueError: `accumulate` is an empty sequence.

    Example:
        >>> largest = AggregateOperation(create=lambda: 0, accumulate=max, combine=max)
        >>> largest.fold(largest.create(), [3, 8, 5])
        8
    """

    create: Callable[[], A]
    accumulate: Any
    combine: Callable[[A, A], A | None] | None = None
    deduct: Callable[[A, A], A | None] | None = None
    export: Callable[[A], R] | None = None
    finish: Callable[[A], R] | None = None
    table: Callable[[], Any] = field(default=dict, kw_only=True)
    accumulate_list: Any = field(default=None, kw_only=True)
    accumulate_groups: Any = field(default=None, kw_only=True)
    combine_groups: Callable[[Any, list[tuple[Any, A]]], None] | None = field(default=None, kw_only=True)
    sees_empty: bool = field(default=False, kw_only=True)
    accumulator: str = field(default="", kw_only=True)
    accumulates: tuple[Callable[[A, Any], A | None], ...] = field(init=False)
    """The accumulate functions by input; `accumulate` is the first of them."""

    def __post_init__(self) -> None:
        if not callable(self.create):
            raise TypeError(f"AggregateOperation: create must be callable, got {self.create!r}")
        given = self.accumulate
        accumulates = tuple(given) if isinstance(given, Sequence) and not isinstance(given, str) else (given,)
        if not accumulates:
            raise ValueError("AggregateOperation: accumulate must be a function or one for each input, got none")
        for fn in accumulates:
            if not callable(fn):
                raise TypeError(f"AggregateOperation: accumulate must be callable, got {fn!r}")
        for name in _PRIMITIVES:
            value = getattr(self, name)
            if value is not None and not callable(value):
                raise TypeError(f"AggregateOperation: {name} must be callable or None, got {value!r}")
        set_field = object.__setattr__  # the dataclass is frozen
        set_field(self, "accumulates", accumulates)
        set_field(self, "accumulate", accumulates[0])
        for name in ("accumulate_list", "accumulate_groups"):
            kernel = getattr(self, name)
            kernels = kernel if isinstance(kernel, tuple) else (kernel,) * len(accumulates)
            if len(kernels) != len(accumulates):
                raise ValueError(f"AggregateOperation: {len(kernels)} of {name} for {len(accumulates)} inputs")
            set_field(self, name, kernels if len(accumulates) > 1 else kernels[0])

    @property
    def inputs(self) -> int:
        """How many input streams it folds: 1, or more in a co-aggregation."""
        return len(self.accumulates)

    @property
    def finisher(self) -> Callable[[A], R] | None:
        """The function from accumulator to final result; None when the result is the accumulator."""
        found = self.finish or self.export
        return None if is_identity(found) else found

    @property
    def exporter(self) -> Callable[[A], R]:
        """The function from accumulator to a result in between, which shares nothing that changes with it."""
        if self.export is not None and not is_identity(self.export):
            return self.export
        return _copied if self.finisher is None else _Then(_copied, self.finisher)

    def combiner(self) -> Callable[[A, A], A | None]:
        """Return `combine`.

        Raises:
            ValueError: when the operation has none, so that it cannot be done in two stages.
        """
        if self.combine is None:
            raise ValueError("this aggregate operation has no combine function: aggregate in one stage (aggregate...)")
        return self.combine

    # -- other operations made of this one -----------------------------------------------------------------------------

    def __repr__(self) -> str:
        primitives = ("create", "accumulate", *_PRIMITIVES)
        given = {name: getattr(self, name) for name in dict.fromkeys(primitives)}
        if self.inputs > 1:
            given["accumulate"] = self.accumulates
        shown = [f"{name}={_name_of(value)}" for name, value in given.items() if value is not None]
        return f"AggregateOperation({', '.join(shown)})"

    def with_identity_finish(self) -> AggregateOperation[T, A, A]:
        """Return the same operation with the accumulator as its result.

        Example:
            >>> from shmjet.aggregate_ops import averaging
            >>> averaging().with_identity_finish().aggregate([1, 2, 6])
            (9, 3)
        """
        return self._changed(export=_itself, finish=_itself)

    def with_combining_accumulate_fn(self, get_accumulator: Callable[[Any], A]) -> AggregateOperation[Any, A, R]:
        """Return an operation whose items are, or contain, accumulators of this one, which it combines.

        Args:
            get_accumulator: item -> accumulator.

        Raises:
            ValueError: this operation has no `combine`. TypeError: `get_accumulator` is not callable.

        Example:
            >>> from operator import itemgetter
            >>> from shmjet.aggregate_ops import counting
            >>> counting().with_combining_accumulate_fn(itemgetter(1)).aggregate([("a", 2), ("b", 5)])
            7
        """
        if not callable(get_accumulator):
            raise TypeError(f"with_combining_accumulate_fn: expected a function, got {get_accumulator!r}")
        return self._changed(
            accumulate=_Combining(self.combiner(), get_accumulator).one,
            accumulate_list=None,
            accumulate_groups=None,
            **({} if self.table is dict else {"table": dict, "combine_groups": None}),
        )

    def and_then(self, fn: Callable[[R], Any]) -> AggregateOperation[T, A, Any]:
        """Return the same operation with `fn` applied to its result.

        Args:
            fn: result -> another result.

        Raises:
            TypeError: `fn` is not callable.

        Example:
            >>> from shmjet.aggregate_ops import counting
            >>> counting().and_then(str).aggregate("abc")
            '3'
        """
        if not callable(fn):
            raise TypeError(f"and_then: expected a function of the result, got {fn!r}")
        return self._changed(export=_Then(self.exporter, fn), finish=_Then(self.finisher, fn))

    def _changed(self, **changes: Any) -> AggregateOperation[Any, Any, Any]:
        values = {each.name: getattr(self, each.name) for each in fields(self) if each.init}
        return AggregateOperation(**{**values, "accumulate": self.accumulates, **changes})

    # -- running it ----------------------------------------------------------------------------------------------------

    def aggregate(self, *inputs: Iterable[Any]) -> Any:
        """Fold everything here and now and return the result: for tests and for trying out.

        Args:
            inputs: an iterable for each input of the operation.

        Example:
            >>> from shmjet.aggregate_ops import averaging
            >>> averaging(len).aggregate(["a", "bcd"])
            2.0
        """
        if len(inputs) != self.inputs:
            raise ValueError(f"this aggregate operation has {self.inputs} inputs, got {len(inputs)}")
        accumulator = self.create()
        for ordinal, items in enumerate(inputs):
            accumulator = self.fold(accumulator, list(items), ordinal)
        finisher = self.finisher
        return accumulator if finisher is None else finisher(accumulator)

    def _at(self, ordinal: int) -> Callable[[A, Any], A | None]:
        if len(self.accumulates) == 1:
            return self.accumulates[0]
        if ordinal >= len(self.accumulates):
            raise ValueError(
                f"this aggregate operation has {len(self.accumulates)} inputs, but items arrived on edge {ordinal}"
            )
        return self.accumulates[ordinal]

    def _kernel(self, kernels: Any, ordinal: int) -> Any:
        return kernels[ordinal] if len(self.accumulates) > 1 and ordinal < len(self.accumulates) else kernels

    def fold(self, accumulator: A, items: list[Any], ordinal: int = 0) -> A:
        """Accumulate a list and return the accumulator.

        Args:
            ordinal: the input that the items came from; an operation with one input takes all alike.

        Raises:
            ValueError: the operation has several inputs, but fewer.
        """
        accumulate = self._at(ordinal)
        kernel = self._kernel(self.accumulate_list, ordinal)
        if kernel is not None:
            folded: A = kernel(accumulator, items)
            return folded
        for item in items:
            changed = accumulate(accumulator, item)
            if changed is not None:
                accumulator = changed
        return accumulator

    def merge(self, accumulator: A, others: Iterable[A]) -> A:
        """Combine `others` into an accumulator and return it."""
        combine = self.combiner()
        for other in others:
            changed = combine(accumulator, other)
            if changed is not None:
                accumulator = changed
        return accumulator

    def fold_groups(self, table: Any, keys: Iterable[Any], items: list[Any], ordinal: int = 0) -> None:
        """Accumulate each item into the accumulator of its key.

        Args:
            table: what `table()` made, or a dict.
            keys: as many as there are items.
            ordinal: as in `fold`.
        """
        accumulate = self._at(ordinal)
        kernel = self._kernel(self.accumulate_groups, ordinal)
        if kernel is not None and (self.table is dict or type(table) is not dict):
            kernel(table, keys, items)
        elif kernel is not None and self.combine is not None:
            # The kernel wants a table of its own, and there are fewer keys than items.
            passing = self.table()
            kernel(passing, keys, items)
            self._merge_dict(table, passing.items())
        else:
            get, create = table.get, self.create
            for key, item in zip(keys, items, strict=True):
                accumulator = get(key, ABSENT)
                if accumulator is ABSENT:
                    accumulator = table[key] = create()
                changed = accumulate(accumulator, item)
                if changed is not None:
                    table[key] = changed

    def merge_groups(self, table: Any, pairs: list[tuple[Any, A]]) -> None:
        """Combine (key, accumulator) pairs into the table."""
        if self.combine_groups is not None and (self.table is dict or type(table) is not dict):
            self.combine_groups(table, pairs)
        else:
            self._merge_dict(table, pairs)

    def _merge_dict(self, table: dict[Any, A], pairs: Iterable[tuple[Any, A]]) -> None:
        get, create, combine = table.get, self.create, self.combiner()
        for key, other in pairs:
            accumulator = get(key, ABSENT)
            if accumulator is ABSENT:
                # a fresh one, not `other`: what came over a local lane belongs to its sender
                accumulator = table[key] = create()
            changed = combine(accumulator, other)
            if changed is not None:
                table[key] = changed

    def touch(self, table: Any, keys: Iterable[Any]) -> None:
        """Give each of `keys` that has none in the table a fresh accumulator."""
        if isinstance(table, KeyedTable):
            table.touch(keys)
            return
        create = self.create
        for key in keys:
            if key not in table:
                table[key] = create()


def _name_of(value: Any) -> str:
    """Return how a function is called; several in brackets."""
    if isinstance(value, tuple):
        return f"({', '.join(map(_name_of, value))})"
    return getattr(value, "__name__", None) or type(value).__name__


def _copied(accumulator: Any) -> Any:
    """Return an accumulator, or a copy of it if it is mutable."""
    if type(accumulator) in _NEVER_CHANGE:
        return accumulator
    try:
        return deepcopy(accumulator)
    except Exception as error:
        raise TypeError(
            f"an accumulator of type {type(accumulator).__name__} cannot be copied for a result in between ({error}); "
            "give its AggregateOperation an export function, which makes results and leaves the accumulator alone"
        ) from error


def _itself(value: Any) -> Any:
    return value


def single_op(name: str, op: Any) -> AggregateOperation[Any, Any, Any]:
    """Return `op` when it is an operation with one input, as a part of another has to be.

    Raises:
        TypeError, ValueError: it is something else; the text starts with `name`.
    """
    if not isinstance(op, AggregateOperation):
        raise TypeError(f"{name}: expected an AggregateOperation, got {type(op).__name__}: {op!r}")
    if op.inputs != 1:
        raise ValueError(f"{name}: its operations must have one input each, got one with {op.inputs}")
    return op


def checked_fn(name: str, argument: str, fn: Any) -> Any:
    """Return `fn` when it is callable.

    Raises:
        TypeError: it is not; the text says which argument of what.
    """
    if not callable(fn):
        raise TypeError(f"{name}: {argument} must be callable, got {type(fn).__name__}: {fn!r}")
    return fn


def value_fn(name: str, argument: str, fn: Any) -> Any:
    """Return a function of an item; the name of a column stands for the value that a row has under it.

    Raises:
        TypeError: it is neither a name nor callable.

    Example:
        >>> value_fn("linear_trend", "x_fn", "price")({"price": 2})
        2
    """
    return ColumnKey((fn,)) if isinstance(fn, str) else checked_fn(name, argument, fn)


def optional_fn(name: str, argument: str, fn: Any) -> Any:
    """Return None for None and every spelling of the identity, else as `value_fn`.

    Raises:
        TypeError: it is neither None, nor a name, nor callable.
    """
    if isinstance(fn, str):
        return ColumnKey((fn,))
    if fn is not None and not callable(fn):
        raise TypeError(f"{name}: {argument} must be callable or None, got {type(fn).__name__}: {fn!r}")
    return None if is_identity(fn) else fn
