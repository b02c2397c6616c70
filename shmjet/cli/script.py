"""Running a user's script in this process, as `__main__`, the way `python script.py` would.

Classes and functions of the script therefore belong to `__main__` and travel to the workers by value. Tracebacks begin
at the script's own first frame.
"""

from __future__ import annotations

import os
import sys
import traceback
import types
from collections.abc import Sequence
from importlib.machinery import SourceFileLoader
from pathlib import Path
from typing import Any

from shmjet.cli.outcome import CommandError, Outcome, complain
from shmjet.host.terminal_text import clean


def execute(path: Path, arguments: Sequence[str]) -> dict[str, Any]:
    """Execute the script as `__main__` with `sys.argv` set, and return its globals.

    `__main__` stays the script's module afterwards: its threads and exit handlers may still need it. Raises whatever
    the script raises, and `CommandError` when there is no such file.
    """
    if not path.is_file():
        raise CommandError(f"no such script: {path}" if not path.exists() else f"not a file: {path}")
    try:
        source = path.read_bytes()
    except OSError as error:
        raise CommandError(f"cannot read {path}: {error.strerror}") from None
    module = types.ModuleType("__main__")
    module.__file__ = str(path)
    module.__loader__ = SourceFileLoader("__main__", str(path))
    sys.modules["__main__"] = module
    sys.argv = [str(path), *arguments]
    sys.path.insert(0, str(path.resolve().parent))
    exec(compile(source, str(path), "exec", dont_inherit=True), module.__dict__)
    return module.__dict__


def run_script(path: Path, arguments: Sequence[str], *, progress: bool = False) -> int:
    """Run the script and return its exit status: what it gives to `sys.exit`, or 1 for an error, which is printed.

    Args:
        path: the script; `arguments` become its `sys.argv[1:]`.
        progress: let every `Job.run` show its progress.
    """
    from shmjet import JobFailedError

    if progress:
        from shmjet.cluster.client.job import PROGRESS_VARIABLE

        os.environ[PROGRESS_VARIABLE] = "1"
    try:
        execute(path, arguments)
    except SystemExit as request:
        return _status_of(request)
    except JobFailedError as error:
        complain(str(error))
        return Outcome.FAILED
    except (KeyboardInterrupt, CommandError):
        raise
    except BaseException as error:
        sys.stdout.flush()
        print_from_script(error, path)
        return Outcome.FAILED
    return Outcome.OK


def print_from_script(error: BaseException, path: Path) -> None:
    """Print the traceback of `error`, fit for a terminal, on standard error, without the frames above the script."""
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename != str(path):
        trace = trace.tb_next
    if not isinstance(error, SyntaxError) and trace is None:
        trace = error.__traceback__
    print(clean("".join(traceback.format_exception(type(error), error, trace))), end="", file=sys.stderr)


def _status_of(request: SystemExit) -> int:
    if request.code is None:
        return Outcome.OK
    if isinstance(request.code, int):
        return request.code
    sys.stdout.flush()
    print(request.code, file=sys.stderr)
    return Outcome.FAILED
