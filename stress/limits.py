"""Takes away what a job needs: shared memory, descriptors, address space. It works in less or says what was missing.

Each case runs in a process of its own with its limit: /dev/shm of 64 MB, of 4 MB and of nothing (a mount of its own,
which needs root and `unshare`; named as skipped elsewhere), `RLIMIT_NOFILE`, `RLIMIT_AS`, a job that
wants more ring memory than there is. Either the result is right, or the error is one of shmjet's (or an `OSError` or
`MemoryError`) and its text names the limit, what was needed and what to do. Never a signal, never a hang.
"""

from __future__ import annotations

import dataclasses
import os
import re
import resource
import subprocess
import sys
import textwrap
import time

from _stress import (
    HANG_S,
    ROOT,
    SHM,
    Options,
    Tally,
    all_gone,
    can_unshare,
    mark_processes,
    marked,
    parse_options,
    watch,
)

PRELUDE = """
    import os, resource, sys
    import shmjet
    from shmjet import DAG, JetConfig, Processor, ShmjetError, AbstractProcessor, between, processors

    RESOURCES = {"NOFILE": resource.RLIMIT_NOFILE, "AS": resource.RLIMIT_AS}
    for name, value in [part.split("=") for part in sys.argv[1:]]:
        resource.setrlimit(RESOURCES[name], (int(value), int(value)))

    class Carried(AbstractProcessor):
        is_cooperative = False

        def try_process_any(self, ordinal, item):
            return self.try_emit(item)

    def words(jet, wide=-1, items=2000, carried=0, size=0, name="out"):
        dag = DAG()
        stages = [dag.new_vertex("source", processors.read_items(range(items)), 1)]
        stages.append(dag.new_vertex("widen", processors.map(lambda x: (x, bytes(size))), wide))
        if carried:
            stages.append(dag.new_vertex("carried", Carried, carried))
        stages.append(dag.new_vertex("narrow", processors.map(lambda pair: pair[0]), wide))
        stages.append(dag.new_vertex("sink", processors.write_list(name), 1))
        for above, below in zip(stages, stages[1:]):
            dag.edge(between(above, below).partitioned(lambda item: item if isinstance(item, int) else item[0]))
        jet.new_job(dag).run(120)
        found = jet.get_list(name)
        assert sorted(found) == list(range(items)), f"{len(found)} items instead of {items}"
        found.destroy()

    def attempt(what, label=""):
        try:
            what()
        except (ShmjetError, OSError, MemoryError) as error:
            print(f"{label}ERROR", type(error).__name__, error, flush=True)
        else:
            print(f"{label}WORKS", flush=True)
"""

BASE = """
    def main():
        with shmjet.new_instance(JetConfig(cores=2)) as jet:
            words(jet)
            attempt(lambda: {job})
            words(jet, name="after")  # what comes after a failure works
    attempt(main, "IN ALL: ")
"""


@dataclasses.dataclass(frozen=True)
class Case:
    """One limit.

    `shm` is the size of a /dev/shm of its own, as mount takes it. `must` is a pattern that an error has to match;
    `works` says that there may be no error.
    """

    name: str
    job: str
    shm: str | None = None
    limits: tuple[str, ...] = ()
    must: str = r"(?i)memory|/dev/shm|RLIMIT|limit|files|space|processes"
    works: bool = False
    program: str = BASE


FULL = """
    def main():
        with shmjet.new_instance(JetConfig(cores=2)) as jet:
            m = jet.get_map("m")
            def fill():
                for i in range(1000):
                    m.put(i, bytes(1 << 20))
            attempt(fill)
            m.clear()
            words(jet, name="after")
    attempt(main, "IN ALL: ")
"""

FILLED = """
    def main():
        with shmjet.new_instance(JetConfig(cores=2)) as jet:
            words(jet)
            with open("/dev/shm/ballast", "wb") as file:
                try:
                    while file.write(bytes(1 << 16)):
                        file.flush()
                except OSError:
                    pass
            attempt(lambda: words(jet, 64, name="full"))
            os.unlink("/dev/shm/ballast")
            words(jet, name="after")
    attempt(main, "IN ALL: ")
"""

HUGE = """
    def main():
        with shmjet.new_instance(JetConfig(cores=2, ring_memory=1 << 50)) as jet:
            attempt(lambda: words(jet, 64))
            attempt(lambda: words(jet, 400, name="wider"))
    attempt(main, "IN ALL: ")
"""

IN_WORKERS = """
    def main():
        def limit(x):
            if "done" not in vars(resource):
                resource.done = True
                used = int(open("/proc/self/statm").read().split()[0]) * 4096
                resource.setrlimit(resource.RLIMIT_AS, (used + (64 << 20), resource.RLIM_INFINITY))
            return x

        def lift(x):
            resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
            return x

        def everywhere(jet, what):
            dag = DAG()
            source = dag.new_vertex("source", processors.read_items(range(2)), 1)
            dag.edge(between(source, dag.new_vertex("limit", processors.map(what), 2)).broadcast())
            jet.new_job(dag).run(120)

        with shmjet.new_instance(JetConfig(cores=2, work_stealing=False)) as jet:
            words(jet)
            everywhere(jet, limit)
            attempt(lambda: words(jet, {wide}, items=20, size={size}))
            attempt(lambda: words(jet, {wide}, items=20, size={size}, name="again"))
            everywhere(jet, lift)
            words(jet, {wide}, name="after")
    attempt(main, "IN ALL: ")
"""

