"""Kills the user's process or its member at any moment, and interrupts commands; nothing may stay behind.

Parts: `kill` starts a script with an instance and random jobs and kills (SIGKILL) it or its member between the first
millisecond and the middle of a job: a second later no process and no name in /dev/shm may be left, and a script whose
member was killed must learn it by `MemberLostError`. `interrupt` presses Ctrl-C in `shmjet run script.py` and
`shmjet wordcount`, on a terminal and without one: back within a second, exit status 130, one line, no traceback.
"""

from __future__ import annotations

import os
import pty
import random
import select
import signal
import subprocess
import sys
import tempfile
import textwrap
import time
from pathlib import Path

from _stress import (
    HANG_S,
    ROOT,
    Options,
    Tally,
    Times,
    is_zombie,
    mark_processes,
    marked,
    name_of,
    names,
    parse_options,
    private_shm,
    reap,
    wait_until,
    watch,
)

SCRIPT = """
    import random, sys, time
    import shmjet
    from shmjet import DAG, AbstractProcessor, MemberLostError, Processor, between, processors

    class Endless(Processor):
        def complete(self):
            self.outbox.offer_all(list(range(64)))
            return False

    class Carried(AbstractProcessor):
        is_cooperative = False

        def try_process_any(self, ordinal, item):
            return self.try_emit(item)

    rng = random.Random(int(sys.argv[1]))
    try:
        jet = shmjet.new_instance(shmjet.JetConfig(cores=rng.choice([1, 2, 4])))
        if rng.random() < 0.5:
            jet.get_map("m").put_all({i: "x" * 1000 for i in range(1000)})
        executions = []
        for _ in range(rng.randint(1, 3)):
            dag = DAG()
            stages = [dag.new_vertex("source", Endless), dag.new_vertex("map", processors.map(lambda x: x + 1))]
            if rng.random() < 0.5:
                stages.append(dag.new_vertex("carried", Carried, 2))
            if rng.random() < 0.3:
                stages.append(dag.new_vertex("stuck", processors.map(lambda x: time.sleep(1000))))
            sink = processors.write_list("out") if rng.random() < 0.5 else processors.noop()
            stages.append(dag.new_vertex("sink", sink))
            for above, below in zip(stages, stages[1:]):
                dag.edge(between(above, below).partitioned(lambda x: x))
            executions.append(jet.new_job(dag).execute())
        print("running", flush=True)
        executions[0].result()
    except MemberLostError as error:
        print("lost", error, flush=True)
    except shmjet.ShmjetError as error:
        print("failed", error, flush=True)
"""


def children_of(pid: int) -> list[int]:
    """The children of a process."""
    try:
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


def member_of(pid: int) -> int | None:
    """The pid of the member that a process has started, when it is that far."""
    return next((child for child in children_of(pid) if name_of(child) == "shmjet-member"), None)


class Remains:
    """What is left of processes with a mark and of names, until nothing is."""

    def __init__(self, options: Options, tally: Tally, mark: str, alone: bool) -> None:
        self.options, self.tally, self.mark, self.alone = options, tally, mark, alone
        self.before = names()

    def left(self, but: int = 0) -> list[str]:
        """Processes, except one, and names that are there."""
        reap()
        found = [f"{name_of(pid)} ({pid})" for pid in marked(self.mark) if pid != but]
        # Others come and go in a /dev/shm that is not ours alone: only folders, which have their own prefix, count.
        mine = [name for name in names() - self.before if self.alone or name.count("-") == 2]
        return found + [f"/dev/shm/{name}" for name in mine]

    def wait(self, at: float, times: Times, what: str, but: int = 0) -> None:
        """Measure how long it takes from `at` until nothing is left."""
        wait_until(lambda: not self.left(but), HANG_S, 0.01)
        times.add(time.perf_counter() - at)
        if left := self.left(but):
            self.tally.complain(f"{what}: left behind: {', '.join(left)}")
            for pid in list(marked(self.mark)):
                os.kill(pid, signal.SIGKILL)
            for name in names() - self.before:
                subprocess.run(["rm", "-rf", f"/dev/shm/{name}"], check=False)
            self.before = names()


def kill(options: Options, rng: random.Random, tally: Tally, remains: Remains, folder: Path, times: Times) -> None:
    """Kill a script or its member once."""
    script = folder / "script.py"
    script.write_text(textwrap.dedent(SCRIPT))
    seed = str(rng.randrange(1 << 30))
    process = subprocess.Popen(
        [sys.executable, str(script), seed], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT
    )
    assert process.stdout is not None
    kill_member = rng.random() < 0.5
    if rng.random() < 0.5:  # while it starts
        wait_until(lambda: member_of(process.pid) is not None or process.poll() is not None, HANG_S, 0.0005)
        time.sleep(rng.random() * 0.4)
    else:
        process.stdout.readline()
        time.sleep(rng.random() * 0.1)
    member = member_of(process.pid)
    victim = member if kill_member and member is not None else process.pid
    what = f"kill {tally.done} of the {'member' if victim == member else 'user process'} (script seed {seed})"
    at = time.perf_counter()
    os.kill(victim, signal.SIGKILL)
    if victim == member:
        try:
            out, err = process.communicate(timeout=HANG_S)
        except subprocess.TimeoutExpired:
            tally.complain(f"{what}: HANG: the script does not learn it")
            process.kill()
            out, err = process.communicate()
        good = process.returncode == 0 and ("lost" in out or "failed" in out) and "Traceback" not in err
        tally.check(good, f"{what}: status {process.returncode}, said {out!r} and {err[-800:]!r}")
    remains.wait(at, times, what)
    process.kill()
    process.communicate()
    tally.done += 1
    options.say(f"{what}: {1000 * times.values[-1]:.0f} ms")


