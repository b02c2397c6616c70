"""A chain of stateless steps in one processor: map, filter and flat_map without the engine between them.

For each shape of a chain (`map, filter, flat_map`, say) a function is written out and compiled once, so that an item
costs the calls of the user's functions and a few byte codes. A chain without `flat_map` is a single comprehension. One
with it runs as nested loops while `flat_map` functions return lists and the like; when one returns something that may
be long or endless (a generator), what is left is drawn lazily, as far as there is room. The idea is that of fused loops
in stream libraries, and of Jet's fused vertices.

Must not know: who fuses what, and why.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, Literal

from shmjet._native import index_of_special
from shmjet.core.inbox import Inbox
from shmjet.core.processor import Processor, ProcessorContext
from shmjet.data.columnar import Columnar
from shmjet.processors.general.base import LAZY_FILL, ExpandingProcessor, Supply, TransformingProcessor

Kind = Literal["map", "filter", "flat_map", "peek"]

_SMALL = frozenset(
    (list, tuple, set, frozenset, dict, str, bytes, type({}.keys()), type({}.values()), type({}.items()))
)
_LONGEST_RANGE = 4096
_LAZY_CALLS = 64
"""How many lists are processed lazily after a long result before the loops are tried again."""

_FOLDER = os.path.dirname(os.path.abspath(__file__))


@dataclass(frozen=True)
class Step:
    """One step of a chain.

    Args:
        kind: map, filter, flat_map, or peek, which is called for its effect.
        fn: the user's function. One with a method `bind(context)` is replaced by what that returns, where it runs.
        name: of the stage, for errors.
    """

    kind: Kind
    fn: Callable[[Any], Any]
    name: str


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


@functools.cache
def _source(kinds: tuple[Kind, ...], start: int, form: str) -> tuple[str, dict[int, int]]:
    """Return the text of a function for the steps from `start` on, and line → step.

    Args:
        form: "list" (a comprehension), "lazy" (a generator) or "loops".
    """
    lines: list[str] = []
    steps: dict[int, int] = {}
    names = ", ".join(f"f{i}" for i in range(len(kinds)))

    def write(text: str, step: int = -1) -> None:
        lines.append(text)
        if step >= 0:
            steps[len(lines)] = step

    value = "v"
    if form != "loops":
        result = next((f"v{i}" for i in range(len(kinds) - 1, start - 1, -1) if kinds[i] in ("map", "flat_map")), "v")
        opening, closing = "[]" if form == "list" else "()"
        write(f"def run(items, iterated, {names}):")
        write(f"    return {opening}{result} for v in items")
        for i in range(start, len(kinds)):
            if kinds[i] == "map":
                write(f"        for v{i} in (f{i}({value}),) if v{i} is not None", i)
                value = f"v{i}"
            elif kinds[i] == "flat_map":
                write(f"        for v{i} in iterated({i}, f{i}({value}))", i)
                value = f"v{i}"
            else:
                write(f"        if f{i}({value})", i)
        write(f"    {closing}")
        return "\n".join(lines), steps
    write(f"def run(items, out, small, {names}):")
    if kinds[-1] != "flat_map":
        write("    add = out.append")
    write("    for v in items:")
    indent = "        "
    open_loops: list[int] = []
    for i, kind in enumerate(kinds):
        if kind == "map":
            write(f"{indent}v{i} = f{i}({value})", i)
            write(f"{indent}if v{i} is None: continue")
            value = f"v{i}"
        elif kind == "flat_map":
            pending = "".join(f"({j}, i{j}), " for j in reversed(open_loops))
            write(f"{indent}i{i} = f{i}({value})", i)
            write(f"{indent}if i{i}.__class__ is not list and not small(i{i}): return ({i}, i{i}), {pending}")
            if i == len(kinds) - 1:
                write(f"{indent}out += i{i}", i)
            else:
                write(f"{indent}i{i} = iter(i{i})")
                write(f"{indent}for v{i} in i{i}:", i)
                indent += "    "
                open_loops.append(i)
            value = f"v{i}"
        else:
            write(f"{indent}if not f{i}({value}): continue", i)
    if kinds[-1] != "flat_map":
        write(f"{indent}add({value})")
    write("    return ()")
    return "\n".join(lines), steps


@functools.cache
def _compiled(kinds: tuple[Kind, ...], start: int, form: str) -> Callable[..., Any]:
    """Return the function for a shape; its file name lies in this package, so that no user sees its frames."""
    text, _ = _source(kinds, start, form)
    namespace: dict[str, Any] = {"__name__": __name__}
    exec(compile(text, _file_name(kinds, start, form), "exec"), namespace)
    made: Callable[..., Any] = namespace["run"]
    return made


def _file_name(kinds: tuple[Kind, ...], start: int, form: str) -> str:
    return os.path.join(_FOLDER, f"<{form} of {', '.join(kinds[start:])} from {start}>")


class _Chain:
    """The steps of a fused processor, and what is known when one of them fails."""

    def __init__(self, steps: Sequence[Step]) -> None:
        self.steps = tuple(steps)
        self.kinds: tuple[Kind, ...] = tuple(step.kind for step in steps)
        self.fns: tuple[Callable[[Any], Any], ...] = tuple(step.fn for step in steps)

    def bind(self, context: ProcessorContext) -> None:
        """Let functions know where they run."""
        self.fns = tuple(fn.bind(context) if hasattr(fn, "bind") else fn for fn in self.fns)

    def run_list(self, items: list[Any]) -> list[Any]:
        """Return the results of a chain without flat_map."""
        made: list[Any] = _compiled(self.kinds, 0, "list")(items, None, *self.fns)
        return made

    def run_lazily(self, items: Iterable[Any], start: int = 0) -> Iterator[Any]:
        """Return what the steps from `start` on make, to be drawn."""
        made: Iterator[Any] = _compiled(self.kinds, start, "lazy")(items, self._iterated, *self.fns)
        return made

    def run_loops(self, items: Iterator[Any], out: list[Any]) -> Iterator[Any] | None:
        """Put the results into a list; return what has to be drawn lazily behind them, if anything has."""
        pending = _compiled(self.kinds, 0, "loops")(items, out, _is_small, *self.fns)
        if not pending:
            return None
        parts = [self.run_lazily(self._iterated(step, result), step + 1) for step, result in pending]
        return chain(*parts, self.run_lazily(items))

    def _iterated(self, step: int, result: Any) -> Iterator[Any]:
        return _iterated(self.steps[step].name, result)

    def blame(self, error: BaseException) -> None:
        """Note on an error from which stage it came, when there are several."""
        if len(self.steps) == 1:
            return
        trace = error.__traceback__
        while trace is not None:
            name = trace.tb_frame.f_code.co_filename
            for form in ("list", "loops", "lazy"):
                for start in range(len(self.kinds)) if form == "lazy" else (0,):
                    if name == _file_name(self.kinds, start, form):
                        step = _source(self.kinds, start, form)[1].get(trace.tb_lineno)
                        if step is not None:
                            error.add_note(f"in stage {self.steps[step].name!r}")
                            return
            trace = trace.tb_next


class FusedProcessor(TransformingProcessor):
    """Does a chain in which every item makes one or none."""

    def __init__(self, steps: Sequence[Step]) -> None:
        self._chain = _Chain(steps)

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

    def __init__(self, steps: Sequence[Step]) -> None:
        self._chain = _Chain(steps)
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
    """Does a chain for items and, as dicts, for the rows of batches among them."""

    def begin(self, ordinal: int, items: list[Any]) -> None:
        """Do the chain for a list, lazily where there are batches in it."""
        chain, emission = self._chain, self.emission
        if index_of_special(items, 0, Columnar) >= 0:
            rows = _rows_among(items)
            emission.start(chain.run_lazily(rows) if chain.steps else rows)
        elif "flat_map" in chain.kinds:
            super().begin(ordinal, items)
        else:
            made = chain.run_list(items) if chain.steps else items
            emission.drawn = len(made)
            emission.put(made)


def _rows_among(items: list[Any]) -> Iterator[Any]:
    for item in items:
        if issubclass(type(item), Columnar):
            yield from item.rows()
        else:
            yield item


class PassingProcessor(TransformingProcessor):
    """Hands every item on."""

    def transform(self, items: list[Any]) -> list[Any]:
        """Return the same list."""
        return items


def fused(steps: Sequence[Step], *, takes_batches: bool = False) -> Callable[[], Processor]:
    """Do several steps, one after the other, for each item.

    The result is that of a vertex for each step, joined by unicast edges: a map's None is left out, and flat_map's
    results are drawn lazily where they are not lists.

    Args:
        steps: in order; none: items are passed on.
        takes_batches: among the items may be batches, whose rows come as dicts, one by one.

    Raises:
        TypeError: a step's function cannot be called. ValueError: an unknown kind.

    Example:
        >>> from shmjet.testing import verify_processor
        >>> steps = [Step("map", lambda x: x + 1, "map"), Step("filter", lambda x: x % 2, "filter")]
        >>> verify_processor(fused(steps)).inputs([1, 2, 3, 4]).expect([3, 5])
    """
    for step in steps:
        if not callable(step.fn):
            raise TypeError(f"stage {step.name!r}: expected a function, got {type(step.fn).__name__}: {step.fn!r}")
        if step.kind not in ("map", "filter", "flat_map", "peek"):
            raise ValueError(f"stage {step.name!r}: unknown kind of step {step.kind!r}")
    if takes_batches:
        return Supply(FusedRowsProcessor, tuple(steps))
    if not steps:
        return Supply(PassingProcessor)
    expands = any(step.kind == "flat_map" for step in steps)
    return Supply(FusedExpandingProcessor if expands else FusedProcessor, tuple(steps))
