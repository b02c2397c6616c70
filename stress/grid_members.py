"""Members come, leave and are killed while clients use maps and lists; clients are killed, too.

Part `rolling`: members leave one after the other and others come, under load, and a client is killed now and then.
Nothing that was acknowledged may be lost: histories of keys are checked for linearisability, lists and counters
exactly, the journal in its order, iterations and large values against what must be there. Part `kills`: the same, but
members are killed, one or two at once, as many as there are backups; another one is killed when the backups are made.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import random
import signal
import sys
import threading
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

from _stress import HANG_S, ROOT, Options, Tally, mark_processes, parse_options, private_shm, watch

sys.path.insert(0, str(ROOT))

import shmjet
from shmjet.core.grid_calls import journal_reader
from tests.grid.linearisability import Operation, is_linearisable

SECRET = "a secret of stress"
PARTITIONS = 31
KEYS = 40
STATIC = 3000
KINDS = ("put", "get", "add", "increment", "replace", "pop")
MAPS = {"journal": shmjet.MapConfig(journal_capacity=1 << 20)}
CLIENTS = 3


def start(addresses: list[str], backups: int = 1) -> shmjet.JetInstance:
    """Return a new member."""
    config = shmjet.JetConfig(
        cores=1,
        bind="127.0.0.1:0",
        members=addresses,
        secret=SECRET,
        maps=MAPS,
        partition_count=PARTITIONS,
        backup_count=backups,
    )
    return shmjet.new_instance(config)


def client(addresses: list[str]) -> Any:
    return shmjet.new_client(addresses, shmjet.ClientConfig(secret=SECRET))


def addresses_of(members: list[shmjet.JetInstance]) -> list[str]:
    return [member.address for member in members[0].cluster.members]


def do(there: Any, kind: str, key: int, value: int) -> Any:
    """Do one operation and return its answer."""
    match kind:
        case "get":
            return there.get(key)
        case "put":
            return there.put(key, value)
        case "add":
            return there.put_if_absent(key, value)
        case "replace":
            return there.replace(key, value)
        case "pop":
            return there.pop(key, None)
    return there.compute(key, lambda old: (old or 0) + value)


class Users:
    """Clients, each in a thread, that record what they do until they are stopped.

    Args:
        addresses: of members.
        seed: decides what they do.
        large: values that must stay as they are.
    """

    def __init__(self, addresses: list[str], seed: int, large: dict[int, bytes]) -> None:
        self.histories: dict[int, list[Operation]] = defaultdict(list)
        self.appended = [0] * CLIENTS
        self.wrong: list[str] = []
        self._large = large
        self._done = threading.Event()
        self._lock = threading.Lock()
        self._threads = [
            threading.Thread(target=self._use, args=(addresses, index, random.Random(seed + index)))
            for index in range(CLIENTS)
        ]
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        self._done.set()
        for thread in self._threads:
            thread.join()

    def _use(self, addresses: list[str], index: int, chance: random.Random) -> None:
        try:
            with client(addresses) as jet:
                while not self._done.is_set():
                    self._step(jet, index, chance)
        except Exception as error:
            self.wrong.append(f"client {index}: {type(error).__name__}: {error}")

    def _step(self, jet: Any, index: int, chance: random.Random) -> None:
        number = self.appended[index]
        key, kind = chance.randrange(KEYS), chance.choice(KINDS)
        value = 1 if kind == "increment" else (index + 1) * 10**6 + number
        begin = time.monotonic_ns()
        answer = do(jet.get_map("keys"), kind, key, value)
        end = time.monotonic_ns()
        with self._lock:
            self.histories[key].append(Operation(kind, value, answer, begin, end))
        jet.get_list("items").append((index, number))
        jet.get_map("journal").compute("count", lambda old: (old or 0) + 1)
        self.appended[index] += 1
        if number % 15 == 0:
            seen = list(jet.get_map("static").items())
            if len(seen) != STATIC or any(key != value for key, value in seen):
                self.wrong.append(f"an iteration met {len(seen)} of {STATIC} entries")
            at = chance.choice(list(self._large))
            if jet.get_map("large").get(at) != self._large[at]:
                self.wrong.append(f"large value {at} is another one")


def be_killed(addresses: list[str], ready: Any) -> None:
    """Append to a list of its own until the process is killed."""
    with client(addresses) as jet:
        for number in range(1 << 30):
            jet.get_list("of the killed").append((os.getpid(), number))
            jet.get_map("static").put(number % STATIC, number % STATIC)
            if number == 5:
                ready.set()


def killed_client(addresses: list[str]) -> None:
    context = multiprocessing.get_context("spawn")
    ready = context.Event()
    process = context.Process(target=be_killed, args=(addresses, ready))
    process.start()
    ready.wait(HANG_S)
    process.kill()
    process.join()


def roll(tally: Tally, options: Options, chance: random.Random) -> None:
    """Have members leave and come under load, and look at all that must be there."""
    members = [start([])]
    members += [start(addresses_of(members)) for _ in range(2)]
    large = {at: os.urandom(100_000 + at) for at in range(4)}
    with client(addresses_of(members)) as jet:
        jet.get_map("static").put_all({key: key for key in range(STATIC)})
        jet.get_map("large").put_all(large)
        users = Users(addresses_of(members), options.seed, large)
        for turn in range(options.count):
            watch(3 * HANG_S)
            if turn % 3 == 0:
                killed_client(addresses_of(members))
            members.pop(chance.randrange(len(members))).shutdown()
            members.append(start(addresses_of(members)))
            tally.done += 1
            options.say(f"turn {turn}: {sum(users.appended)} steps")
            if users.wrong:
                break
        users.stop()
        for text in users.wrong:
            tally.complain(text)
        look(tally, users, jet)
    for member in members:
        member.shutdown()


def look(tally: Tally, users: Users, jet: Any) -> None:
    """Check what is there in the end."""
    items, count = list(jet.get_list("items")), sum(users.appended)
    tally.check(len(items) == len(set(items)) == count, f"{len(items)} items of {count}")
    for index in range(CLIENTS):
        own = [number for client_, number in items if client_ == index]
        tally.check(own == sorted(own), f"the items of client {index} are not in order")
    for pid in {pid for pid, _ in jet.get_list("of the killed")}:
        own = [number for other, number in jet.get_list("of the killed") if other == pid]
        tally.check(own == list(range(len(own))), f"a killed client's items: {own[:20]}")
    found = jet.get_map("journal").get("count")
    tally.check(found == count, f"{found} increments of {count}")
    reader, events = journal_reader(jet.get_map("journal"), "oldest"), []
    while some := reader.read():
        events += [event.new for event in some]
    tally.check(events == list(range(1, count + 1)), f"{len(events)} events of {count}")
    for key, history in users.histories.items():
        last = max(operation.begin for operation in history) + 10**12
        history.append(Operation("get", None, jet.get_map("keys").get(key), last, last))
        tally.check(is_linearisable(history), f"key {key} has no order: {history}")
    tally.notes.append(f"{count} steps of clients")


def kill(tally: Tally, options: Options, chance: random.Random) -> None:
    """Kill members under load, and look at all that must be there."""
    backups = chance.choice([1, 2])
    members, pids = [start([], backups)], dict[int, int]()
    for _ in range(1 + backups):
        members.append(start(addresses_of(members), backups))
    for member, found in zip(members, members[0].cluster.members, strict=True):
        pids[id(member)] = found.pid
    large = {at: os.urandom(100_000 + at) for at in range(4)}
    with client(addresses_of(members)) as jet:
        wait_until_safe(jet, members)
        jet.get_map("static").put_all({key: key for key in range(STATIC)})
        jet.get_map("large").put_all(large)
        users = Users(addresses_of(members), options.seed, large)
        for turn in range(options.count):
            watch(3 * HANG_S)
            if turn % 3 == 0:
                killed_client(addresses_of(members))
            wait_until_safe(jet, members)
            victims = chance.sample(members, chance.randint(1, backups))
            time.sleep(chance.random() * 0.3)
            lose(members, victims, pids)
            for _ in victims:
                members.append(start(addresses_of(members), backups))
                pids[id(members[-1])] = members[0].cluster.members[-1].pid
            tally.done += 1
            options.say(f"turn {turn}: {len(victims)} of {1 + backups} killed, {sum(users.appended)} steps")
            if users.wrong:
                break
        users.stop()
        wait_until_safe(jet, members)
        lose(members, chance.sample(members, backups), pids)
        for text in users.wrong:
            tally.complain(text)
        look(tally, users, jet)
        static = dict(jet.get_map("static").items())
        tally.check(static == {key: key for key in range(STATIC)}, f"{len(static)} entries of {STATIC}")
    for member in members:
        with contextlib.suppress(shmjet.MemberLostError):
            member.shutdown()


def lose(members: list[shmjet.JetInstance], victims: list[shmjet.JetInstance], pids: dict[int, int]) -> None:
    """Kill members at once, and take them out of the list."""
    for victim in victims:
        os.kill(pids[id(victim)], signal.SIGKILL)
    for victim in victims:
        members.remove(victim)
        with contextlib.suppress(shmjet.MemberLostError):
            victim.shutdown()


def wait_until_safe(jet: Any, members: list[shmjet.JetInstance]) -> None:
    deadline = time.monotonic() + HANG_S
    while time.monotonic() < deadline:
        if len(jet.cluster.members) == len(members) and jet.cluster.is_safe:
            return
        time.sleep(0.01)
    raise TimeoutError("the backups are not made")


def main() -> int:
    options = parse_options(__doc__, count=30, ci=1, parts=("rolling", "kills"))
    private_shm()
    mark_processes()
    tally = Tally(Path(__file__).stem, options)
    chance = random.Random(options.seed)
    if options.wants("rolling"):
        roll(tally, options, chance)
    if options.wants("kills"):
        kill(tally, options, chance)
    return tally.finish()


if __name__ == "__main__":
    sys.exit(main())
