"""A client with the secret attacks a cluster of two members that take no code: nothing of it is unpickled.

It makes its own messages: requests of all types with wrong numbers, names and values, each pickle in them a trap that
makes a folder where it is unpickled; half of them are then spoiled like in `hostile_bytes.py`. After each round an
honest client is answered, and workers read what is in the maps and lists. Parts:

* `requests`: those messages, over several connections, with both members;
* `floods`: connections that prove nothing, clients that ask nothing, clients that never read, handshakes byte by byte,
  ends that say that they are members: honest clients are let in and run jobs meanwhile.

Afterwards both members are the processes that they were, grown by less than 64 MB, without an error in their logs, and
the trap has not been sprung.

Usage: stress/hostile_client.py [--count N] [--seed S] [--ci] [--only PART] [--verbose]
"""

from __future__ import annotations

import contextlib
import logging
import os
import pickle
import random
import socket
import struct
import sys
import tempfile
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from _stress import Options, Tally, all_gone, mark_processes, parse_options, private_shm, watch
from hostile_bytes import pieces, spoil

COUNT, CI_COUNT = 20_000, 600
PARTS = ("requests", "floods")
ROUND = 200
HANG_S = 600.0
MOST_GROWTH = 64 << 20
SECRET, MEMBER_SECRET = "of clients, too", "of members alone"
JOBS = ("reads_map", "reads_list")
MODULE = """
    from shmjet import DAG, between, processors

    def copied(read):
        dag = DAG()
        source = dag.new_vertex("read", read)
        return dag.edge(between(source, dag.new_vertex("sink", processors.noop())).distributed())

    def reads_map():
        return copied(processors.read_map("given"))

    def reads_list():
        return copied(processors.read_list("given"))
"""


