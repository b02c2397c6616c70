"""A member that takes no code, attacked by a client that knows the secret and makes its own messages.

Each way in `docs/design/0018-access.md` by which bytes of a client could reach a pickle has its attacks here. Behind
each the named jobs read whatever it left, in workers of the member, and the trap must not have been sprung there.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import struct
import textwrap
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError
from pathlib import Path
from typing import Any

import cloudpickle
import msgspec
import pytest

from shmjet import (
    DAG,
    AuthenticationError,
    ClientConfig,
    ConfigError,
    JetConfig,
    JetInstance,
    JobStatus,
    ShmjetError,
    between,
    new_client,
    new_instance,
    processors,
)
from shmjet.cluster.client.connection import Connection
from shmjet.cluster.client.submission import submission_of
from shmjet.cluster.lifecycle_messages import DestroySnapshot, ExportSnapshot
from shmjet.cluster.protocol import Execute, GridCall, Upload
from shmjet.core import JobConfig
from shmjet.core.keys import partition_id
from shmjet.execution.messages import LogSubscription
from shmjet.grid import GridError
from shmjet.grid.entries import BLOB, BLOB_BLOCK, BLOCK_HEAD, COLUMNS_BLOCK, PICKLE, PICKLE_BLOCK
from shmjet.grid.layout import INDEX, LIST_RECORD, MAP_RECORD, PARTITION, TYPE_RECORD, record_key
from shmjet.grid.operations import NO_PREFIX, Add, Append, KeepClass, Replace, Write, WriteBlob
from tests.cluster.raw_client import raw_client

pytestmark = pytest.mark.slow

MODULE = """
    from shmjet import DAG, JobConfig, ProcessingGuarantee, Processor, between, processors

    def copied(read):
        dag = DAG()
        source, sink = dag.new_vertex("read", read), processors.write_list("copied")
        return dag.edge(between(source, dag.new_vertex("sink", sink)))

    def reads_map():
        return copied(processors.read_map("given"))

    def reads_list():
        return copied(processors.read_list("given"))

    class Endless(Processor):
        next_call = 0.01

        def complete(self):
            return False

        def save_to_snapshot(self):
            return self.outbox.offer_to_snapshot("k", 1)

        def restore_from_snapshot(self, inbox):
            inbox.clear()

    def endless():
        dag = DAG()
        dag.new_vertex("endless", Endless, 1)
        return dag, JobConfig(processing_guarantee=ProcessingGuarantee.EXACTLY_ONCE)
"""
READERS = ("reads_map", "reads_list")
SETTINGS: dict[str, Any] = {
    "cores": 1,
    "bind": "127.0.0.1:0",
    "secret": "hush",
    "member_secret": "members only",
    "allow_code": False,
    "jobs": {name: f"sj_readers:{name}" for name in (*READERS, "endless")},
}
MAP, LIST = record_key(MAP_RECORD, "given"), record_key(LIST_RECORD, "given")


class Trap:
    """Leaves a trace where it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return os.makedirs, (str(self.path), 0o777, True)


class Attack:
    """What all attacks need: a file to be unpickled, the trace that it would leave, and where things are kept."""

    def __init__(self, client: JetInstance, raw: Connection, environments: int, folder: Path) -> None:
        self.client = client
        self._raw = raw
        self.trace = folder / "sprung"
        self.pickle = pickle.dumps([Trap(self.trace)])
        self.file = folder / "evilA"
        self.file.write_bytes(struct.pack("<QQ", 1, len(self.pickle)) + self.pickle)
        self.list_environment = partition_id("given") % environments
        self.map_environment = partition_id("k") % environments
        self.key = PARTITION.pack(partition_id("k")) + b"sk"

    def ask(self, request: Callable[[int], Any]) -> Any:
        """Send a request that the client's library would never make."""
        return self._raw.ask(request)

    def grid(self, operation: Any) -> Any:
        """Have the member perform an operation on its store."""
        return self.ask(lambda number: GridCall(number, msgspec.msgpack.encode(operation)))

    @property
    def entry_that_is_a_block(self) -> bytes:
        """A map's entry of plain values whose bytes, read as a list's block of kind 0xdc, name the file."""
        path = str(self.file)[:-1].encode()
        return b"\xdc\x00\x02\xd9" + bytes([len(path)]) + path + b"A"

    def write(self, record: bytes, environment: int, *entries: tuple[bytes, bytes]) -> Any:
        """Write what is to be a map's entries."""
        return self.grid(Write(environment, record, list(entries), False))


def _entry(code: int, data: bytes) -> bytes:
    return msgspec.msgpack.encode(("k", msgspec.msgpack.Ext(code, data)))


def _submission(attack: Attack) -> Any:
    dag = DAG()
    source, sink = dag.new_vertex("items", processors.read_items([Trap(attack.trace)])), processors.noop()
    dag.edge(between(source, dag.new_vertex("sink", sink)))
    return submission_of(dag, JobConfig(), "0" * 16, {})


