"""Runs a pipeline, a pool and a command in odd environments: each alone, then random mixes of them from a seed.

Descriptors 0 to 2 closed, signals blocked and ignored, folders that are gone, odd or long, locales, time zones, a home
that is not there, `TMPDIR` missing or full, debris of another user, limits, control groups of version 1, mounts that
lack /proc or /dev/shm, the variables and options of Python; with `--python` in another interpreter that has shmjet. All
of it works, or an error names the limit; nothing hangs and no process stays. What needs root is named where it is
skipped.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import re
import resource
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from _stress import ROOT, SHM, Options, Tally, all_gone, can_unshare, mark_processes, marked, parse_options, watch

sys.path.insert(0, str(ROOT))
from tests.environments import (
    Setting,
    as_user,
    block_signals,
    gone_folder,
    ignore_signals,
    in_mounts,
    limit,
    run,
    works_nowhere,
)

LIMIT = r"RLIMIT|ulimit|memory|/dev/shm|descriptor|No space|limit"
GROUPS = Path("/sys/fs/cgroup")
OTHER = 65534


def of_descriptors() -> Iterator[Setting]:
    for closed in ((0,), (1,), (2,), (0, 1), (0, 2), (1, 2), (0, 1, 2)):
        yield Setting(f"closed {closed}", closed=closed)


def of_signals() -> Iterator[Setting]:
    yield Setting("signals blocked", block_signals)
    yield Setting("signals ignored", ignore_signals)
    yield Setting("SIGCHLD ignored", lambda: signal.signal(signal.SIGCHLD, signal.SIG_IGN))


def of_folders(scratch: Path) -> Iterator[Setting]:
    for name in ("with a space", "ends in shmjet", "ünïcödé", "back\\slash", "a'quote\"s", "new\nline", "x" * 250):
        folder = scratch / name
        folder.mkdir()
        yield Setting(f"in {name!r:.20}", lambda folder=folder: os.chdir(folder), {"TMPDIR": str(folder)})  # type: ignore[misc]
    yield Setting("nowhere", gone_folder)
    locked = scratch / "locked"
    locked.mkdir(mode=0)
    yield Setting("in a locked folder", lambda: os.chdir(locked))
    yield Setting("umask 777", lambda: os.umask(0o777), root=True)  # others could open nothing that they have made
    yield Setting("umask 0", lambda: os.umask(0))


def of_variables() -> Iterator[Setting]:
    for name in ("C", "POSIX", "xx_YY.nothing", ""):
        yield Setting(f"locale {name!r}", variables={"LC_ALL": name, "LANG": None})
        yield Setting(
            f"locale {name!r} as it is",
            variables={"LC_ALL": name, "LANG": None, "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
        )
    yield Setting("ascii output", variables={"PYTHONIOENCODING": "ascii"})
    for zone in ("", "Nowhere/Else", "<+99>-24:59", "../../etc/passwd"):
        yield Setting(f"zone {zone!r}", variables={"TZ": zone})
    yield Setting("no home", variables={"HOME": None, "USER": None, "LOGNAME": None})
    yield Setting("home not there", variables={"HOME": "/not/there"})
    yield Setting("TMPDIR not there", variables={"TMPDIR": "/not/there"})
    yield Setting("nothing", variables=dict.fromkeys((*os.environ, "PYTHONUNBUFFERED")))


def of_python() -> Iterator[Setting]:
    for flag in ("-O", "-OO", "-I", "-E", "-s", "-P", "-B", "-bb", "-u", "-Xdev", "-Xutf8=0", "-Xfrozen_modules=off"):
        yield Setting(flag, flags=(flag,))
    yield Setting("-W error", flags=("-Werror",))
    for name, value in (
        ("PYTHONWARNINGS", "error"),
        ("PYTHONSAFEPATH", "1"),
        ("PYTHONDONTWRITEBYTECODE", "1"),
        ("PYTHONOPTIMIZE", "2"),
        ("PYTHONMALLOC", "debug"),
        ("PYTHONFAULTHANDLER", "1"),
        ("PYTHONHASHSEED", "0"),
        ("PYTHONDEVMODE", "1"),
        ("PYTHONTRACEMALLOC", "3"),
        ("PYTHONNOUSERSITE", "1"),
        ("PYTHONSTARTUP", "/not/there"),
        ("PYTHONPATH", "/not/there::relative"),
        ("PYTHONPYCACHEPREFIX", "/not/there"),
    ):
        yield Setting(f"{name}={value}", variables={name: value})


def of_limits() -> Iterator[Setting]:
    for most, fails in ((16, LIMIT), (32, LIMIT), (64, ""), (256, "")):
        yield Setting(f"-n {most}", limit(resource.RLIMIT_NOFILE, most), fails_with=fails)
    for gib in (1, 2, 4):  # maps take a quarter of the address space
        yield Setting(f"-v {gib} GiB", limit(resource.RLIMIT_AS, gib << 30), fails_with=LIMIT)
    yield Setting("-d 1 GiB", limit(resource.RLIMIT_DATA, 1 << 30), fails_with=LIMIT)
    yield Setting("-c 0", limit(resource.RLIMIT_CORE, 0))
    yield Setting("-s 1 MiB", limit(resource.RLIMIT_STACK, 1 << 20))
    yield Setting("-l 0", limit(resource.RLIMIT_MEMLOCK, 0))
    yield Setting("-f 1 MiB", limit(resource.RLIMIT_FSIZE, 1 << 20), fails_with=f"{LIMIT}|File too large")
    yield Setting("nice 19", lambda: os.nice(19))
    for most, fails in ((2, LIMIT), (3, LIMIT), (5, LIMIT), (8, LIMIT), (200, "")):
        user = 3_000_000 + 1000 * most + os.getpid() % 1000
        yield Setting(
            f"-u {most}", limit(resource.RLIMIT_NPROC, most), wrapper=as_user(user), root=True, fails_with=fails
        )


def of_users(scratch: Path) -> Iterator[Setting]:
    yield Setting("another user", wrapper=as_user(OTHER), root=True)
    private = "mount -t tmpfs -o mode=1777 tmpfs /dev/shm"
    debris = (
        "setpriv --reuid 65534 --clear-groups sh -c 'cd /dev/shm; for n in a b c; do mkdir -m 777 shmjet-0-$n; done; "
        "mkfifo -m 666 shmjet-0-a/lock; ln -s /dev/zero shmjet-0-b/lock; mkfifo -m 666 shmjet-0-d; "
        "ln -s / shmjet-0-e; touch shmjet-0-c/lock; mkfifo -m 666 shmjet-0-c/member.sock'"
    )
    yield Setting("debris of others", wrapper=in_mounts(f"{private} && {debris}"), root=True)
    yield Setting("no /dev/shm", wrapper=in_mounts("mount -t tmpfs -o mode=000,ro tmpfs /dev/shm"), root=True)
    tiny = "mount -t tmpfs -o size=64k tmpfs /dev/shm"
    yield Setting("tiny /dev/shm", wrapper=in_mounts(tiny), root=True)
    deep = scratch / ("d" * 100) / ("e" * 100)
    deep.mkdir(parents=True)
    yield Setting("tiny /dev/shm, long TMPDIR", variables={"TMPDIR": str(deep)}, wrapper=in_mounts(tiny), root=True)
    full = scratch / "full"
    full.mkdir()
    fill = f"mount -t tmpfs -o size=64k tmpfs {full} && (head -c 64k /dev/zero > {full}/x || true)"
    yield Setting(
        "full TMPDIR", variables={"TMPDIR": str(full)}, wrapper=in_mounts(fill), root=True, fails_with="No space|full"
    )
    yield Setting(
        "no /proc", wrapper=in_mounts("mount -t tmpfs tmpfs /proc"), root=True, fails_with="cannot be watched: .*/proc"
    )
    frozen = in_mounts("mount -o remount,bind,ro /")
    yield Setting("read-only /", wrapper=frozen, root=True)
    yield Setting("read-only home", variables={"HOME": "/proc"})


def of_groups() -> Iterator[Setting]:
    """Control groups of version 1, where this machine lets root make some; of version 2 tests make up trees."""
    for controller, files, fails in (
        ("memory", {"memory.limit_in_bytes": 400 << 20}, ""),
        ("memory", {"memory.limit_in_bytes": 120 << 20}, f"{LIMIT}|lost|status|signal"),
        ("pids", {"pids.max": 12}, LIMIT),
        ("pids", {"pids.max": 60}, ""),
        ("cpu", {"cpu.cfs_period_us": 100_000, "cpu.cfs_quota_us": 30_000}, ""),
    ):
        folder = _group(controller, files)
        if folder is None:
            print(f"environments: skipped: control group {controller} {files} (it cannot be made here)")
            continue
        told = ", ".join(f"{name} {value}" for name, value in files.items())
        yield Setting(f"group {told}", lambda folder=folder: _enter(folder), root=True, fails_with=fails)  # type: ignore[misc]


def _group(controller: str, files: dict[str, int]) -> Path | None:
    mount = GROUPS / controller
    name = f"shmjet-stress-{os.getpid()}-{next(iter(files.values()))}"
    try:
        (mount / name).mkdir()
        for file, value in files.items():
            (mount / name / file).write_text(str(value))
    except OSError:
        _remove_group(mount / name)
        return None
    return mount / name


def _enter(folder: Path) -> None:
    (folder / "cgroup.procs").write_text(str(os.getpid()))


def _remove_group(folder: Path) -> None:
    with contextlib.suppress(OSError):
        folder.rmdir()


SORT = """
    import random
    from shmjet import JetConfig, Pipeline, aggregate_ops, new_instance, sinks, sources

    def rows(seed):
        rng = random.Random(seed)
        return [(f"{rng.getrandbits(90):030d}", rng.getrandbits(60), [1, 2, 3]) for _ in range(1000)]

    def check(held, pair):
        assert held[0] <= pair[0], "not in order"
        held[0] = pair[0]
        return pair

    def main():
        with new_instance(JetConfig(cores=2)) as jet:
            p = Pipeline()
            ordered = p.read_from(sources.items(range(1200))).flat_map(rows).sort(key=lambda row: row[0])
            checked = ordered.map_stateful(lambda: [""], check)
            checked.aggregate(aggregate_ops.counting()).write_to(sinks.list("count"))
            jet.new_job(p).run()
            assert list(jet.get_list("count")) == [1_200_000], list(jet.get_list("count"))