FOREVER = """
    import sys
    import shmjet
    from shmjet import DAG, Processor, between, processors

    class Endless(Processor):
        def complete(self):
            self.outbox.offer_all(list(range(64)))
            return False

    stuck = sys.argv[1] == "stuck"

    def spin(x):
        while stuck:
            pass
        return x

    dag = DAG()
    source, spinning = dag.new_vertex("source", Endless), dag.new_vertex("spin", processors.map(spin))
    dag.edge(between(source, spinning)).edge(between(spinning, dag.new_vertex("sink", processors.noop())))
    with shmjet.new_instance() as jet:
        execution = jet.new_job(dag).execute()
        print("ready", flush=True)
        execution.result()
"""


def command_line(kind: str, folder: Path) -> list[str]:
    """The command to interrupt, with what it needs made in `folder`."""
    shmjet = [sys.executable, "-m", "shmjet"]
    if kind == "wordcount":
        text = folder / "text.txt"
        if not text.exists():
            line = " ".join(f"word{i * i % 7919}" for i in range(200)) + "\n"
            text.write_text(line * 100_000)
        return [*shmjet, "wordcount", "--objects", str(text)]
    script = folder / "forever.py"
    script.write_text(textwrap.dedent(FOREVER))
    return [*shmjet, "run", str(script), kind]


def interrupt(kind: str, terminal: bool, rng: random.Random, tally: Tally, remains: Remains, folder: Path) -> None:
    """Press Ctrl-C once."""
    times, gone = tally.times[1:]
    what = f"Ctrl-C in {kind} {'on a terminal' if terminal else 'without a terminal'}"
    command = command_line(kind, folder)
    main, side = pty.openpty()
    streams = {"stdin": side, "stdout": side, "stderr": side} if terminal else {"stdout": -1, "stderr": -1}
    process = subprocess.Popen(
        ["setsid", "--ctty", *command] if terminal else command,
        **streams,  # type: ignore[call-overload]
        cwd=ROOT,
        process_group=None if terminal else 0,
    )
    os.close(side)
    try:
        up = wait_until(lambda: process.poll() is not None or member_of(process.pid), HANG_S)
        if not tally.check(up and process.poll() is None, f"{what}: did not start: {process.returncode}"):
            return
        time.sleep((0.3 if kind == "stuck" else 0.05) + rng.random() * 0.5)
        at = time.perf_counter()
        if terminal:
            os.write(main, b"\x03")
            text = read_all(main, process)
        else:
            os.killpg(process.pid, signal.SIGINT)
            text = (process.communicate(timeout=HANG_S)[1] or b"").decode()
        process.wait(HANG_S)
        times.add(time.perf_counter() - at)
        tally.check(process.returncode == 130, f"{what}: status {process.returncode}, said {text!r}")
        tally.check("Traceback" not in text, f"{what}: a traceback: {text}")
        said = [line for line in text.splitlines() if "interrupted" in line]
        tally.check(len(said) == 1, f"{what}: said {text!r}")
        tally.check(terminal or len(text.splitlines()) == 1, f"{what}: more than one line: {text!r}")
        remains.wait(at, gone, what)
    except subprocess.TimeoutExpired:
        tally.complain(f"{what}: HANG: no prompt")
        process.kill()
        process.wait()
    finally:
        os.close(main)
        for stream in (process.stdout, process.stderr):
            if stream is not None:
                stream.close()
    tally.done += 1


def read_all(terminal: int, process: subprocess.Popen[bytes]) -> str:
    """What appears on a terminal until the process that was started there is dead."""
    text, deadline = b"", time.monotonic() + HANG_S
    while time.monotonic() < deadline:
        dead = is_zombie(process.pid)
        ready, _, _ = select.select([terminal], [], [], 0 if dead else 0.01)
        if ready:
            try:
                text += os.read(terminal, 65536)
            except OSError:  # the other end is closed
                break
        elif dead:
            break
    return text.decode(errors="replace")


def main() -> int:
    options = parse_options(__doc__, count=100, ci=10, parts=["kill", "interrupt"])
    alone = private_shm()
    rng = random.Random(options.seed)
    tally = Tally("kill_members", options)
    killed = tally.timing("killed to nothing left", 1.0)
    tally.timing("Ctrl-C to the prompt", 1.0)
    tally.timing("Ctrl-C to nothing left", 1.5)
    remains = Remains(options, tally, mark_processes(), alone)
    os.environ.pop("SHMJET_CORES", None)
    with tempfile.TemporaryDirectory() as folder:
        if options.wants("kill"):
            for _ in range(options.count):
                watch(6 * HANG_S)
                kill(options, rng, tally, remains, Path(folder), killed)
        if options.wants("interrupt"):
            for _ in range(-(-options.count // 10)):
                for kind in ("run", "stuck", "wordcount"):
                    for terminal in (True, False):
                        watch(6 * HANG_S)
                        interrupt(kind, terminal, rng, tally, remains, Path(folder))
    return tally.finish()


if __name__ == "__main__":
    sys.exit(main())
