"""Members that take no code run jobs of their own configuration; nothing of a client is ever unpickled there."""

from __future__ import annotations

import os
import sys
import textwrap
from collections.abc import Iterator
from concurrent.futures import CancelledError
from pathlib import Path
from typing import Any

import msgspec
import pytest

from shmjet import (
    DAG,
    AuthenticationError,
    ClientConfig,
    ConfigError,
    JetConfig,
    JetInstance,
    JobFailedError,
    JobNotFoundError,
    JobStatus,
    between,
    new_client,
    new_instance,
    processors,
)
from shmjet.cluster.client.connection import Connection
from shmjet.cluster.client.named_job_main import make
from shmjet.cluster.protocol import Execute, Shutdown
from shmjet.grid.code_free import brings_pickles
from shmjet.grid.entries import BLOCK_HEAD, COLUMNS_BLOCK, PICKLE, PICKLE_BLOCK
from shmjet.grid.layout import LIST_RECORD, MAP_RECORD, record_key
from shmjet.grid.operations import Add, Append, KeepClass, Pop, Replace, Size, Write, WriteBlob
from tests.cluster.raw_client import raw_client

pytestmark = pytest.mark.slow

MODULE = """
    import itertools

    from shmjet import DAG, JobConfig, Pipeline, between, processors, sinks, sources

    def squares():
        pipeline = Pipeline()
        pipeline.read_from(sources.items(range(10))).map(lambda n: n * n).write_to(sinks.list("squares"))
        return pipeline

    def endless():
        dag = DAG()
        source = dag.new_vertex("source", processors.generate(lambda index, count: itertools.count()))
        return dag.edge(between(source, dag.new_vertex("sink", processors.noop()))), JobConfig()

    def reads():
        dag = DAG()
        source, sink = dag.new_vertex("read", processors.read_map("given")), processors.write_list("read")
        return dag.edge(between(source, dag.new_vertex("sink", sink)))

    def broken():
        raise ValueError("there is no source today")

    def fails():
        def divide(n):
            return 1 // n
        pipeline = Pipeline()
        pipeline.read_from(sources.items([0])).map(divide).write_to(sinks.list("none"))
        return pipeline

    def nothing():
        return 7
"""
JOBS = {name: f"sj_nightly:{name}" for name in ("squares", "endless", "reads", "broken", "fails", "nothing")}
SETTINGS: dict[str, Any] = {
    "cores": 1,
    "bind": "127.0.0.1:0",
    "secret": "hush",
    "member_secret": "members only",
    "jobs": JOBS,
}


