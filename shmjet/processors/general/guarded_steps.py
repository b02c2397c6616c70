"""Fused steps of which some have an `on_error`: the same chain, with a `try` around each call of such a step.

As in `fused_code`, a function is written out and compiled once for each shape of a chain; a `try` that catches nothing
costs nothing. Steps without a policy are as in any chain: what they raise fails the job. Must not know: who fuses what.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NoReturn, Protocol

from shmjet.core.inbox import Inbox
from shmjet.core.processor import ProcessorContext
from shmjet.processors.general.base import ExpandingProcessor
from shmjet.processors.general.failures import OnError
from shmjet.processors.general.item_calls import refuse_none

_FOLDER = os.path.dirname(os.path.abspath(__file__))


class GuardedStep(Protocol):
    """What this module wants to know of a step."""

    @property
    def kind(self) -> str: ...
    @property
    def fn(self) -> Callable[[Any], Any]: ...
    @property
    def name(self) -> str: ...
    @property
    def on_error(self) -> OnError | None: ...


Shape = tuple[tuple[str, bool], ...]
"""Kind of each step, and whether it has a policy."""


@functools.cache
def source(shape: Shape, takes_time: bool, gives_time: bool) -> tuple[str, dict[int, int]]:
    """Return the text of a generator function for a shape, and line → step.

    Args:
        shape: of the chain.
        takes_time: timed items come.
        gives_time: timed items go.
    """
    lines: list[str] = []
    steps: dict[int, int] = {}

    def write(text: str, step: int) -> None:
        lines.append(text)
        steps[len(lines)] = step

    names = ", ".join(f"f{i}" for i in range(len(shape)))
    lines.append(f"def run(items, failed, drawn, refuse_none, {names}):")
    lines.append(f"    for {'t, v' if takes_time else 'v'} in items:")
    indent, value = "        ", "v"
    for i, (kind, is_guarded) in enumerate(shape):
        call = f"v{i} = f{i}({value})"
        if is_guarded:
            lines.append(f"{indent}try:")
            write(f"{indent}    {call}", i)
            lines.append(f"{indent}except Exception as e:")
            lines.append(f"{indent}    failed({i}, {value}, e)")
            lines.append(f"{indent}    continue")
        else:
            write(f"{indent}{call}", i)
        if kind == "map":
            lines.append(f"{indent}if v{i} is None: continue")
            value = f"v{i}"
        elif kind == "flat_map":
            write(f"{indent}for w{i} in drawn({i}, {value}, v{i}):", i)
            indent += "    "
            value = f"w{i}"
        else:
            lines.append(f"{indent}if not v{i}: continue")
    if shape[-1][0] == "flat_map" and gives_time:
        write(f"{indent}if {value} is None: refuse_none({len(shape) - 1})", len(shape) - 1)
    lines.append(f"{indent}yield {f't, {value}' if gives_time else value}")
    return "\n".join(lines), steps


@functools.cache
def _compiled(shape: Shape, takes_time: bool, gives_time: bool) -> Callable[..., Any]:
    text, _ = source(shape, takes_time, gives_time)
    namespace: dict[str, Any] = {"__name__": __name__}
    exec(compile(text, _file_name(shape, takes_time, gives_time), "exec"), namespace)
    made: Callable[..., Any] = namespace["run"]
    return made


def _file_name(shape: Shape, takes_time: bool, gives_time: bool) -> str:
    """Return what tracebacks call the file of a shape; it lies in this package, so that no user sees its frames."""
    kinds = ", ".join(kind + " with on_error" * is_guarded for kind, is_guarded in shape)
    return os.path.join(_FOLDER, f"<{kinds}, time {takes_time} {gives_time}>")


class GuardedStepsProcessor(ExpandingProcessor):
    """Does a chain in which some steps have a policy for errors.

    Args:
        steps: in order.
        takes_time: timed items come; steps see the items.
        gives_time: timed items go.
        unpacked: makes of a list of items what the chain gets: the rows of batches among them; None: the list.
    """

    def __init__(
        self,
        steps: Sequence[GuardedStep],
        takes_time: bool = False,
        gives_time: bool = False,
        unpacked: Callable[[list[Any]], Iterable[Any]] | None = None,
    ) -> None:
        self._steps = tuple(steps)
        self._times = takes_time, gives_time
        self._unpacked = unpacked
        self._shape: Shape = tuple((step.kind, step.on_error is not None) for step in steps)
        self.failure_policies = tuple(step.on_error for step in steps)

    def start(self, context: ProcessorContext) -> None:
        """Bind functions that want to know the context."""
        fns = [step.fn.bind(context) if hasattr(step.fn, "bind") else step.fn for step in self._steps]
        self._fns: tuple[Callable[[Any], Any], ...] = tuple(fns)

    def expand(self, ordinal: int, items: list[Any]) -> Iterator[Any]:
        """Do the chain for a list, lazily."""
        given = items if self._unpacked is None else self._unpacked(items)
        made: Iterator[Any] = _compiled(self._shape, *self._times)(
            given, self._failed, self._drawn, self._refuse_none, *self._fns
        )
        return made

    def process(self, ordinal: int, inbox: Inbox) -> None:
        """As `ExpandingProcessor`; an error is noted to come from its stage."""
        try:
            super().process(ordinal, inbox)
        except Exception as error:
            self._blame(error)
            raise

    def _failed(self, step: int, item: Any, error: Exception) -> None:
        policy = self._steps[step].on_error
        assert policy is not None
        assert self.guard is not None
        self.guard.failed(policy, item, error)

    def _drawn(self, step: int, item: Any, results: Any) -> Iterable[Any]:
        """Return the results of a flat_map, to be drawn."""
        policy, name = self._steps[step].on_error, self._steps[step].name
        if policy is not None:
            assert self.guard is not None
            return self.guard.results(policy, item, results)
        try:
            drawn: Iterator[Any] = iter(results)
        except TypeError:
            raise TypeError(
                f"stage {name!r}: {type(results).__name__!r} object is not iterable; the function of a flat_map must "
                "return an iterable for every item, [] for none"
            ) from None
        return drawn

    def _refuse_none(self, step: int) -> NoReturn:
        refuse_none(self._steps[step].name)

    def _blame(self, error: BaseException) -> None:
        """Note on an error from which stage it came, when there are several."""
        trace = error.__traceback__
        name = _file_name(self._shape, *self._times)
        while trace is not None and len(self._steps) > 1:
            step = source(self._shape, *self._times)[1].get(trace.tb_lineno)
            if trace.tb_frame.f_code.co_filename == name and step is not None:
                error.add_note(f"in stage {self._steps[step].name!r}")
                return
            trace = trace.tb_next
