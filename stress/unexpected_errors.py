"""An error is raised in a random method of what coordinates jobs: each job ends, the next one is right, nothing stays.

Each round starts a member in which one method of `shmjet.cluster.jobs` raises, at its first, second or third call, as a
fault of shmjet itself would have it. A job with exactly-once runs there, or is suspended, resumed, exported and
cancelled: whatever becomes of it, its future ends, another job's result is right, and the member closes.

Usage: stress/unexpected_errors.py [--count N] [--seed S] [--ci] [--verbose]   (--ci: half a minute)
"""

from __future__ import annotations

import importlib
import inspect
import os
import pkgutil
import random
import subprocess
import sys
import tempfile
import textwrap
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from _stress import HANG_S, ROOT, Tally, all_gone, mark_processes, marked, parse_options, watch

NETS = {
    ("service", "_deliver"),
    ("registry", "take"),
    ("registry", "report"),
    ("registry", "_joined"),
    ("registry", "_over"),
    ("run", "_give_up"),
    ("run_watchers", "tell"),
    ("coordinator", "break_down"),
    ("participant", "break_down"),
}
"""What catches such errors: they come from what it calls."""

STATE_MACHINES = {"attempt", "part", "phase", "snapshot"}
"""They do nothing that could fail, and what they know is lost when they raise; the models are about them."""

RAISING = """
    import functools, importlib.abc, importlib.util, inspect, os, sys

    name, owner, method, call, seen = os.environ.get("RAISES_IN", "::::").split(":")

    class Finder(importlib.abc.MetaPathFinder):
        def find_spec(self, fullname, path, target=None):
            if fullname != name:
                return None
            sys.meta_path.remove(self)
            spec = importlib.util.find_spec(fullname)
            execute = spec.loader.exec_module

            def exec_module(module):
                execute(module)
                spoil(getattr(module, owner))

            spec.loader.exec_module = exec_module
            return spec

    def spoil(cls):
        is_static = isinstance(cls.__dict__[method], staticmethod)
        original = getattr(cls, method) if is_static else cls.__dict__[method]
        calls = 0

        def count():
            nonlocal calls
            calls += 1
            if calls == int(call):
                open(seen, "w").close()
                raise RuntimeError("injected")

        @functools.wraps(original)
        def raising(*args, **kwargs):
            count()
            return original(*args, **kwargs)

        @functools.wraps(original)
        async def raising_later(*args, **kwargs):
            count()
            return await original(*args, **kwargs)

        made = raising_later if inspect.iscoroutinefunction(original) else raising
        setattr(cls, method, staticmethod(made) if is_static else made)

    if name:
        sys.meta_path.insert(0, Finder())
"""

PROGRAM = """
    import sys, time
    import shmjet
    from shmjet import JobConfig, JobStatus, Pipeline, ProcessingGuarantee, ShmjetError, aggregate_ops, sinks, sources

    class Position:
        def __init__(self, context):
            self.at = 0

        def fill(self, buffer):
            if self.at == 400:
                buffer.close()
                return
            time.sleep(0.001)
            buffer.add(self.at)
            self.at += 1

        def restore(self, states):
            self.at = states[0]

    def counting(source):
        p = Pipeline()
        groups = p.read_from(source).grouping_key(lambda x: x % 7)
        groups.aggregate(aggregate_ops.counting()).set_name("count").write_to(sinks.map("out"))
        return p

    slow = (
        sources.builder("numbers", Position).fill_buffer_fn(Position.fill).create_snapshot_fn(lambda p: p.at)
        .restore_snapshot_fn(Position.restore).build()
    )

    def ask(what, *args):
        try:
            what(*args)
        except ShmjetError as error:
            print("refused:", error)

    def live(job):
        time.sleep(0.1)
        ask(job.suspend)
        end = time.monotonic() + 5
        while job.status not in (JobStatus.SUSPENDED, JobStatus.COMPLETED, JobStatus.FAILED) and time.monotonic() < end:
            time.sleep(0.01)
        if job.status is JobStatus.SUSPENDED:
            ask(job.resume)
        time.sleep(0.05)
        ask(job.export_snapshot, "export")
        ask(job.cancel)

    with shmjet.new_instance() as jet:
        guarantee = ProcessingGuarantee.EXACTLY_ONCE
        try:
            job = jet.new_job(counting(slow), JobConfig(processing_guarantee=guarantee, snapshot_interval=0.05))
            future = job.execute()
            if sys.argv[1] == "life":
                live(job)
            print("ended:", future.exception(30))
        except TimeoutError as error:
            print("HANGS:", job.status, error)
        except BaseException as error:
            print("ended:", type(error), error)
        for again in (True, True, False):  # the error may come in one of these
            try:
                jet.new_job(counting(sources.items(range(70)))).execute().result(30)
                break
            except ShmjetError as error:
                print("ended:", error)
                if not again:
                    raise
        assert dict(jet.get_map("out")) == {key: 10 for key in range(7)}, dict(jet.get_map("out"))
    print("all right")
"""


