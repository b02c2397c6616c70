"""A chain of stateless steps in one processor: map, filter and flat_map without the engine between them.

For each shape of a chain (`map, filter, flat_map`, say) a function is written out and compiled once, so that an item
costs the calls of the user's functions and a few byte codes. A chain without `flat_map` is a single comprehension. One
with it runs as nested loops while `flat_map` functions return lists and the like; when one returns something that may
be long or endless (a generator), what is left is drawn lazily, as far as there is room. The idea is that of fused loops
in stream libraries, and of Jet's fused vertices.

Must not know: who fuses what, and why.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain, repeat
from typing import Any

from shmjet._native import index_of_special
from shmjet.core.event_timestamps import column_timestamps
from shmjet.core.inbox import Inbox
from shmjet.core.processor import Processor, ProcessorContext
from shmjet.data.columnar import Columnar
from shmjet.processors.general.base import LAZY_FILL, ExpandingProcessor, Supply, TransformingProcessor
from shmjet.processors.general.failures import OnError
from shmjet.processors.general.fused_code import Form, Kind, Times, compiled, file_name, source
from shmjet.processors.general.guarded_steps import GuardedStepsProcessor

_SMALL = frozenset(
    (list, tuple, set, frozenset, dict, str, bytes, type({}.keys()), type({}.values()), type({}.items()))
)
_LONGEST_RANGE = 4096
_LAZY_CALLS = 64
"""How many lists are processed lazily after a long result before the loops are tried again."""


@dataclass(frozen=True)
class Step:
    """One step of a chain.

    Args:
        kind: map, filter, flat_map, or peek, which is called for its effect.
        fn: the user's function. One with a method `bind(context)` is replaced by what that returns, where it runs.
        name: of the stage, for errors.
        on_error: what is done with an item on which the function raises; None: the job fails.
    """

    kind: Kind
    fn: Callable[[Any], Any]
    name: str
    on_error: OnError | None = None


def _is_small(result: Any) -> bool:
    """Tell whether a result of flat_map is all there already."""
    kind = result.__class__
    return kind in _SMALL or (kind is range and len(result) <= _LONGEST_RANGE)


def _iterated(name: str, result: Any) -> Iterator[Any]:
    """Return an iterator over a result of flat_map."""
    try:
        return iter(result)
    except TypeError:
        raise TypeError(
            f"stage {name!r}: {type(result).__name__!r} object is not iterable; the function of a flat_map must return "
            "an iterable for every item, [] for none"
        ) from None


class _Chain:
    """The steps of a fused processor, and what is known when one of them fails."""

    def __init__(self, steps: Sequence[Step], times: Times) -> None:
        self.steps = tuple(steps)
        self.times = times
        self.kinds: tuple[Kind, ...] = tuple(step.kind for step in steps)
        self.fns: tuple[Callable[[Any], Any], ...] = tuple(step.fn for step in steps)

    def bind(self, context: ProcessorContext) -> None:
        """Let functions know where they run."""
        self.fns = tuple(fn.bind(context) if hasattr(fn, "bind") else fn for fn in self.fns)

    def run_list(self, items: list[Any]) -> list[Any]:
        """Return the results of a chain without flat_map."""
        made: list[Any] = compiled(self.kinds, 0, "list", self.times)(items, None, *self.fns)
        return made

    def run_lazily(self, items: Iterable[Any], start: int = 0) -> Iterator[Any]:
        """Return what the steps from `start` on make, to be drawn."""
        made: Iterator[Any] = compiled(self.kinds, start, "lazy", self.times)(items, self._iterated, *self.fns)
        return made

    def run_loops(self, items: Iterator[Any], out: list[Any]) -> Iterator[Any] | None:
        """Put the results into a list; return what has to be drawn lazily behind them, if anything has."""
        time, pending = compiled(self.kinds, 0, "loops", self.times)(items, out, _is_small, *self.fns)
        if not pending:
            return None
        parts = []
        for step, result in pending:
            rest = self._iterated(step, result)
            parts.append(self.run_lazily(rest if self.times == "none" else zip(repeat(time), rest), step + 1))
        return chain(*parts, self.run_lazily(items))

    def _iterated(self, step: int, result: Any) -> Iterator[Any]:
        return _iterated(self.steps[step].name, result)

    def blame(self, error: BaseException) -> None:
        """Note on an error from which stage it came, when there are several."""
        if len(self.steps) <= 1:
            return
        forms: tuple[Form, ...] = ("list", "loops", "lazy")
        trace = error.__traceback__
        while trace is not None:
            name = trace.tb_frame.f_code.co_filename
            for form in forms:
                for start in range(len(self.kinds)) if form == "lazy" else (0,):
                    if name == file_name(self.kinds, start, form, self.times):
                        step = source(self.kinds, start, form, self.times)[1].get(trace.tb_lineno)
                        if step is not None:
                            error.add_note(f"in stage {self.steps[step].name!r}")
                            return
            trace = trace.tb_next


class FusedProcessor(TransformingProcessor):
    """Does a chain in which every item makes one or none."""

    def __init__(self, steps: Sequence[Step], times: Times = "none") -> None:
        self._chain = _Chain(steps, times)

    def start(self, context: ProcessorContext) -> None:
        """Bind functions that want to know the context."""
        self._chain.bind(context)

    def transform(self, items: list[Any]) -> list[Any]:
        """Do the chain for a list."""
        try:
            return self._chain.run_list(items)
        except Exception as error:
            self._chain.blame(error)
            raise


class FusedExpandingProcessor(ExpandingProcessor):
    """Does a chain with flat_map in it."""

    def __init__(self, steps: Sequence[Step], times: Times = "none") -> None:
        self._chain = _Chain(steps, times)
        self._lazy_calls = 0

    def start(self, context: ProcessorContext) -> None:
        """Bind functions that want to know the context."""
        self._chain.bind(context)

    def process(self, ordinal: int, inbox: Inbox) -> None:
        """As `ExpandingProcessor`; an error is noted to come from its stage."""
        try:
            super().process(ordinal, inbox)
        except Exception as error:
            self._chain.blame(error)
            raise

    def begin(self, ordinal: int, items: list[Any]) -> None:
        """Do the chain in loops, and lazily what is behind a long result, and for a while after one."""
        emission = self.emission
        self.fill = LAZY_FILL if self._lazy_calls > 1 else 1.0
        if self._lazy_calls:
            self._lazy_calls -= 1
            emission.start(self._chain.run_lazily(items))
            return
        out: list[Any] = []
        rest = self._chain.run_loops(iter(items), out)
        emission.drawn = len(out)
        emission.put(out)
        if rest is not None:
            self._lazy_calls = _LAZY_CALLS
            self.fill = LAZY_FILL
            emission.start(rest)


class FusedRowsProcessor(FusedExpandingProcessor):
    """Does a chain for items and, as dicts, for the rows of batches among them.

    With a `time_column` rows become timed items, by their time in that column.
    """

    def __init__(self, steps: Sequence[Step], times: Times = "none", time_column: str | None = None) -> None:
        super().__init__(steps, times)
        self._time_column = time_column

    def begin(self, ordinal: int, items: list[Any]) -> None:
        """Do the chain for a list, lazily where there are batches in it."""
        chain, emission = self._chain, self.emission
        passes = not chain.steps and chain.times != "dropped"
        if index_of_special(items, 0, Columnar) >= 0:
            rows = _rows_among(items, self._time_column)
            emission.start(rows if passes else chain.run_lazily(rows))
        elif "flat_map" in chain.kinds:
            super().begin(ordinal, items)
        else:
            made = items if passes else chain.run_list(items)
            emission.drawn = len(made)
            emission.put(made)


def _rows_among(items: list[Any], time_column: str | None) -> Iterator[Any]:
    for item in items:
        if not issubclass(type(item), Columnar):
            yield item
        elif time_column is None:
            yield from item.rows()
        else:
            yield from zip(column_timestamps(item, time_column).tolist(), item.rows(), strict=True)


class PassingProcessor(TransformingProcessor):
    """Hands every item on."""

    def transform(self, items: list[Any]) -> list[Any]:
        """Return the same list."""
        return items


def fused(
    steps: Sequence[Step], *, takes_batches: bool = False, times: Times = "none", time_column: str | None = None
) -> Callable[[], Processor]:
    """Do several steps, one after the other, for each item.

    The result is that of a vertex for each step, joined by unicast edges: a map's None is left out, and flat_map's
    results are drawn lazily where they are not lists.

    Args:
        steps: in order; none: items are passed on.
        takes_batches: among the items may be batches, whose rows come as dicts, one by one.
        times: "kept" or "dropped" where timed items come; the steps see the items.
        time_column: column of the batches by which their rows become timed items; then `times` is not "none".

    Raises:
        TypeError: a step's function cannot be called. ValueError: an unknown kind.

    Example:
        >>> from shmjet.testing import verify_processor
        >>> steps = [Step("map", lambda x: x + 1, "map"), Step("filter", lambda x: x % 2, "filter")]
        >>> verify_processor(fused(steps)).inputs([1, 2, 3, 4]).expect([3, 5])
        >>> verify_processor(fused(steps, times="kept")).inputs([(10, 1), (20, 2)]).expect([(20, 3)])
    """
    for step in steps:
        if not callable(step.fn):
            raise TypeError(f"stage {step.name!r}: expected a function, got {type(step.fn).__name__}: {step.fn!r}")
        if step.kind not in ("map", "filter", "flat_map", "peek"):
            raise ValueError(f"stage {step.name!r}: unknown kind of step {step.kind!r}")
    if any(step.on_error for step in steps):
        unpacked = partial(_rows_among, time_column=time_column) if takes_batches else None
        return Supply(GuardedStepsProcessor, tuple(steps), times != "none", times == "kept", unpacked)
    if takes_batches:
        return Supply(FusedRowsProcessor, tuple(steps), times, time_column)
    if not steps and times != "dropped":
        return Supply(PassingProcessor)
    expands = any(step.kind == "flat_map" for step in steps)
    return Supply(FusedExpandingProcessor if expands else FusedProcessor, tuple(steps), times)
