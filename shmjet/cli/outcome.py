"""The outcome of a command: its exit status, and the one line that says why.

A command is a function that returns an `Outcome` or raises. What it raises is turned into a line on standard error
here, so that no command shows a traceback for something that the user can fix. Knows nothing of click.
"""

from __future__ import annotations

import enum
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

PATIENCE = 0.7
"""Seconds that an interrupted command may take to close its instance before the process ends regardless."""


class Outcome(enum.IntEnum):
    """The exit statuses of `shmjet`."""

    OK = 0
    FAILED = 1
    USAGE = 2
    INTERRUPTED = 130


class CommandError(Exception):
    """Ends a command with one line on standard error and an exit status (2, wrong usage, unless told otherwise)."""

    def __init__(self, text: str, outcome: Outcome = Outcome.USAGE) -> None:
        super().__init__(text)
        self.outcome = outcome


def guarded(command: Callable[[], int]) -> int:
    """Run `command` and return its exit status; print one line for what it raises.

    `ConfigError`, `CommandError` and interruption have their own status; any other `ShmjetError` is a failed job.
    Errors of no known kind are bugs and go through.
    """
    try:
        return command()
    except KeyboardInterrupt:
        return interrupted()
    except CommandError as error:
        complain(str(error))
        return error.outcome
    except BrokenPipeError:
        # The reader of our output has gone (`shmjet wordcount ... | head -1`): an error text would not be read.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return Outcome.FAILED
    except Exception as error:
        try:
            from shmjet import ConfigError, ShmjetError
        except ImportError as unusable:  # the C extension or a package is missing: its text says which
            print(f"shmjet: {unusable}", file=sys.stderr)  # without `complain`, which needs it, too
            return Outcome.FAILED
        if not isinstance(error, ShmjetError):
            raise
        complain(str(error) or type(error).__name__)
        return Outcome.USAGE if isinstance(error, ConfigError) else Outcome.FAILED


def complain(text: str) -> None:
    """Print `text` on standard error, after what is already on standard output; a terminal can be given it."""
    from shmjet.host.terminal_text import clean  # with all of `core`, which help and usage errors do without

    sys.stdout.flush()
    print(f"shmjet: {clean(text)}", file=sys.stderr, flush=True)


def interrupted() -> int:
    """Say so in one line, and see to it that the process ends soon, whatever its threads are doing."""
    # From here on nothing is left to do; another Ctrl-C must not show the traceback of a half-ended interpreter.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _count_as_handled()
    _end_soon()
    complain("interrupted")
    return Outcome.INTERRUPTED


def _count_as_handled() -> None:
    """Let the interpreter end with the status that it is given, and not by SIGINT.

    It ends its process by SIGINT when the last source text that it ran was left by a `KeyboardInterrupt`, whatever has
    been done about that since. Any import may run source text: `dataclass` and `namedtuple` write their methods.
    """
    exec("")


@contextmanager
def prompt_on_interrupt() -> Iterator[None]:
    """Bring the user back to the prompt within a second of Ctrl-C, even if closing the instance takes longer.

    For commands whose work has no use after an interruption; the member notices that its client has gone and cleans
    up by itself. A script of the user's (`shmjet run`) is left to handle the interruption as it likes.
    """

    def on_interrupt(_number: int, _frame: FrameType | None) -> None:
        timer = threading.Timer(PATIENCE, _leave_now)
        timer.daemon = True
        timer.start()
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGINT, on_interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _leave_now() -> None:
    if sys.stderr.isatty():
        sys.stderr.write("\r\x1b[?25h\x1b[K")  # a progress bar had hidden the cursor
    complain("interrupted")
    os._exit(Outcome.INTERRUPTED)


def _end_soon() -> None:
    timer = threading.Timer(PATIENCE, os._exit, (int(Outcome.INTERRUPTED),))
    timer.daemon = True
    timer.start()
