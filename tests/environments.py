"""Environments that a program may find itself in, and a program that uses all of shmjet in one of them.

A `Setting` is one odd thing about an environment; several go together in one process, which runs a pipeline, a pool and
a command, and says on a pipe of its own what came of it: its standard output may be closed.
"""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]

PROGRAM = """
    import os, sys

    def main():
        import subprocess
        import shmjet
        from shmjet import JetConfig, Pipeline, PoolExecutor, aggregate_ops, sinks, sources

        with shmjet.new_instance(JetConfig(cores=2)) as jet:
            p = Pipeline()
            words = p.read_from(sources.items(["a b", "b c", "c \\u00e4"] * 200)).flat_map(str.split)
            counts = words.grouping_key(lambda word: word).aggregate(aggregate_ops.counting())
            counts.sort(key=lambda pair: pair[0]).write_to(sinks.list("counts"))
            jet.new_job(p).run(60)
            found = list(jet.get_list("counts"))
            assert found == [("a", 200), ("b", 400), ("c", 400), ("\\u00e4", 200)], found
            with PoolExecutor(2) as pool:
                assert list(pool.map(abs, range(-50, 0), chunksize=5)) == list(range(50, 0, -1))
                pool.submit(print, "a task that prints").result(60)
            cli = [sys.executable, "-P", "-c", f"import sys; sys.path.insert(0, {sys.path[0]!r}); "
                   "from shmjet.cli.main import main; main()", "cluster", "--json"]
            done = subprocess.run(cli, stdout=subprocess.PIPE, timeout=60, check=True)
            assert str(jet.folder) in done.stdout.decode(), done.stdout
        for number in {closed}:
            # /dev/null has taken the place of what was closed, and nothing of shmjet's.
            assert os.readlink(f"/proc/self/fd/{number}") == "/dev/null"

"""

ANSWER = """
    import os, sys, traceback

    if __name__ == "__main__":
        try:
            main()
            said = "fine"
        except BaseException as error:
            said = f"{type(error).__name__}: {error}\\n{traceback.format_exc()}"
        with open(int(sys.argv[1]), "w", encoding="utf-8", errors="backslashreplace") as answer:
            answer.write(said)
"""


@dataclass(frozen=True)
class Setting:
    """One thing about an environment.

    `prepare` runs in the child before it executes anything; `variables` of None are removed; `flags` are Python's.
    `fails_with` is a pattern that an error may match instead of success. `closed` are descriptors.
    """

    name: str
    prepare: Callable[[], Any] | None = None
    variables: dict[str, str | None] = field(default_factory=dict)
    flags: tuple[str, ...] = ()
    fails_with: str = ""
    closed: tuple[int, ...] = ()
    wrapper: tuple[str, ...] = ()
    """A command that runs Python, which follows."""
    root: bool = False
    """Only root can make it."""


def run(
    settings: Sequence[Setting], *, python: str = sys.executable, program: str = PROGRAM, timeout: float = 120
) -> tuple[str, str]:
    """Return what the program, a `main()`, says in an environment ("fine" if it returns), and what it has written."""
    reader, writer = os.pipe()
    closed = sorted({number for setting in settings for number in setting.closed})
    text = textwrap.dedent(program).replace("{closed}", repr(closed)) + textwrap.dedent(ANSWER)
    environment = {**os.environ, "PYTHONUNBUFFERED": ""}
    flags: list[str] = []
    wrapper: list[str] = []
    for setting in settings:
        flags += setting.flags
        wrapper += setting.wrapper
        for name, value in setting.variables.items():
            environment.pop(name, None)
            if value is not None:
                environment[name] = value

    def prepare() -> None:
        for setting in settings:
            if setting.prepare is not None:
                setting.prepare()
        for number in closed:
            os.close(number)

    text = f"import sys; sys.path.insert(0, {str(ROOT)!r})\n{text}"
    with os.fdopen(reader, encoding="utf-8") as answer, open(os.memfd_create("said"), "w+b") as other:
        try:
            process = subprocess.Popen(
                [*wrapper, python, *flags, "-c", text, str(writer)],
                stdin=subprocess.DEVNULL,
                stdout=other,
                stderr=other,
                pass_fds=[writer],
                env=environment,
                preexec_fn=prepare,
                start_new_session=True,
            )
        finally:
            os.close(writer)
        try:
            status = process.wait(timeout)
        except subprocess.TimeoutExpired:
            os.kill(process.pid, signal.SIGKILL)
            process.wait()
            return "HANG", _end_of(other)
        said = answer.read() if not status else f"status {status}"
        return said, _end_of(other)


def _end_of(file: Any) -> str:
    size = os.fstat(file.fileno()).st_size
    return os.pread(file.fileno(), 3000, max(0, size - 3000)).decode(errors="replace")


def as_user(uid: int) -> tuple[str, ...]:
    """Return what runs a command as another user, who may read what root may: this interpreter for one."""
    capabilities = "+dac_read_search"
    user = ("--reuid", str(uid), "--regid", str(uid), "--clear-groups")
    return ("setpriv", *user, f"--inh-caps={capabilities}", f"--ambient-caps={capabilities}")


def in_mounts(commands: str) -> tuple[str, ...]:
    """Return what runs a command among mounts of its own, changed by some commands of the shell."""
    return ("unshare", "-m", "sh", "-c", f'{commands} && exec "$0" "$@"')


def limit(which: int, value: int) -> Callable[[], None]:
    """Lower a limit of the process."""
    return lambda: resource.setrlimit(which, (value, value))


def block_signals() -> None:
    """Block all signals, which children inherit."""
    signal.pthread_sigmask(signal.SIG_SETMASK, signal.valid_signals())


def ignore_signals() -> None:
    """Ignore what can be ignored, which children inherit."""
    for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP, signal.SIGSEGV}:
        signal.signal(number, signal.SIG_IGN)


def works_nowhere(python: str = sys.executable) -> bool:
    """Whether an interpreter can import its own modules in a folder that is gone; CPython 3.13.0 cannot."""
    return subprocess.run([python, "-c", "import socket"], preexec_fn=gone_folder, capture_output=True).returncode == 0


def gone_folder() -> None:
    """Be in a folder that does not exist any more."""
    import tempfile

    folder = tempfile.mkdtemp()
    os.chdir(folder)
    os.rmdir(folder)