def _execute(attack: Attack, **changes: Any) -> Any:
    submission = msgspec.structs.replace(_submission(attack), **changes)
    return attack.ask(lambda number: Execute(number, "0" * 16, submission, False, None, None, os.urandom(4).hex()))


def _prefixes(attack: Attack) -> None:
    """Write through a map to where keys of other prefixes lead: the first entry has the map's own, the others not."""
    attack.client.get_map("given").put("k", 1)
    attack.client.get_list("given").append(1)
    for own in range(1, 8):
        first = struct.pack(">I", own) + attack.key, msgspec.msgpack.encode(("k", 1))
        for other in range(1, 8):
            second = struct.pack(">I", other) + INDEX.pack(0), attack.entry_that_is_a_block
            attack.write(MAP, attack.map_environment, first, second)
            attack.write(MAP, attack.list_environment, first, second)


ATTACKS: dict[str, Callable[[Attack], Any]] = {
    "code of a job": lambda a: _execute(a),
    "code that says it is the configuration's": lambda a: _execute(a, named="reads_map"),
    "code of a large job": lambda a: _execute(a, code=b"", code_size=1 << 21),
    "config of a job": lambda a: _execute(a, config=cloudpickle.dumps(Trap(a.trace))),
    "attached file": lambda a: a.ask(lambda number: Upload(number, "0" * 16, "../../grid/blobs/1-2", 0, a.pickle)),
    "job by name that brings code, too": lambda a: a.ask(
        lambda number: Execute(number, "0" * 16, _submission(a), True, None, "reads_map", "t")
    ),
    "entry with a pickle": lambda a: a.write(
        MAP, a.map_environment, (NO_PREFIX + a.key, _entry(PICKLE, a.pickle)), (NO_PREFIX + a.key, b"\x92\x01\x01")
    ),
    "entry whose key is a pickle": lambda a: a.write(
        MAP, a.map_environment, (NO_PREFIX + a.key, msgspec.msgpack.encode((msgspec.msgpack.Ext(PICKLE, a.pickle), 1)))
    ),
    "entry with a pickle inside": lambda a: a.write(
        MAP,
        a.map_environment,
        (NO_PREFIX + a.key, msgspec.msgpack.encode(("k", [{"x": msgspec.msgpack.Ext(PICKLE, a.pickle)}]))),
    ),
    "two entries in one": lambda a: a.write(
        MAP, a.map_environment, (NO_PREFIX + a.key, b"\x92\x01\x01" + _entry(PICKLE, a.pickle))
    ),
    "entry that names a file": lambda a: a.write(
        MAP, a.map_environment, (NO_PREFIX + a.key, _entry(BLOB, str(a.file).encode()))
    ),
    "entry replaced": lambda a: a.grid(Replace(a.map_environment, MAP, a.key, _entry(PICKLE, a.pickle), False)),
    "entry added": lambda a: a.grid(Add(a.map_environment, MAP, b"x" + a.key, _entry(PICKLE, a.pickle), True)),
    "list written as a map": lambda a: a.write(
        LIST, a.list_environment, (NO_PREFIX + INDEX.pack(0), a.entry_that_is_a_block)
    ),
    "list replaced as a map": lambda a: a.grid(
        Replace(a.list_environment, LIST, INDEX.pack(0), a.entry_that_is_a_block, False)
    ),
    "list added to as a map": lambda a: a.grid(
        Add(a.list_environment, LIST, INDEX.pack(0), a.entry_that_is_a_block, False)
    ),
    "map written as a list": lambda a: a.grid(
        Append(a.map_environment, MAP, [(1, BLOCK_HEAD.pack(COLUMNS_BLOCK, 1) + a.pickle)], False)
    ),
    "keys with prefixes of others": _prefixes,
    "class in the catalogue": lambda a: a.write(
        MAP, 0, (struct.pack(">I", 1) + a.key, b"\x92\x01\x01"), (TYPE_RECORD + b"some", _entry(PICKLE, a.pickle))
    ),
    "block that is a pickle": lambda a: a.grid(
        Append(a.list_environment, LIST, [(1, BLOCK_HEAD.pack(PICKLE_BLOCK, 1) + a.pickle)], False)
    ),
    "block that names a file": lambda a: a.grid(
        Append(a.list_environment, LIST, [(1, BLOCK_HEAD.pack(BLOB_BLOCK, 1) + str(a.file).encode())], True)
    ),
    "block of an unknown kind": lambda a: a.grid(
        Append(a.list_environment, LIST, [(1, BLOCK_HEAD.pack(0xDC, 1) + str(a.file).encode())], False)
    ),
    "value of its own": lambda a: a.grid(WriteBlob([a.pickle])),
    "class of its own": lambda a: a.grid(KeepClass("some", a.pickle)),
}
"""What the member has to refuse."""


@pytest.fixture(scope="module")
def member(tmp_path_factory: pytest.TempPathFactory) -> Iterator[JetInstance]:
    folder = tmp_path_factory.mktemp("nightly")
    (folder / "sj_readers.py").write_text(textwrap.dedent(MODULE))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", f"{folder}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")
        with new_instance(JetConfig(**SETTINGS)) as jet:
            yield jet


