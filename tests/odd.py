"""Exceptions and objects of a hostile user: what each part of them does when it is looked at, pickled or read back."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from tests.waiting import until_there


def leave() -> None:
    """Stand for an object that ends the thread which unpickles it."""
    raise SystemExit("unpickled")


def wait_elsewhere(pid: int, path: str) -> int:
    """Stand for an object that can be read back where it was made; elsewhere only when a file is there."""
    if os.getpid() != pid:
        until_there(path)
    return 5


class NoException(Exception):
    """Unpickles to a number."""

    def __reduce__(self) -> Any:
        return int, (5,)


class ExitingText(Exception):
    """Cannot be shown."""

    def __str__(self) -> str:
        raise SystemExit("shown")

    __repr__ = __str__


class ExitingPickle(Exception):
    """Cannot be pickled."""

    def __reduce__(self) -> Any:
        raise SystemExit("pickled")


class ExitingLoad(Exception):
    """Cannot be unpickled."""

    def __reduce__(self) -> Any:
        return leave, ()


class Frozen(Exception):
    """Lets no one set an attribute."""

    def __setattr__(self, name: str, value: object) -> None:
        raise GeneratorExit(name)


class Secretive(Exception):
    """Lets no one look at its class or its notes."""

    @property
    def __class__(self) -> Any:
        raise SystemExit("class")

    @property
    def __notes__(self) -> Any:
        raise SystemExit("notes")


class Pretender:
    """Says that it is an exception."""

    __class__ = ValueError


class NamelessKind(type):
    """Makes classes without a name or a hash."""

    def __getattribute__(cls, name: str) -> Any:
        if name in ("__module__", "__qualname__", "__name__"):
            raise SystemExit(name)
        return super().__getattribute__(name)

    def __hash__(cls) -> int:
        raise SystemExit("hash")


class Nameless(Exception, metaclass=NamelessKind):
    """Of such a class."""


class Pretending(Exception):
    """Unpickles to what says that it is an exception."""

    def __reduce__(self) -> Any:
        return Pretender, ()


class UnequalToAll(Exception):
    """Cannot be compared or hashed, and its truth is unknown."""

    def __eq__(self, other: object) -> bool:
        raise SystemExit("compared")

    def __hash__(self) -> int:
        raise SystemExit("hashed")

    def __bool__(self) -> bool:
        raise SystemExit("asked")


def circle() -> Exception:
    """Return an error that is the cause of its own cause."""
    first, second = ValueError("first"), ValueError("second")
    first.__cause__, second.__cause__ = second, first
    return first


def deep() -> Exception:
    """Return one with more causes than the stack is deep."""
    error = ValueError(0)
    for depth in range(1, 3000):
        outer = ValueError(depth)
        outer.__cause__, error = error, outer
    return error


def half() -> Exception:
    """Return one with text that UTF-8 has not, as the names of some files are."""
    error = type("Caf\udce9", (Exception,), {})("caf\udce9")
    error.add_note("in caf\udce9")
    return error


ODD: dict[str, Callable[[], BaseException]] = {
    "no exception": NoException,
    "exits when shown": ExitingText,
    "exits when pickled": ExitingPickle,
    "exits when unpickled": ExitingLoad,
    "cannot be changed": Frozen,
    "hides its class": Secretive,
    "has no name": Nameless,
    "pretends": Pretending,
    "equals nothing": UnequalToAll,
    "circle": circle,
    "deep": deep,
    "group": lambda: ExceptionGroup("several", [ExitingText(), NoException()]),
    "exit": lambda: SystemExit("raised"),
    "interrupt": lambda: KeyboardInterrupt("raised"),
    "generator": lambda: GeneratorExit("raised"),
    "memory": lambda: MemoryError("raised"),
    "no Unicode": half,
    "large": lambda: ValueError("x" * 30_000_000),
}
"""What makes each."""


def raise_odd(name: str) -> None:
    """Raise one of them."""
    raise ODD[name]()


def raise_odd_at(item: int, name: str) -> int:
    """Raise one of them for 7."""
    if item == 7:
        raise_odd(name)
    return item


class ExitsOnArrival:
    """A value that ends the thread which unpickles it."""

    def __reduce__(self) -> Any:
        return leave, ()


class ExitsOnDeparture:
    """A value that ends the thread which pickles it."""

    def __reduce__(self) -> Any:
        raise SystemExit("pickled")


class SlowToArrive:
    """A value that is read by another process only when a file is there."""

    def __init__(self, path: str) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return wait_elsewhere, (os.getpid(), self.path)
