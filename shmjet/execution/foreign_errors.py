"""Reading exceptions of the user's, each part of which may be code of the user's that raises, lies or exits.

Texts that come out of here can be sent (`shmjet.data.sendable_text`).

`str(error)` runs `__str__`, an attribute may be a property, and assigning one runs `__setattr__`. Any of them may raise
`SystemExit` too. Nothing in here raises, with one exception: in the main thread of a program Ctrl-C stays Ctrl-C.
"""

from __future__ import annotations

import signal
import threading
import traceback
from collections.abc import Callable
from types import TracebackType
from typing import Any, TypeGuard, TypeVar

from shmjet.data.sendable_text import sendable

T = TypeVar("T")

MOST_TEXT = 1 << 20
"""Characters of a traceback or a text that are kept at most."""


def attempt(call: Callable[[], T], otherwise: Callable[[BaseException], T]) -> T:
    """Return what `call` returns, or what `otherwise` makes of the exception that it raised.

    Example:
        >>> attempt(lambda: 1 // 0, lambda error: -1)
        -1
    """
    try:
        return call()
    except BaseException as error:
        if issubclass(type(error), KeyboardInterrupt) and is_interactive():
            raise
        return otherwise(error)


def is_interactive() -> bool:
    """Say whether a `KeyboardInterrupt` in this thread may be a Ctrl-C."""
    in_main = threading.current_thread() is threading.main_thread()
    return in_main and signal.getsignal(signal.SIGINT) is not signal.SIG_IGN


def is_exception(found: object) -> TypeGuard[BaseException]:
    """Say whether an object can be raised. `isinstance` would believe its `__class__`."""
    return issubclass(type(found), BaseException)


def name_of(error: object) -> str:
    """Return the name of an object's class; built-in ones and those of `__main__` and shmjet without their module."""

    def name() -> str:
        kind = type(error)
        module, qualname = str(kind.__module__), str(kind.__qualname__)
        is_plain = module in ("builtins", "__main__") or module.startswith("shmjet.")
        return qualname if is_plain else f"{module}.{qualname}"

    return sendable(attempt(name, lambda _: str(type.__dict__["__name__"].__get__(type(error)))))


def text_of(error: object) -> str:
    """Return an exception's text, or which exception its `__str__` raised."""
    return attempt(lambda: _cut(str(error)), lambda broken: f"<its __str__ raised {name_of(broken)}>")


def notes_of(error: object) -> list[str]:
    """Return an exception's notes, as far as they are there and are texts."""

    def notes() -> list[str]:
        found = getattr(error, "__notes__", None)
        return [text_of(note) for note in found] if type(found) is list else []

    return attempt(notes, lambda _: [])


def traceback_text(error: BaseException, trace: TracebackType | None) -> str:
    """Return an exception with its causes and this traceback, as `traceback` formats it."""
    return attempt(
        lambda: _cut("".join(traceback.format_exception(type(error), error, trace))),
        lambda broken: f"{name_of(error)}: {text_of(error)} (its traceback cannot be shown: {name_of(broken)})",
    )


def set_cause(error: BaseException, cause: BaseException | None) -> None:
    """Set `__cause__`, whatever the class does about attributes."""
    _slot("__cause__").__set__(error, cause)


def forget_frames(error: BaseException) -> None:
    """Drop the tracebacks of an exception and of its causes and contexts, and with them the frames' variables."""
    seen: set[int] = set()
    left: list[BaseException | None] = [error]
    while left:
        one = left.pop()
        if one is None or id(one) in seen:
            continue
        seen.add(id(one))
        BaseException.with_traceback(one, None)
        left += [_slot("__cause__").__get__(one), _slot("__context__").__get__(one)]
        if issubclass(type(one), BaseExceptionGroup):
            left += BaseExceptionGroup.__dict__["exceptions"].__get__(one)


def _slot(name: str) -> Any:
    return BaseException.__dict__[name]


def _cut(text: str) -> str:
    text = sendable(text)
    return text if len(text) <= MOST_TEXT else f"{text[:MOST_TEXT]} … ({len(text) - MOST_TEXT:,} more characters)"
