"""The public surface stays as it is written down in `public_surface.txt`: names, methods and their arguments.

After a change on purpose, `python -m tests.test_public` writes it anew, and the commit shows the change.
"""

from __future__ import annotations

import difflib
import enum
import importlib
import inspect
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import shmjet

WRITTEN = Path(__file__).with_name("public_surface.txt")
HINT = "if that is meant, write it down: python -m tests.test_public"

MODULES = ("aggregate_ops", "columns", "processors", "sinks", "sources", "testing")
"""The modules from which users import names, with `shmjet` itself."""

_FIELDS = ("__match_args__", "__struct_fields__")


def surface() -> Iterator[str]:
    """Yield a line for each public name, and for each public member of a class."""
    yield from _of_module(shmjet, shmjet.__all__)
    for name in MODULES:
        module = importlib.import_module(f"shmjet.{name}")
        yield from _of_module(module, getattr(module, "__all__", None) or _own_names(module))


def _own_names(module: ModuleType) -> list[str]:
    return [
        name
        for name, value in vars(module).items()
        if not name.startswith("_") and getattr(value, "__module__", "").startswith("shmjet")
    ]


def _of_module(module: ModuleType, names: list[str]) -> Iterator[str]:
    for name in sorted(names):
        value = getattr(module, name)
        if isinstance(value, ModuleType):
            yield f"{module.__name__}.{name}: module"
        elif inspect.isclass(value):
            yield f"{module.__name__}.{name}{_arguments(value)}"
            yield from _of_class(f"{module.__name__}.{name}", value)
        elif callable(value):
            yield f"{module.__name__}.{name}{_arguments(value)}"
        else:
            yield f"{module.__name__}.{name}: {type(value).__name__}"


def _of_class(where: str, kind: type) -> Iterator[str]:
    for name in sorted(dir(kind)):
        if name.startswith("_") or not _is_ours(kind, name):
            continue
        value = inspect.getattr_static(kind, name)
        if isinstance(value, (staticmethod, classmethod)):
            value = value.__func__
        if callable(value) and not inspect.isclass(value):
            yield f"{where}.{name}{_arguments(value)}"
        else:
            yield f"{where}.{name}"


def _is_ours(kind: type, name: str) -> bool:
    """Whether a name comes from a class of shmjet, not from `Future`, `Enum` and the like."""
    return any(name in vars(base) and base.__module__.startswith("shmjet") for base in kind.__mro__)


def _arguments(value: Any) -> str:
    """Return names, kinds and defaults of the arguments; types are mypy's business."""
    if isinstance(value, enum.EnumType):
        return "(value)"  # what Python says beyond that depends on its version
    try:
        signature = inspect.signature(value)
    except (TypeError, ValueError):
        return "(...)"
    plain = [
        parameter.replace(annotation=inspect.Parameter.empty, default=_default(parameter.default))
        for parameter in signature.parameters.values()
    ]
    return str(signature.replace(parameters=plain, return_annotation=inspect.Signature.empty))


class _Shown:
    """Stands for a default value whose text is not the same everywhere."""

    def __init__(self, text: str) -> None:
        self._text = text

    def __repr__(self) -> str:
        return self._text


def _default(value: Any) -> Any:
    if value is inspect.Parameter.empty or isinstance(value, (int, float, str, bytes, tuple, type(None))):
        return value
    return _Shown(f"<{type(value).__name__}>")


def test_the_public_surface_is_the_one_written_down() -> None:
    now, written = list(surface()), WRITTEN.read_text().splitlines()
    lines = difflib.unified_diff(written, now, lineterm="", n=0)
    changes = [line for line in lines if line[:2] not in ("--", "++", "@@")]
    assert not changes, "\n".join([f"the public surface has moved; {HINT}", *changes])


def test_every_public_name_explains_itself_with_an_example() -> None:
    for module in (shmjet, *(importlib.import_module(f"shmjet.{name}") for name in MODULES)):
        for name in module.__all__:
            value = getattr(module, name)
            if inspect.isclass(value) or inspect.isfunction(value):
                assert ">>>" in (inspect.getdoc(value) or ""), f"{module.__name__}.{name} has no example"


def test_no_public_object_has_a_bare_repr() -> None:
    """What one gets to see at a prompt names itself, not its address in memory."""
    dag = shmjet.DAG()
    a, b = dag.new_vertex("a", shmjet.processors.noop()), dag.new_vertex("b", shmjet.processors.noop())
    pipeline = shmjet.Pipeline()
    stage = pipeline.read_from(shmjet.sources.items([1]))
    seen = [dag, a, shmjet.between(a, b), pipeline, stage, stage.grouping_key(lambda x: x), shmjet.Table("t")]
    seen += [shmjet.PoolExecutor(2), shmjet.JetConfig(), shmjet.JobConfig(), shmjet.EdgeConfig()]
    seen += [shmjet.Watermark(3), shmjet.aggregate_ops.averaging(len), shmjet.column("x")]
    seen += [shmjet.sources.items([1]), shmjet.sinks.noop()]
    for each in seen:
        assert " at 0x" not in repr(each), repr(each)
    assert repr(shmjet.PoolExecutor(2)) == "<PoolExecutor of 2 workers, 0 started>"


if __name__ == "__main__":
    WRITTEN.write_text("\n".join(surface()) + "\n")