@pytest.fixture
def attack(member: JetInstance, tmp_path: Path) -> Iterator[Attack]:
    address = member.cluster.members[0].address
    environments = len(list((member.folder / "grid").glob("[0-9]*/")))
    with new_client([address], ClientConfig(secret="hush")) as client, raw_client(address, "hush") as raw:
        client.get_list("given").clear()
        client.get_map("given").clear()
        yield Attack(client, raw, environments, tmp_path)


def read_all(client: JetInstance) -> None:
    """Have workers of the member read all that there is; how that ends does not matter here."""
    for name in READERS:
        with contextlib.suppress(ShmjetError):
            client.named_job(name).run(60)


@pytest.mark.parametrize("way", ATTACKS)
def test_what_would_be_unpickled_is_refused(way: str, attack: Attack) -> None:
    with pytest.raises((AuthenticationError, GridError)):
        ATTACKS[way](attack)


def test_nothing_of_a_client_is_unpickled(attack: Attack) -> None:
    for way in ATTACKS.values():
        with contextlib.suppress(AuthenticationError, GridError):
            way(attack)
    read_all(attack.client)
    assert not attack.trace.exists()


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"member_secret": None, "allow_code": True}, "have to prove a member_secret as well"),
        ({"member_secret": "another"}, "the member secrets differ"),
        ({"secret": "another"}, "the secrets differ"),
        ({"allow_code": True}, "give all members the same"),
    ],
)
def test_only_a_member_that_proves_the_member_secret_joins(
    member: JetInstance, changed: dict[str, Any], said: str
) -> None:
    settings = {**SETTINGS, "members": [member.cluster.members[0].address], **changed}
    with pytest.raises((AuthenticationError, ConfigError), match=said):
        new_instance(JetConfig(**settings))
    assert len(member.cluster.members) == 1


def test_the_trap_would_be_sprung(tmp_path: Path) -> None:
    pickle.loads(pickle.dumps([Trap(tmp_path / "sprung")]))
    assert (tmp_path / "sprung").exists()


def test_the_jobs_of_the_configuration_do_read_what_is_there(attack: Attack) -> None:
    attack.client.get_map("given").put("k", 1)
    attack.client.get_list("given").append(2)
    attack.client.get_list("copied").clear()
    for name in READERS:
        attack.client.named_job(name).run(60)
    assert list(attack.client.get_list("copied")) == [("k", 1), 2]


def test_a_wish_for_logs_is_data(attack: Attack) -> None:
    wish = LogSubscription(-1, 1 << 40, "\0" * 1000)
    attack.ask(lambda number: Execute(number, "1" * 16, None, False, wish, "reads_map", "t2"))
    read_all(attack.client)
    job = attack.client.named_job("reads_list")
    job.run(60)
    assert job.status is JobStatus.COMPLETED
    assert job.metrics().attempts == 1


@pytest.mark.parametrize("job_id", ["", "0" * 15, "../../../tmp/x", "0" * 16 + "\0", "x" * 200_000, "0" * 15 + "G"])
def test_a_job_has_an_id_of_the_usual_form(job_id: str, attack: Attack) -> None:
    with pytest.raises(ShmjetError, match="16 hexadecimal digits"):
        attack.ask(lambda number: Execute(number, job_id, None, True, None, "reads_map", os.urandom(4).hex()))


def test_a_client_without_code_stops_jobs_and_lets_them_go_on(
    member: JetInstance, attack: Attack, eventually: Callable[..., None]
) -> None:
    client = attack.client
    job = client.named_job("endless")
    execution = job.execute()
    eventually(lambda: job.status is JobStatus.RUNNING)
    snapshot = job.export_snapshot("kept", 30)
    assert [(found.name, found.keys) for found in client.snapshots()] == [("kept", 1)]
    job.suspend()
    eventually(lambda: job.status is JobStatus.SUSPENDED)
    job.resume()
    eventually(lambda: job.status is JobStatus.RUNNING)
    snapshot.destroy()
    assert client.snapshots() == []
    job.cancel()
    with pytest.raises(CancelledError):
        execution.result(60)


@pytest.mark.parametrize("name", ["../../grid", "..", "/tmp", "a\0b", "x" * 201])
def test_the_name_of_a_snapshot_leads_nowhere_else(name: str, member: JetInstance, attack: Attack) -> None:
    folder = member.folder
    before = {path.name for path in folder.iterdir()}
    with pytest.raises(ShmjetError):
        attack.ask(lambda number: DestroySnapshot(number, name))
    with pytest.raises(ShmjetError):
        attack.ask(lambda number: ExportSnapshot(number, 1, name))
    assert before <= {path.name for path in folder.iterdir()}


def test_a_job_that_may_be_joined_brings_code_too(attack: Attack) -> None:
    dag = DAG()
    dag.new_vertex("items", processors.read_items([1]))
    with pytest.raises(AuthenticationError, match="allow_code"):
        attack.client.new_job_if_absent(dag, JobConfig(name="new")).execute()
