"""The code of fused steps: for each shape of a chain a function is written out and compiled once.

A chain takes items or timed items, and gives either; its steps see items. Must not know processors.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Collection, Iterator
from itertools import repeat
from types import NoneType
from typing import Any, Literal, NoReturn

from shmjet._native import index_of_special

Kind = Literal["map", "filter", "flat_map", "peek"]

Form = Literal["list", "lazy", "loops"]
"""A comprehension, a generator, or loops that put results into a list until one has to be drawn lazily."""

Times = Literal["none", "kept", "dropped"]
"""What happens to event time: there is none, so items come and go; timed items come and go; timed items come and items
go."""

_FOLDER = os.path.dirname(os.path.abspath(__file__))


@functools.cache
def source(kinds: tuple[Kind, ...], start: int, form: Form, times: Times) -> tuple[str, dict[int, int]]:
    """Return the text of a function for the steps from `start` on, and line → step."""
    if form == "loops":
        return _loops(kinds, times)
    lines: list[str] = []
    steps: dict[int, int] = {}
    result = next((f"v{i}" for i in range(len(kinds) - 1, start - 1, -1) if kinds[i] in ("map", "flat_map")), "")
    item, value = ("v", "v") if times == "none" else ("t, v", "v")
    if times == "kept":
        if result:
            result = f"(t, {result})"
        else:
            item, value, result = "p", "p[1]", "p"
    opening, closing = "[]" if form == "list" else "()"
    lines.append(f"def run(items, iterated, {_names(kinds)}):")
    lines.append(f"    return {opening}{result or value} for {item} in items")
    for i in range(start, len(kinds)):
        if kinds[i] == "map":
            lines.append(f"        for v{i} in (f{i}({value}),) if v{i} is not None")
            value = f"v{i}"
        elif kinds[i] == "flat_map":
            lines.append(f"        for v{i} in iterated({i}, f{i}({value}))")
            value = f"v{i}"
        else:
            lines.append(f"        if f{i}({value})")
        steps[len(lines)] = i
    if times == "kept" and _last_maker(kinds) == "flat_map":
        lines.append(f"        if {value} is not None or refuse_none()")
    lines.append(f"    {closing}")
    return "\n".join(lines), steps


def _loops(kinds: tuple[Kind, ...], times: Times) -> tuple[str, dict[int, int]]:
    lines: list[str] = []
    steps: dict[int, int] = {}

    def write(text: str, step: int = -1) -> None:
        lines.append(text)
        if step >= 0:
            steps[len(lines)] = step

    item, time = ("v", "None") if times == "none" else ("t, v", "t")
    value = "v"
    write(f"def run(items, out, small, {_names(kinds)}):")
    if kinds[-1] != "flat_map":
        write("    add = out.append")
    write(f"    for {item} in items:")
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
            write(f"{indent}if i{i}.__class__ is not list and not small(i{i}): return {time}, (({i}, i{i}), {pending})")
            if i == len(kinds) - 1:
                write(f"{indent}out += {f'with_time(t, i{i})' if times == 'kept' else f'i{i}'}", i)
            else:
                write(f"{indent}i{i} = iter(i{i})")
                write(f"{indent}for v{i} in i{i}:", i)
                indent += "    "
                open_loops.append(i)
            value = f"v{i}"
        else:
            write(f"{indent}if not f{i}({value}): continue", i)
    if kinds[-1] != "flat_map":
        if times == "kept" and _last_maker(kinds) == "flat_map":
            write(f"{indent}if {value} is None: refuse_none()")
        write(f"{indent}add({f'(t, {value})' if times == 'kept' else value})")
    write("    return None, ()")
    return "\n".join(lines), steps


def _last_maker(kinds: tuple[Kind, ...]) -> str:
    """Return the kind of the last step that makes items, empty where none does."""
    return next((kind for kind in reversed(kinds) if kind in ("map", "flat_map")), "")


def _with_time(time: int, results: Collection[Any]) -> Iterator[tuple[int, Any]]:
    """Return the results of a flat_map with their time; None among them is an error, which no outbox would see."""
    if index_of_special(results if type(results) is list else list(results), 0, NoneType) >= 0:
        _refuse_none()
    return zip(repeat(time), results)


def _refuse_none() -> NoReturn:
    raise TypeError("None is never an item: the function of a flat_map must leave it out of its results")


def _names(kinds: tuple[Kind, ...]) -> str:
    return ", ".join(f"f{i}" for i in range(len(kinds)))


@functools.cache
def compiled(kinds: tuple[Kind, ...], start: int, form: Form, times: Times) -> Callable[..., Any]:
    """Return the function for a shape; its file name lies in this package, so that no user sees its frames."""
    text, _ = source(kinds, start, form, times)
    namespace: dict[str, Any] = {"__name__": __name__, "with_time": _with_time, "refuse_none": _refuse_none}
    exec(compile(text, file_name(kinds, start, form, times), "exec"), namespace)
    made: Callable[..., Any] = namespace["run"]
    return made


def file_name(kinds: tuple[Kind, ...], start: int, form: Form, times: Times) -> str:
    """Return what tracebacks call the file of a shape."""
    kept = "" if times == "none" else f", time {times}"
    return os.path.join(_FOLDER, f"<{form} of {', '.join(kinds[start:])} from {start}{kept}>")