def methods() -> list[tuple[str, str, str]]:
    """Return modules, classes and names of what can raise."""
    found = []
    package = importlib.import_module("shmjet.cluster.jobs")
    for info in pkgutil.iter_modules(package.__path__, "shmjet.cluster.jobs."):
        if info.name.rpartition(".")[2] in STATE_MACHINES:
            continue
        module = importlib.import_module(info.name)
        for cls in vars(module).values():
            if not inspect.isclass(cls) or cls.__module__ != info.name:
                continue
            for name, value in vars(cls).items():
                function = value.__func__ if isinstance(value, staticmethod) else value
                is_plain = inspect.isfunction(function) and not inspect.isgeneratorfunction(function)
                if is_plain and not name.startswith("__") and (info.name.rpartition(".")[2], name) not in NETS:
                    found.append((info.name, cls.__name__, name))
    return found


class Round:
    """One member with one method that raises.

    Args:
        number: of the round.
        folder: with the program and what makes a method raise.
        rng: chooses.
    """

    def __init__(self, number: int, folder: Path, rng: random.Random) -> None:
        self.mode = rng.choice(["run", "life"])
        self.place = (*rng.choice(METHODS), str(rng.choice([1, 1, 2, 3])))
        self._seen = folder / f"seen-{number}"
        self._folder = folder

    def run(self) -> tuple[bool, str]:
        """Return whether it has raised, and what was wrong; empty when nothing was."""
        environment = {
            **os.environ,
            "RAISES_IN": ":".join((*self.place, str(self._seen))),
            "PYTHONPATH": f"{self._folder}{os.pathsep}{ROOT}",
        }
        command = [sys.executable, str(self._folder / "program.py"), self.mode]
        try:
            done = subprocess.run(
                command,
                env=environment,
                capture_output=True,
                text=True,
                stdin=subprocess.DEVNULL,
                timeout=HANG_S,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            return True, f"hangs: {error.stdout!r}"
        has_raised = self._seen.exists()
        if "HANGS" in done.stdout:
            return has_raised, done.stdout
        has_ended = "all right" in done.stdout or "could not start" in done.stderr
        return has_raised, "" if has_ended else f"{done.stdout}{done.stderr[-2000:]}"

    def __str__(self) -> str:
        return f"{self.mode} with {':'.join(self.place)}"


METHODS = methods()


def main() -> int:
    options = parse_options(__doc__, count=1500, ci=80)
    mark = mark_processes()
    tally = Tally("unexpected_errors", options)
    watch(HANG_S + 30.0 * options.count)
    rng = random.Random(options.seed)
    raised = 0
    with tempfile.TemporaryDirectory() as name, ThreadPoolExecutor(2) as threads:
        folder = Path(name)
        (folder / "sitecustomize.py").write_text(textwrap.dedent(RAISING))
        (folder / "program.py").write_text(textwrap.dedent(PROGRAM))
        rounds = [Round(number, folder, rng) for number in range(options.count)]
        for each, (has_raised, wrong) in zip(rounds, threads.map(Round.run, rounds), strict=True):
            tally.done += 1
            raised += has_raised
            tally.check(not wrong, f"{each}: {wrong}")
            options.say(f"{each}: {'raised' if has_raised else 'not called'}")
    tally.check(raised, "no method has raised")
    tally.check(all_gone(mark), f"processes are left: {list(marked(mark))}")
    tally.notes.append(f"{raised} raised")
    return tally.finish()


if __name__ == "__main__":
    sys.exit(main())
