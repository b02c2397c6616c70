"""Items whose functions raise, in stages that have an `on_error`: they are skipped, or go to a side output.

Side outputs are the last outbound ordinals of a vertex, all others are its main output. A failed item travels bare,
without its event time, as a `FailedItem`. Must not know: what the functions compute.
"""

from __future__ import annotations

import linecache
import os
import traceback
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from time import monotonic
from typing import Any

from shmjet.core.context import ProcessorContext
from shmjet.core.outbox import Ordinals, Outbox
from shmjet.data.errors import MemberLostError, ProcessorError, RestartableError, WorkerLostError
from shmjet.data.failed_item import FailedItem
from shmjet.grid.errors import GridError

NEVER_CAUGHT = (RestartableError, ProcessorError, MemberLostError, WorkerLostError, GridError, MemoryError)
"""Errors that say nothing about the item: they fail or restart the job whatever `on_error` says."""

LOG_PERIOD = 10.0
"""Seconds between two log lines of a processor about failed items."""

_MOST_TEXT = 8_192
_PACKAGE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))) + os.sep


@dataclass(frozen=True)
class OnError:
    """What is done with an item whose function raises.

    Args:
        stage: name of the stage, for the `FailedItem` and the log.
        side: the side output that gets the `FailedItem`, from 0; None: the item is skipped.
    """

    stage: str
    side: int | None = None


def side_count(policies: Sequence[OnError | None]) -> int:
    """Return how many side outputs a vertex with these policies has.

    Example:
        >>> side_count([OnError("a", 0), OnError("b"), None])
        1
    """
    return max((policy.side + 1 for policy in policies if policy is not None and policy.side is not None), default=0)


def main_ordinals(outbox: Outbox, sides: int) -> Ordinals:
    """Return the ordinals of the main output: all but the last `sides`.

    Raises:
        ProcessorError: there are fewer outbound edges.
    """
    if not sides:
        return -1
    main = outbox.bucket_count - sides
    if main < 0:
        raise ProcessorError(
            f"the vertex needs {sides} outbound edges for failed items, after all others, but has {outbox.bucket_count}"
        )
    return 0 if main == 1 else tuple(range(main))


class FailureGuard:
    """Takes failed items of one processor, counts them, and emits them on side outputs.

    Args:
        policies: of the processor's functions.
        outbox, context: the processor's.
    """

    def __init__(self, policies: Sequence[OnError | None], outbox: Outbox, context: ProcessorContext) -> None:
        self._outbox = outbox
        self._logger = context.logger
        self._first = outbox.bucket_count - side_count(policies)
        self._waiting: dict[int, list[FailedItem]] = {}
        self._logged_at = -LOG_PERIOD
        self._logged = 0
        self._count = 0
        self.skipped = 0
        """Items that have failed so far and go nowhere."""

    @property
    def idle(self) -> bool:
        """True when no failed item waits to be emitted."""
        return not self._waiting

    def failed(self, policy: OnError, item: Any, error: Exception) -> None:
        """Take an item that has failed.

        Args:
            policy: of the function that raised.
            item: as the function got it.
            error: that it raised.

        Raises:
            Exception: the error itself, if it says nothing about the item (`NEVER_CAUGHT`).
        """
        if isinstance(error, NEVER_CAUGHT):
            raise error
        self._count += 1
        if policy.side is None:
            self.skipped += 1
        else:
            waiting = self._waiting.setdefault(self._first + policy.side, [])
            waiting.append(FailedItem(item, policy.stage, error_text(error), traceback_text(error)))
        now = monotonic()
        if now - self._logged_at >= LOG_PERIOD:
            self._log(policy, item, error, now)

    def flush(self) -> bool:
        """Emit failed items as far as there is room. Returns True when none waits any more.

        The outbox must not wait for an item of the main output that it has refused.
        """
        waiting, outbox = self._waiting, self._outbox
        for ordinal in list(waiting):
            items = waiting[ordinal]
            accepted = outbox.offer_all(items[: outbox.room(ordinal)], ordinal)
            if accepted == len(items):
                del waiting[ordinal]
            else:
                del items[:accepted]
        return not waiting

    def _log(self, policy: OnError, item: Any, error: Exception, now: float) -> None:
        more = self._count - self._logged - 1
        self._logger.warning(
            "stage %r: an item failed and was %s: %s\n%s%s",
            policy.stage,
            "skipped" if policy.side is None else "sent to the sink for errors",
            _item_text(item),
            traceback_text(error),
            f"({more:,} more items have failed since the last such message)" if more else "",
        )
        self._logged_at, self._logged = now, self._count

    def results(self, policy: OnError, item: Any, results: Any) -> Iterator[Any]:
        """Yield what a function returned for an item; if drawing it raises, the item has failed.

        Results that were drawn before stay.
        """
        try:
            drawn = iter(results)
        except Exception as error:
            self.failed(policy, item, error)
            return
        while True:
            try:
                result = next(drawn)
            except StopIteration:
                return
            except Exception as error:
                self.failed(policy, item, error)
                return
            yield result


def error_text(error: BaseException) -> str:
    """Return class and text of an error, whatever its class does.

    Example:
        >>> error_text(ValueError("no number: 'x'"))
        "ValueError: no number: 'x'"
    """
    name = type(error).__qualname__
    try:
        text = str(error)
    except Exception as broken:
        text = f"<its __str__ raised {type(broken).__qualname__}>"
    return _cut(f"{name}: {text}" if text else name)


def traceback_text(error: BaseException) -> str:
    """Return the traceback of an error without the engine's frames, as Python prints it."""
    if error.__cause__ is None and error.__context__ is None:
        lines = [line for frame in traceback.walk_tb(error.__traceback__) for line in _frame_lines(*frame)]
        head = ["Traceback (most recent call last):"] if lines else []
        return _cut("\n".join([*head, *lines, *_notes(error)]))
    try:
        found = traceback.TracebackException.from_exception(error)
        each: traceback.TracebackException | None = found
        while each is not None:
            each.stack = traceback.StackSummary.from_list(
                [f for f in each.stack if not f.filename.startswith(_PACKAGE)]
            )
            each = each.__cause__ or each.__context__
        return _cut("".join(found.format()).rstrip("\n"))
    except Exception:
        return error_text(error)


def _frame_lines(frame: Any, number: int) -> Iterator[str]:
    code = frame.f_code
    if not code.co_filename.startswith(_PACKAGE):
        yield f'  File "{code.co_filename}", line {number}, in {code.co_qualname}'
        line = linecache.getline(code.co_filename, number, frame.f_globals).strip()
        if line:
            yield f"    {line}"


def _notes(error: BaseException) -> list[str]:
    notes = getattr(error, "__notes__", None)
    return [error_text(error), *(note for note in notes if isinstance(note, str))] if notes else [error_text(error)]


def _item_text(item: Any) -> str:
    try:
        return f"{item!r:.200}"
    except Exception:
        return f"<{type(item).__name__}>"


def _cut(text: str) -> str:
    return text if len(text) <= _MOST_TEXT else f"{text[:_MOST_TEXT]} … ({len(text) - _MOST_TEXT:,} more characters)"
