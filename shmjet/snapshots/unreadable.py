"""Which entry of a piece cannot be unpickled, and which class or function it is that fails.

A piece is one pickle, so the error of one entry hides all others. Here it is unpickled again with stand-ins in place of
what is missing or raises; the first entry with a stand-in in it is named. Used after a failure only, so it may take its
time. Must not know vertices.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from shmjet.ring.class_versions import ClassName, NewerClasses
from shmjet.ring.pickling import Buffer, loads_by

_MOST_NAMES: Final = 64
"""Classes and functions that are tried one after the other."""
_MOST_DEPTH: Final = 20
"""Containers in containers in which a stand-in is looked for."""


def unreadable_entry(payload: Buffer, classes: Mapping[ClassName, type]) -> tuple[str, str] | None:
    """Find the entry because of which a list of entries cannot be unpickled.

    Args:
        payload: of a piece, which cannot be read.
        classes: of the job, with which it was to be read.

    Returns:
        the key of the entry, as a text, and the name of the class or function that is missing or raises; None when it
        cannot be found.
    """
    seen: set[ClassName] = set()

    def entries_with(*replaced: ClassName) -> list[tuple[Any, Any]] | None:
        def load(stream: memoryview, buffers: Iterable[Any]) -> Any:
            return _Trial(stream, buffers, classes, frozenset(replaced), seen).load()

        try:
            return list(loads_by(payload, load))
        except Exception:
            return None

    entries = entries_with()
    for name in sorted(seen)[:_MOST_NAMES]:
        if entries is not None:
            break
        entries = entries_with(name)
    return None if entries is None else _first_with_stand_in(entries)


class _StandIn:
    """Takes the place of an object: it can be made, called and filled in every way that a pickle knows."""

    name = ""

    def __new__(cls, *_: Any, **__: Any) -> _StandIn:
        return super().__new__(cls)

    def __init__(self, *_: Any, **__: Any) -> None:
        pass

    def __setstate__(self, state: object) -> None:
        pass

    def __setitem__(self, key: object, value: object) -> None:
        pass

    def append(self, item: object) -> None:
        """Take an item as a list would."""

    def extend(self, items: object) -> None:
        """Take items as a list would."""

    def add(self, item: object) -> None:
        """Take an item as a set would."""


class _Trial(NewerClasses):
    """One attempt to unpickle, with stand-ins for some names and for all that cannot be imported.

    Args:
        stream, buffers, classes: as of `NewerClasses`.
        replaced: the names that stand-ins replace.
        seen: gets the names of all others.
    """

    def __init__(
        self,
        stream: memoryview,
        buffers: Iterable[Any],
        classes: Mapping[ClassName, type],
        replaced: frozenset[ClassName],
        seen: set[ClassName],
    ) -> None:
        super().__init__(stream, buffers, classes)
        self._replaced = replaced
        self._seen = seen

    def find_class(self, module: str, name: str, /) -> Any:
        """Return what a pickle names, or a stand-in."""
        if (module, name) in self._replaced:
            return _stand_in_for(module, name)
        try:
            found = super().find_class(module, name)
        except Exception:
            return _stand_in_for(module, name)
        if not module.startswith("cloudpickle"):  # that makes classes, which `own_class` sees
            self._seen.add((module, name))
        return found

    def own_class(self, module: object, name: str) -> type | None:
        """Return the class of the job of that name, or a stand-in."""
        if (str(module), name) in self._replaced:
            stand_in = _stand_in_for(str(module), name)
            self.taken.add(stand_in)
            return stand_in
        own = super().own_class(module, name)
        if own is not None:
            self._seen.add((str(module), name))
        return own


def _stand_in_for(module: str, name: str) -> type[_StandIn]:
    return type("StandIn", (_StandIn,), {"name": f"{module}.{name}"})


def short_text(key: object) -> str:
    """Return a key as a text of at most 80 characters."""
    try:
        text = repr(key)
    except Exception:
        text = f"<{type(key).__name__}>"
    return text if len(text) <= 80 else text[:79] + "…"


def _first_with_stand_in(entries: list[tuple[Any, Any]]) -> tuple[str, str] | None:
    for key, value in entries:
        for found in _stand_ins((key, value), _MOST_DEPTH):
            return short_text(key), found
    return None


def _stand_ins(value: Any, depth: int) -> Iterator[str]:
    """Yield the names of the stand-ins in a value."""
    if isinstance(value, _StandIn) or (isinstance(value, type) and issubclass(value, _StandIn)):
        yield value.name
    elif depth:
        for part in _parts(value):
            yield from _stand_ins(part, depth - 1)


def _parts(value: Any) -> Iterable[Any]:
    if isinstance(value, tuple | list | set | frozenset):
        return value
    if isinstance(value, dict):
        return (part for pair in value.items() for part in pair)
    return vars(value).values() if hasattr(value, "__dict__") and not isinstance(value, type) else ()