"""


def sort_beyond_a_group(options: Options, tally: Tally) -> None:
    """Sort 450 MB of Python objects in a control group of 300 MiB; the folder for files has to lie on a disk."""
    folder = _group("memory", {"memory.limit_in_bytes": 300 << 20}) if os.geteuid() == 0 else None
    if folder is None:
        print("environments: skipped: a sort in a control group (it cannot be made here)")
        return
    setting = Setting("sort in 300 MiB", lambda: _enter(folder))
    said, written = run([setting], program=SORT, timeout=240 * options.slack)
    tally.done += 1
    killed = (folder / "memory.oom_control").read_text().split()[-1]
    most = int((folder / "memory.max_usage_in_bytes").read_text()) >> 20
    options.say(f"sort in 300 MiB: {said[:300]}; at most {most} MiB")
    tally.check(said == "fine" and killed == "0", f"sort in 300 MiB: {killed} killed: {said} {written}")


def _remove_groups() -> None:
    for folder in GROUPS.glob(f"*/shmjet-stress-{os.getpid()}-*"):
        _remove_group(folder)


def judge(mix: list[Setting], python: str, options: Options, tally: Tally) -> None:
    """Run the program in a mix of settings and judge what it says."""
    names = " + ".join(setting.name for setting in mix)
    begun = time.monotonic()
    said, written = run(mix, python=python, timeout=60 * options.slack)
    options.say(f"{names}: {time.monotonic() - begun:.1f} s: {said.splitlines()[0][:300] if said else said}")
    tally.done += 1
    fails = "|".join(setting.fails_with for setting in mix if setting.fails_with)
    told = said.split("\nTraceback")[0] + "\n" + written
    fine = said == "fine" or bool(fails and re.search(fails, told))
    tally.check(fine, f"{names}: {said} {written}")
    tally.check(not re.search("SIGBUS|SIGSEGV|Fatal Python", said + written), f"{names}: a crash: {said} {written}")


def main() -> int:
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--python", default=sys.executable)
    given, sys.argv[1:] = parser.parse_known_args()
    options = parse_options(__doc__, count=60, ci=4, parts=["single", "mixed", "sort"])
    tally = Tally("environments", options)
    mark = mark_processes()
    before = set(os.listdir(SHM))
    rng = random.Random(options.seed)
    with contextlib.ExitStack() as stack:
        stack.callback(_remove_groups)
        temporary = stack.enter_context(tempfile.TemporaryDirectory())
        os.chmod(temporary, 0o755)
        scratch = Path(temporary)
        groups = list(of_groups()) if os.geteuid() == 0 else []
        plain = [*of_descriptors(), *of_signals(), *of_folders(scratch), *of_variables(), *of_python()]
        if not works_nowhere(given.python):
            print("environments: skipped: a folder that is gone (this interpreter cannot import its own modules there)")
            plain = [setting for setting in plain if setting.prepare is not gone_folder]
        singles = [*plain, *of_limits(), *of_users(scratch), *groups]
        if not can_unshare() or shutil.which("setpriv") is None:
            print("environments: skipped: other users, other mounts, limits of processes (they need root and unshare)")
            singles = [setting for setting in singles if not setting.root]
        if options.ci:
            singles = rng.sample(singles, 6)
        mixes = [[setting] for setting in singles] if options.wants("single") else []
        if options.wants("mixed"):
            mixes += [rng.sample(plain, rng.randint(3, 7)) for _ in range(options.count)]
        if options.wants("sort") and not options.ci:
            watch(400 * options.slack)
            sort_beyond_a_group(options, tally)
        for mix in mixes:
            watch(120 * options.slack)
            judge(mix, given.python, options, tally)
            if not all_gone(mark):
                tally.complain(f"{' + '.join(s.name for s in mix)}: processes left behind: {list(marked(mark))}")
                for pid in list(marked(mark)):
                    os.kill(pid, signal.SIGKILL)
    left = {name for name in set(os.listdir(SHM)) - before if name.startswith(f"shmjet-{os.getuid()}-")}
    tally.notes.append(f"{len(left)} folders of others seen" if left else "nothing left")
    return tally.finish()


if __name__ == "__main__":
    sys.exit(main())
