"""A cluster whose members are replaced one by one by those of another version, under load: nothing is lost or doubled.

Each round starts three members of the last version and a client of each version. Each client counts in a map, writes to
another one, and follows a job with exactly-once and windows. Then member after member ends, kindly or by kill -9, and
this version starts in its place; sometimes the last version comes back for a while. In every other round members have a
storage, and in some of those all members end before the first of this version starts. In the end all counts are exact.

The last version is built from the history of the checkout: `--from` names a tag or commit, the default is the newest
tag, or the commit since which versions go together. Where there is no history the script says so and does nothing.

Usage: stress/upgrade.py [--from REVISION] [--count N] [--seed S] [--ci] [--verbose]      (--ci: a minute)
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from _member_commands import SECRET, Cluster, Wrong
from _stress import (
    HANG_S,
    ROOT,
    Options,
    Tally,
    all_gone,
    mark_processes,
    marked,
    name_of,
    parse_options,
    private_shm,
    watch,
)
from _upgrade_client import RIGHT

sys.path.insert(0, str(ROOT))

import shmjet
from shmjet import ClientConfig, JetInstance, ShmjetError

SINCE = "23be9f46"
"""The commit since which neighbouring versions form one cluster, for as long as there is no tag."""
CLIENT = Path(__file__).with_name("_upgrade_client.py")


def last_version() -> str:
    """Return the newest tag, or the commit since which versions go together; empty where there is no history."""
    tag = _git("describe", "--tags", "--abbrev=0")
    return tag or _git("rev-parse", "--verify", "--quiet", f"{SINCE}^{{commit}}")


def _git(*words: str) -> str:
    found = subprocess.run(["git", "-C", str(ROOT), *words], capture_output=True, text=True, check=False)
    return found.stdout.strip() if found.returncode == 0 else ""


def build(revision: str, tree: Path) -> None:
    """Put a revision of the package into a folder, ready to run."""
    archive = subprocess.Popen(["git", "-C", str(ROOT), "archive", revision], stdout=subprocess.PIPE)
    subprocess.run(["tar", "-x", "-C", tree], stdin=archive.stdout, check=True)
    if archive.wait():
        raise Wrong(f"{revision} cannot be read from the history of {ROOT}")
    command = [sys.executable, "setup.py", "--quiet", "build_ext", "--inplace"]
    subprocess.run(command, cwd=tree, check=True, capture_output=True)


class Client:
    """A client of one of the versions, in a process of its own."""

    def __init__(self, name: str, tree: Path, cluster: Cluster) -> None:
        self.name = name
        arguments = [sys.executable, "-P", str(CLIENT), name, str(cluster.folder), SECRET, *cluster.addresses]
        self._process = subprocess.Popen(
            arguments,
            env={**os.environ, "PYTHONPATH": str(tree)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            cwd=cluster.folder,
        )
        self._says: IO[str] | None = self._process.stdout

    def await_line(self, text: str) -> str:
        """Return the line with a text. Raises Wrong when the client ends without it."""
        assert self._says is not None
        heard = []
        for line in self._says:
            heard.append(line)
            if text in line:
                return line.strip()
        raise Wrong(f"the client of {self.name} said: {''.join(heard[-300:])}")

    def end(self) -> None:
        self._process.kill()
        self._process.communicate()


@contextlib.contextmanager
def ended(*things: Cluster | Client) -> Iterator[None]:
    try:
        yield
    finally:
        for thing in things:
            thing.end()


def replace(cluster: Cluster, jet: JetInstance, trees: tuple[Path, Path], rng: random.Random, options: Options) -> None:
    """Let this version take the place of the last one, member by member."""
    last, this = trees
    for member in rng.sample(cluster.members, len(cluster.members)):
        goes_back = rng.random() < 0.2
        for tree in (this, last, this) if goes_back else (this,):
            kindly = rng.random() < 0.5
            options.say(f"{member.address} {'ends' if kindly else 'is killed'}, and starts as {tree.name}")
            member.end(kindly=kindly)
            cluster.start(tree, [member])
            cluster.settle(jet)
            threading.Event().wait(rng.random() * 0.5)


def replace_all(cluster: Cluster, jet: JetInstance, this: Path, rng: random.Random) -> None:
    """Let all members end before the first one starts again from what they have on disk."""
    kindly = rng.random() < 0.5
    for member in () if kindly else cluster.members:  # on a busy machine the last one would go on without the others
        member.signal(signal.SIGSTOP)
    for member in cluster.members:  # who leaves others has nothing on disk any more
        member.signal(signal.SIGTERM if kindly else signal.SIGKILL)
    for member in cluster.members:
        member.end(kindly=kindly)
    cluster.start(this, rng.sample(cluster.members, len(cluster.members)))
    cluster.settle(jet)


def one_round(number: int, folder: Path, last: Path, rng: random.Random, options: Options) -> None:
    stores = number % 2 == 1
    cluster = Cluster(folder, stores=stores)
    with ended(cluster):
        cluster.start(last, cluster.members)
        clients = [Client("the last version", last, cluster), Client("this version", ROOT, cluster)]
        configured = ClientConfig(secret=SECRET, connect_timeout=HANG_S, timeout=HANG_S)
        with ended(*clients), shmjet.new_client(cluster.addresses, configured) as jet:
            for client in clients:
                client.await_line("runs")
            cluster.settle(jet)
            if stores and rng.random() < 0.5:
                options.say("all end, and start again from their storage")
                replace_all(cluster, jet, ROOT, rng)
            else:
                replace(cluster, jet, (last, ROOT), rng, options)
            threading.Event().wait(0.3)
            (folder / "end").touch()
            for client in clients:
                try:
                    options.say(f"{client.name}: {client.await_line(RIGHT)}")
                except Wrong as wrong:
                    raise Wrong(f"{wrong}\n{cluster.logs()}") from None


def main() -> int:
    private_shm()
    named = ""
    if "--from" in sys.argv:
        place = sys.argv.index("--from")
        named = sys.argv[place + 1]
        del sys.argv[place : place + 2]
    revision = named or last_version()
    options = parse_options(__doc__, count=40, ci=2)
    if not revision:
        print("upgrade: skipped, no tag and no history here from which the last version could be built")
        return 0
    mark = mark_processes()
    tally = Tally(f"upgrade from {revision[:12]}", options)
    rng = random.Random(options.seed)
    with tempfile.TemporaryDirectory() as name:
        last = Path(name) / "last"
        last.mkdir()
        build(revision, last)
        for number in range(options.count):
            watch(4 * HANG_S)
            folder = Path(name) / f"round{number}"
            folder.mkdir()
            try:
                one_round(number, folder, last, rng, options)
                tally.done += 1
            except (Wrong, ShmjetError, subprocess.TimeoutExpired) as error:
                tally.complain(f"round {number}: {error}")
        tally.check(all_gone(mark), f"left behind: {[(pid, name_of(pid)) for pid in marked(mark)]}")
    return tally.finish()


if __name__ == "__main__":
    sys.exit(main())