class Trap:
    """Leaves a trace where it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self.path),)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("nightly")
    (folder / "sj_nightly.py").write_text(textwrap.dedent(MODULE))
    return folder


@pytest.fixture(scope="module")
def member(folder: Path) -> Iterator[JetInstance]:
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = f"{folder}{os.pathsep}{before or ''}"
    try:
        with new_instance(JetConfig(**SETTINGS, allow_code=False)) as jet:
            yield jet
    finally:
        if before is None:
            del os.environ["PYTHONPATH"]
        else:
            os.environ["PYTHONPATH"] = before


@pytest.fixture
def client(member: JetInstance) -> Iterator[JetInstance]:
    with new_client([member.cluster.members[0].address], ClientConfig(secret="hush")) as jet:
        yield jet


@pytest.fixture
def raw(member: JetInstance) -> Iterator[Connection]:
    with raw_client(member.cluster.members[0].address, "hush") as connection:
        yield connection


def test_a_job_of_the_configuration_runs_by_its_name(member: JetInstance, client: JetInstance) -> None:
    for number, jet in enumerate((client, member)):
        job = jet.named_job("squares")
        job.run(60)
        job.run(60)
        assert job.status is JobStatus.COMPLETED
        assert sorted(client.get_list("squares")) == sorted([n * n for n in range(10)] * 2 * (number + 1))
    assert {job.name for job in client.jobs()} == {"squares"}


def test_a_job_that_runs_can_be_seen_and_cancelled(client: JetInstance) -> None:
    execution = client.named_job("endless").execute()
    found = client.job(name="endless")
    assert found is not None
    assert found.cancel()
    with pytest.raises(CancelledError):
        execution.result(60)


def test_what_cannot_be_made_says_why(client: JetInstance) -> None:
    with pytest.raises(JobNotFoundError, match=r"no job 'other' .* broken, endless, fails"):
        client.named_job("other").run(60)
    with pytest.raises(ConfigError, match=r"(?s)sj_nightly.py.*there is no source today"):
        client.named_job("broken").run(60)
    with pytest.raises(ConfigError, match="must return a DAG or a Pipeline"):
        client.named_job("nothing").run(60)
    with pytest.raises(JobFailedError, match="ZeroDivisionError"):
        client.named_job("fails").run(60)


def test_no_code_of_a_client_is_unpickled(
    client: JetInstance, raw: Connection, member: JetInstance, tmp_path: Path
) -> None:
    trap = Trap(tmp_path / "sprung")
    dag = DAG()
    source, sink = dag.new_vertex("items", processors.read_items([trap])), processors.write_list("out")
    dag.edge(between(source, dag.new_vertex("sink", sink)))
    for jet in (client, member):
        with pytest.raises(AuthenticationError, match="takes no code from clients"):
            jet.new_job(dag).run(60)
    file = tmp_path / "data"
    file.write_bytes(b"data")
    with pytest.raises(AuthenticationError, match="takes no code"):
        raw.ask(lambda number: Execute(number, "0" * 16, _submission(dag), False, None, None, "t"))
    with pytest.raises(AuthenticationError, match="takes no code"):
        client.get_map("given").put("trap", trap)
    with pytest.raises(AuthenticationError, match="takes no code"):
        client.get_list("given").append(trap)
    assert not trap.path.exists()


def _submission(dag: DAG) -> Any:
    """Return a submission that claims to be of the configuration."""
    from shmjet import JobConfig
    from shmjet.cluster.client.submission import submission_of

    return msgspec.structs.replace(submission_of(dag, JobConfig(), "0" * 16, {}), named="squares")


def test_plain_values_are_data_and_may_come(client: JetInstance) -> None:
    given = client.get_map("given")
    given.put_all({"text": "value", "number": 7, "float": 1.5})
    given.put("bytes", b"x" * 100)
    client.named_job("reads").run(60)
    assert sorted(map(repr, client.get_list("read"))) == sorted(map(repr, given.items()))
    client.get_list("some").extend([1, 2, 3])
    assert list(client.get_list("some")) == [1, 2, 3]


def test_a_client_from_afar_cannot_end_a_member(raw: Connection, member: JetInstance) -> None:
    with pytest.raises(AuthenticationError, match="can end a member"):
        raw.ask(Shutdown)
    assert len(member.cluster.members) == 1


def test_members_agree_on_whether_clients_bring_code(member: JetInstance) -> None:
    where = member.cluster.members[0].address
    with pytest.raises(ConfigError, match=r"has allow_code False, and .* has True: give all members the same"):
        new_instance(JetConfig(**SETTINGS, members=[where]))
    assert len(member.cluster.members) == 1


def test_a_job_of_the_configuration_runs_on_all_members(member: JetInstance) -> None:
    where = member.cluster.members[0].address
    with (
        new_instance(JetConfig(**SETTINGS, members=[where], allow_code=False)) as second,
        new_client([second.cluster.members[1].address], ClientConfig(secret="hush")) as jet,
    ):
        jet.get_list("squares").clear()
        jet.named_job("squares").run(60)
        assert sorted(jet.get_list("squares")) == [n * n for n in range(10)]


def test_the_command_line_runs_a_job_by_its_name(member: JetInstance, capsys: pytest.CaptureFixture[str]) -> None:
    from shmjet.cli.app import run_application
    from shmjet.cli.outcome import guarded

    def main(arguments: list[str]) -> int:
        return guarded(lambda: run_application(arguments))

    address = member.cluster.members[0].address
    os.environ["SHMJET_SECRET"] = "hush"
    try:
        assert main(["submit", "--named", "squares", "--address", address]) == 0
        assert main(["submit", "--named", "fails", "--address", address]) == 1
        assert "ZeroDivisionError" in capsys.readouterr().err
        assert main(["submit", "--named", "other", "--address", address]) != 0
        assert "no job 'other'" in capsys.readouterr().err
        assert main(["submit", "--address", address]) == 2
        assert "either a SCRIPT or --named NAME" in capsys.readouterr().err
    finally:
        del os.environ["SHMJET_SECRET"]


# -- without a member ---------------------------------------------------------------------------------------------


def test_what_a_function_may_return(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(folder))
    try:
        submission = make("sj_nightly:endless", "nightly", "0" * 16)
        assert (submission.name, submission.job_id) == ("nightly", "0" * 16)
        assert [vertex.name for vertex in submission.shape.vertices] == ["source", "sink"]
        with pytest.raises(ConfigError, match="has no function 'missing'"):
            make("sj_nightly:missing", "nightly", "0" * 16)
    finally:
        sys.modules.pop("sj_nightly", None)


@pytest.mark.parametrize("wrong", ["squares", ["squares"], {"a": "b"}, {"a": "b:"}, {"a": ":c"}, {"a": 7}, {"": "b:c"}])
def test_wrong_settings_are_named(wrong: Any) -> None:
    with pytest.raises(ConfigError, match=r"JetConfig\.jobs"):
        JetConfig(jobs=wrong)


def test_jobs_come_from_a_file_or_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "member.toml"
    file.write_text('[jobs]\nnightly = "my.jobs:nightly"\n')
    assert JetConfig.from_toml(file).jobs == {"nightly": "my.jobs:nightly"}
    monkeypatch.setenv("SHMJET_JOBS", "a=b:c, d=e.f:g")
    assert JetConfig().jobs == {"a": "b:c", "d": "e.f:g"}


MAP, LIST = record_key(MAP_RECORD, "m"), record_key(LIST_RECORD, "l")
PLAIN = msgspec.msgpack.encode(("key", 7))
PICKLED = msgspec.msgpack.encode(("key", msgspec.msgpack.Ext(PICKLE, b"cos\n")))
NESTED = msgspec.msgpack.encode(("key", [msgspec.msgpack.Ext(PICKLE, b"cos\n")]))


@pytest.mark.parametrize(
    ("operation", "brings"),
    [
        (Size(0, b"r"), False),
        (Pop(0, MAP, b"key"), False),
        (Write(0, MAP, [(b"k", PLAIN), (b"k", PLAIN)], False), False),
        (Write(0, MAP, [(b"k", PLAIN), (b"k", PICKLED)], False), True),
        (Write(0, MAP, [(b"k", PLAIN + PICKLED)], False), True),
        (Write(0, LIST, [(b"k", PLAIN)], False), True),
        (Replace(0, MAP, b"k", NESTED, False), True),
        (Replace(0, LIST, b"k", PLAIN, False), True),
        (Add(0, MAP, b"k", b"\xc1 no msgpack", False), True),
        (Add(0, MAP, b"k", b"\x91" * 100_000, False), True),
        (Add(0, MAP, b"k", b"\x92\xa1\x94\x01", False), True),
        (Append(0, LIST, [(1, BLOCK_HEAD.pack(COLUMNS_BLOCK, 1) + b"x")], False), False),
        (Append(0, LIST, [(1, BLOCK_HEAD.pack(PICKLE_BLOCK, 1) + b"x")], False), True),
        (Append(0, LIST, [(1, BLOCK_HEAD.pack(0x92, 1) + b"x")], False), True),
        (Append(0, MAP, [(1, BLOCK_HEAD.pack(COLUMNS_BLOCK, 1) + b"x")], False), True),
        (Append(0, LIST, [(1, b"")], False), True),
        (WriteBlob([b"x"]), True),
        (KeepClass("id", b"x"), True),
    ],
)
def test_what_brings_pickles_is_known_by_its_bytes(operation: Any, brings: bool) -> None:
    assert brings_pickles(msgspec.msgpack.encode(operation)) is brings


def test_what_is_no_operation_is_taken_for_the_worst() -> None:
    assert brings_pickles(b"no operation")