class Trap:
    """Leaves a trace where it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return os.makedirs, (str(self.path), 0o777, True)


class Messages:
    """Makes requests.

    Args:
        rng: decides everything.
        folder: where a file to be unpickled is, and the trace would be.
    """

    def __init__(self, rng: random.Random, folder: Path) -> None:
        self._rng = rng
        self.trace = folder / "sprung"
        self._pickle = pickle.dumps([Trap(self.trace)])
        self._file = folder / "evilA"
        self._file.write_bytes(struct.pack("<QQ", 1, len(self._pickle)) + self._pickle)

    def framed(self) -> bytes:
        """Return a request as it is sent, or something like one."""
        import msgspec

        rng = self._rng
        body = msgspec.msgpack.encode(self._request())
        if rng.random() < 0.5:
            body = spoil(body, rng)
        head = _head(body)
        return (spoil(head, rng) if rng.random() < 0.02 else head) + body

    def one_of_each(self) -> Iterator[bytes]:
        """Yield a well-formed request of each kind, and a grid call with each operation."""
        import typing

        import msgspec

        from shmjet.cluster.protocol import GridCall, Request
        from shmjet.grid.operations import Operation

        for kind in typing.get_args(Request):
            body = msgspec.msgpack.encode(self._value(kind))
            yield _head(body) + body
        for kind in typing.get_args(Operation):
            operation = msgspec.msgpack.encode(self._operation(kind))
            body = msgspec.msgpack.encode(GridCall(1, operation, self._number() & 0xFF, False))
            yield _head(body) + body

    def _number(self) -> int:
        return self._rng.choice((0, 1, 2, 7, -1, 1 << 20, 1 << 31, (1 << 63) - 1, -(1 << 63)))

    def _text(self) -> str:
        return self._rng.choice(
            ("given", "", "x", "../../x", str(self._file), "a\0b", "ü" * 300, "0" * 16, "reads_map")
        )

    def _bytes(self) -> bytes:
        path = str(self._file)[:-1].encode()
        disguised = b"\xdc\x00\x02\xd9" + bytes([len(path)]) + path + b"A"
        return self._rng.choice((b"", self._pickle, disguised, str(self._file).encode(), b"\x92\x01\x01", bytes(4)))

    def _value(self, kind: Any) -> Any:
        """Return any value of a declared type."""
        import types
        import typing

        import msgspec

        origin, arguments = typing.get_origin(kind), typing.get_args(kind)
        if origin in (typing.Union, types.UnionType):
            return self._value(self._rng.choice(arguments))
        if origin is typing.Annotated:
            return self._value(arguments[0])
        if origin is list:
            return [self._value(arguments[0]) for _ in range(self._rng.choice((0, 1, 1, 2, 40)))]
        if origin is tuple:
            many = arguments[:1] * self._rng.randrange(3) if arguments[-1] is ... else arguments
            return tuple(self._value(part) for part in many)
        if origin is dict:
            return {self._value(arguments[0]): self._value(arguments[1])}
        if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
            fields = msgspec.structs.fields(kind)
            return kind(**{field.name: self._value(field.type) for field in fields})
        makers: dict[Any, Any] = {
            int: self._number,
            float: lambda: self._rng.choice((0.0, -1.0, 1e300, float("nan"))),
            str: self._text,
            bytes: self._bytes,
            memoryview: self._bytes,
            bool: lambda: self._rng.random() < 0.5,
            type(None): lambda: None,
        }
        return makers[kind]()

    def _request(self) -> Any:
        import typing

        import msgspec

        from shmjet.cluster.protocol import GridCall, Request
        from shmjet.grid.operations import Append, Operation, Write

        if self._rng.random() < 0.5:
            kind = self._rng.choice(typing.get_args(Operation))
            if kind.__name__ in ("Drop", "Describe") and self._rng.random() < 0.9:
                kind = self._rng.choice((Write, Append))
            return GridCall(1, msgspec.msgpack.encode(self._operation(kind)), self._number() & 0xFF, False)
        return self._value(self._rng.choice(typing.get_args(Request)))

    def _operation(self, kind: Any) -> Any:
        import msgspec

        from shmjet.grid.entries import BLOCK_HEAD
        from shmjet.grid.layout import INDEX, LIST_RECORD, MAP_RECORD, PARTITION, TYPE_RECORD, record_key

        rng = self._rng
        operation = self._value(kind)
        if not hasattr(operation, "record"):
            return operation
        records = [record_key(MAP_RECORD, "given"), record_key(LIST_RECORD, "given"), TYPE_RECORD + b"some", b""]
        fields: dict[str, Any] = {"environment": rng.randrange(-1, 9), "record": rng.choice(records)}
        partition = PARTITION.pack(rng.randrange(300))
        keys = [bytes(4) + partition + b"sk", partition + b"sk", bytes(4) + INDEX.pack(0), INDEX.pack(rng.randrange(3))]
        keys += [struct.pack(">I", rng.randrange(1, 6)) + INDEX.pack(0), TYPE_RECORD + b"some", b""]
        entries = [msgspec.msgpack.encode(("k", msgspec.msgpack.Ext(rng.randrange(4), self._bytes()))), self._bytes()]
        entries += [msgspec.msgpack.encode(("k", "v")), msgspec.msgpack.encode(("k", [self._number()]))]
        if hasattr(operation, "key"):
            fields["key"] = rng.choice(keys)
        if hasattr(operation, "value"):
            fields["value"] = rng.choice(entries)
        if hasattr(operation, "entries"):
            fields["entries"] = [(rng.choice(keys), rng.choice(entries)) for _ in range(rng.choice((1, 1, 2, 5)))]
        if hasattr(operation, "blocks"):
            count = rng.choice((1, 1, 1, 2, -1, 0))
            head = BLOCK_HEAD.pack(rng.choice((1, 1, 2, 3, 4, 0xDC)), rng.choice((1, 1, max(0, count))))
            fields["blocks"] = [(count, head + self._bytes())]
        return msgspec.structs.replace(operation, **fields)


class Cluster:
    """Two members that take no code, and an honest client."""

    def __init__(self, closing: contextlib.ExitStack, folder: Path) -> None:
        import psutil

        import shmjet

        (folder / "sj_attacked.py").write_text(textwrap.dedent(MODULE))
        os.environ["PYTHONPATH"] = f"{folder}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"
        common: dict[str, Any] = {"cores": 1, "bind": "127.0.0.1:0", "secret": SECRET, "member_secret": MEMBER_SECRET}
        common |= {"allow_code": False, "jobs": {name: f"sj_attacked:{name}" for name in JOBS}}
        first = closing.enter_context(shmjet.new_instance(shmjet.JetConfig(**common)))
        joined = shmjet.JetConfig(**common, members=[first.cluster.members[0].address])
        closing.enter_context(shmjet.new_instance(joined))
        members = first.cluster.members
        self.addresses = [member.address for member in members]
        self.processes = [psutil.Process(member.pid) for member in members]
        self.processes += [
            child for process in self.processes for child in process.children() if "link" in child.name()
        ]
        self.honest = self.client()
        closing.callback(self.honest.shutdown)
        self.work()
        self.sizes = self._sizes()

    def client(self) -> Any:
        """Return another honest client."""
        import shmjet

        return shmjet.new_client(self.addresses[::-1], shmjet.ClientConfig(secret=SECRET, connect_timeout=HANG_S))

    def work(self) -> None:
        """Have workers read all that there is; what spoils that is an error of the job, and nothing worse."""
        from shmjet import JobFailedError

        for name in JOBS:
            with contextlib.suppress(JobFailedError):
                self.honest.named_job(name).run(HANG_S)

    def _sizes(self) -> list[int]:
        return [process.memory_info().rss for process in self.processes]

    def check(self, tally: Tally, messages: Messages) -> None:
        """See that all is as it should be."""
        tally.check(not messages.trace.exists(), "something of a client was unpickled")
        tally.check(all(process.is_running() for process in self.processes), "a member or its link is gone")
        tally.check(len(self.honest.cluster.members) == 2, "the members have lost each other")

    def check_growth(self, tally: Tally) -> None:
        """See that no process has grown too much."""
        for process, before, now in zip(self.processes, self.sizes, self._sizes(), strict=True):
            tally.check(now - before < MOST_GROWTH, f"{process.name()} grew by {(now - before) >> 20} MiB")


def _head(body: bytes) -> bytes:
    """Return what goes before a request: its length, and that nothing follows it."""
    return len(body).to_bytes(4, "little") + b"\0"


def dial(address: str) -> socket.socket:
    """Connect as a client that knows the secret."""
    from shmjet.net.dial import dial

    return dial(address, cluster="dev", secret=SECRET.encode(), timeout=HANG_S).socket


def requests(count: int, rng: random.Random, tally: Tally, cluster: Cluster, messages: Messages) -> None:
    for request in messages.one_of_each():
        with dial(rng.choice(cluster.addresses)) as sock:
            sock.settimeout(0.01)
            with contextlib.suppress(OSError):
                sock.sendall(request)
                sock.recv(1 << 16)
    cluster.check(tally, messages)
    for start in range(0, count, ROUND):
        watch(HANG_S)
        for _ in range(4):
            with dial(rng.choice(cluster.addresses)) as sock:
                sock.settimeout(0.01)
                with contextlib.suppress(OSError):
                    for _ in range(ROUND // 4):
                        for piece in pieces(messages.framed(), rng):
                            sock.sendall(piece)
                        if rng.random() < 0.5:
                            with contextlib.suppress(TimeoutError):
                                sock.recv(1 << 16)
        tally.done += min(ROUND, count - start)
        cluster.work()
        if rng.random() < 0.3:
            cluster.honest.get_map("given").clear()
            cluster.honest.get_list("given").clear()
        cluster.check(tally, messages)


def silent(address: str, rng: random.Random) -> socket.socket:
    """Connect and say nothing that proves anything."""
    from shmjet.net.handshake import CLIENT, MEMBER, Dialing, Identity

    host, _, port = address.rpartition(":")
    sock = socket.create_connection((host, int(port)), 20)
    me = Identity(rng.choice((CLIENT, MEMBER)), "dev", "a" * 32, "10.0.0.9:5701", b"a guess")
    said = Dialing(me, os.urandom(32), b"").start()
    sock.sendall(said[: rng.randrange(len(said) + 1)])
    return sock


def pretend(address: str) -> bool:
    """Say that one is a member, with the secret of clients; returns whether that was believed."""
    from shmjet.net.handshake import MEMBER, Dialing, HandshakeError, Identity

    host, _, port = address.rpartition(":")
    me = Identity(MEMBER, "dev", os.urandom(16).hex(), "10.0.0.9:5701", SECRET.encode(), SECRET.encode())
    dialing = Dialing(me, os.urandom(32), b"")
    with socket.create_connection((host, int(port)), 20) as sock:
        sock.sendall(dialing.start())
        try:
            while not dialing.done and (data := sock.recv(4096)):
                sock.sendall(dialing.feed(data))
        except (HandshakeError, OSError):
            pass
    return dialing.done


def floods(count: int, rng: random.Random, tally: Tally, cluster: Cluster, messages: Messages) -> None:
    import msgspec

    from shmjet.cluster.protocol import Describe, ListJobs

    asked = b"".join(
        len(body).to_bytes(4, "little") + b"\0" + body
        for body in (msgspec.msgpack.encode(kind(1)) for kind in (ListJobs, Describe) * 5000)
    )
    entering = tally.timing("a client comes in and asks, among floods", 5.0)
    for _ in range(max(1, count // 300)):
        watch(HANG_S)
        with contextlib.ExitStack() as held:
            for _ in range(200):
                held.enter_context(silent(rng.choice(cluster.addresses), rng))
            for _ in range(100):
                held.enter_context(dial(rng.choice(cluster.addresses)))
            for _ in range(5):
                deaf = held.enter_context(dial(rng.choice(cluster.addresses)))
                deaf.setblocking(False)
                with contextlib.suppress(OSError):
                    for _ in range(100):
                        deaf.send(asked)
            tally.check(not any(map(pretend, cluster.addresses)), "a client was taken for a member")
            for _ in flooding(cluster, held, rng):
                started = _now()
                other = cluster.client()
                tally.check(len(other.cluster.members) == 2, "a client among floods sees other members")
                entering.add(_now() - started)
                other.shutdown()
            cluster.work()
        tally.done += 1
        cluster.check(tally, messages)


def flooding(cluster: Cluster, held: contextlib.ExitStack, rng: random.Random) -> Iterator[None]:
    """Add further connections between two looks."""
    for _ in range(3):
        for _ in range(70):
            held.enter_context(silent(rng.choice(cluster.addresses), rng))
        yield


def _now() -> float:
    import time

    return time.monotonic()


FUNCTIONS = {"requests": requests, "floods": floods}


def main() -> int:
    options: Options = parse_options(__doc__, count=COUNT, ci=CI_COUNT, parts=PARTS)
    private_shm()
    mark = mark_processes()
    tally = Tally("hostile_client", options)
    rng = random.Random(options.seed)
    handler = logging.Handler(logging.ERROR)
    handler.emit = lambda record: tally.complain(f"in the log: {record.getMessage()}")  # type: ignore[method-assign]
    logging.getLogger().handlers[:] = [handler]
    with tempfile.TemporaryDirectory() as place, contextlib.ExitStack() as closing:
        messages = Messages(rng, Path(place))
        cluster = Cluster(closing, Path(place))
        for part in PARTS:
            if options.wants(part):
                FUNCTIONS[part](options.count, rng, tally, cluster, messages)
                options.say(f"{part}: done")
        cluster.check_growth(tally)
        watch(HANG_S)
    tally.check(all_gone(mark), "processes were left behind")
    return tally.finish()


if __name__ == "__main__":
    sys.exit(main())