CASES = [
    *(
        Case(f"shm-{size}-{name}", job, shm=size, works=works)
        for size in ("64m", "4m", "64k")
        for name, job, works in (
            ("small", "words(jet)", True),
            ("64x64", "words(jet, 64)", True),
            ("carriers", "words(jet, 2, carried=4)", True),
            ("items of 4 MB", "words(jet, 2, items=20, size=4 << 20)", True),
        )
    ),
    *(Case(f"shm-{size}-full map", "", shm=size, program=FULL) for size in ("64m", "4m")),
    Case("shm-64m-filled by others", "", shm="64m", program=FILLED),
    Case("shm-64m-huge rings", "", shm="64m", program=HUGE),
    Case("huge rings", "", program=HUGE),
    *(
        Case(f"nofile-{limit}-{name}", job, limits=(f"NOFILE={limit}",), works=limit == 256 and works)
        for limit in (256, 40, 16)
        for name, job, works in (
            ("small", "words(jet)", True),
            ("carriers", "words(jet, 2, carried=60)", False),
            ("many carriers", "words(jet, 2, carried=150)", False),
        )
    ),
    *(
        Case(f"as-{limit}m-{name}", job, limits=(f"AS={limit << 20}",))
        # From "in no worker" to "enough". A client has no reserve of address space, so it needs to have enough here.
        for limit in (198, 200, 202, 204, 206, 209, 220, 240, 260, 1500)
        for name, job in (("small", "words(jet)"), ("64x64", "words(jet, 64)"))
    ),
    Case("as-of workers-items", "", program=IN_WORKERS.replace("{size}", "200 << 20").replace("{wide}", "2")),
    Case("as-of workers-rings", "", program=IN_WORKERS.replace("{size}", "10").replace("{wide}", "64")),
]


def run(case: Case, options: Options, tally: Tally) -> None:
    """Run one case and judge what it said."""
    program = textwrap.dedent(PRELUDE) + textwrap.dedent(case.program).replace("{job}", case.job)
    command = [sys.executable, "-c", program, *case.limits]
    if case.shm is not None:
        mount = f'mount -t tmpfs -o size={case.shm} tmpfs /dev/shm && exec "$0" "$@"'
        command = ["unshare", "-m", "sh", "-c", mount, *command]
    begun = time.monotonic()
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT)
    try:
        out, err = process.communicate(timeout=10 * HANG_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        tally.complain(f"{case.name}: HANG")
        return
    finally:
        tally.done += 1
    took = time.monotonic() - begun
    said = "\n".join(line for line in out.splitlines() if line)
    options.say(f"{case.name}: {took:.1f} s: {said[:400]!r} {err[-300:]!r}")
    if not tally.check(process.returncode == 0, f"{case.name}: status {process.returncode}: {said} {err[-1500:]}"):
        return
    blocks = re.split(r"^(?=ERROR|WORKS|IN ALL: )", said, flags=re.M)[1:]
    tally.check(blocks and blocks[-1].startswith("IN ALL: "), f"{case.name}: said {out!r} {err[-1500:]!r}")
    sound = len(blocks) < 2 or not blocks[-1].startswith("IN ALL: ERROR")
    tally.check(sound, f"{case.name}: what came after does not work: {blocks[-1]}")
    tally.check(not case.works or "ERROR" not in said, f"{case.name}: should have worked: {said}")
    for block in blocks:
        if "ERROR" in block:
            tally.check(re.search(case.must, block), f"{case.name}: the error does not name the limit: {block}")
            tally.check("TimeoutError" not in block, f"{case.name}: HANG: {block}")
    crashed = re.search("SIGBUS|SIGSEGV|SIGABRT", said + err)
    tally.check(not crashed, f"{case.name}: a crash: {said} {err[-1500:]}")


def main() -> int:
    options = parse_options(__doc__, count=1, ci=1, parts=["shm", "rings", "nofile", "as"])
    tally = Tally("limits", options)
    mark = mark_processes()
    mounts = can_unshare()
    before = set(os.listdir(SHM))
    if not mounts:
        print("limits: skipped: all cases with a small /dev/shm (they need root and unshare)")
    for _ in range(options.count):
        for case in CASES:
            part = case.name.split("-")[0]
            if (case.shm is not None and not mounts) or not options.wants("rings" if "rings" in part else part):
                continue
            watch(12 * HANG_S)
            run(case, options, tally)
            if not all_gone(mark):
                tally.complain(f"{case.name}: processes left behind: {list(marked(mark))}")
                for pid in list(marked(mark)):
                    os.kill(pid, 9)
    left = {name for name in set(os.listdir(SHM)) - before if name.startswith(f"shmjet-{os.getuid()}-")}
    tally.notes.append(f"{len(left)} folders of others seen" if left else "nothing left")
    assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] > 256, "the limits are for the cases only"
    return tally.finish()


if __name__ == "__main__":
    sys.exit(main())
