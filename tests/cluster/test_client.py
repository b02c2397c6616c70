"""What a client may do, and what it is told when it does something wrong: with one member, over loopback TCP."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from shmjet import (
    DAG,
    ClientConfig,
    ConfigError,
    JetConfig,
    JetInstance,
    JobStatus,
    MemberLostError,
    Processor,
    ShmjetError,
    between,
    new_client,
    new_instance,
    processors,
)
from shmjet.cluster.client.endpoint import RemoteEndpoint
from shmjet.cluster.client.known_runs import KnownRuns
from shmjet.cluster.client.status_poller import ExecutionStatusPoller
from shmjet.cluster.protocol import Done, Refused

pytestmark = pytest.mark.slow


class Forever(Processor):
    def complete(self) -> bool:
        return False


def items(out: str) -> DAG:
    dag = DAG()
    source = dag.new_vertex("items", processors.read_items(range(10)))
    return dag.edge(between(source, dag.new_vertex("sink", processors.write_list(out))))


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """Of a member of the cluster "orders"."""
    with new_instance(JetConfig(cores=1, bind="127.0.0.1:0", secret="hush", cluster_name="orders")) as jet:
        yield jet.cluster.members[0].address


@pytest.fixture
def client(address: str) -> Iterator[JetInstance]:
    with new_client([address], ClientConfig(secret="hush")) as jet:
        yield jet


def test_a_client_that_names_a_cluster_wants_that_one(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match="member of cluster 'orders', and this client wants cluster 'other'"):
        new_client([address], ClientConfig(secret="hush", cluster_name="other"))
    with new_client([address], ClientConfig(secret="hush", cluster_name="orders")) as jet:
        assert jet.config.cluster_name == "orders"
    monkeypatch.setenv("SHMJET_CLUSTER_NAME", "other")
    with pytest.raises(ConfigError, match="wants cluster 'other'"):
        new_client([address], ClientConfig(secret="hush"))


def test_the_port_of_a_member_in_the_same_environment_is_none_of_a_clients_business(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHMJET_BIND", "0.0.0.0:5701")
    with new_client([address], ClientConfig(secret="hush")) as jet:
        assert jet.config.bind is None
        assert [member.address for member in jet.cluster.members] == [address]


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"secrt": "hush"}, "ClientConfig: there is no setting 'secrt'; did you mean 'secret'"),
        ({"secret": 5}, "secret must be a non-empty text"),
        ({"connect_timeout": 0}, "connect_timeout must be a number of seconds above 0"),
        ({"timeout": "10"}, "timeout must be a number of seconds above 0"),
        ({"timeout": timedelta(0)}, "timeout must be a number of seconds above 0"),
    ],
)
def test_a_wrong_setting_is_named(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        ClientConfig(**settings)
    assert ClientConfig(timeout=timedelta(minutes=1)).timeout == 60.0  # type: ignore[arg-type]


def test_a_missing_certificate_is_a_matter_of_configuration(address: str, tmp_path: Path) -> None:
    tls = {"authority": str(tmp_path / "nowhere.pem")}
    with pytest.raises(ConfigError, match=r"nowhere\.pem"):
        new_client([address], ClientConfig(secret="hush", tls=tls))


def test_a_callback_may_use_the_instance(client: JetInstance) -> None:
    seen: Future[Any] = Future()

    def look(execution: Any) -> None:
        try:
            emitted = execution.metrics().vertices["items"].processors[0].emitted_count
            client.new_job(items("second")).run(60)
            seen.set_result((emitted, sorted(client.get_list("second")), len(client.jobs())))
        except BaseException as error:
            seen.set_exception(error)

    client.new_job(items("first")).execute().add_done_callback(look)
    assert seen.result(60)[:2] == (10, list(range(10)))


def test_a_callback_of_a_job_that_was_cancelled_may_end_the_instance(address: str) -> None:
    done = threading.Event()
    jet = new_client([address], ClientConfig(secret="hush"))
    dag = DAG()
    dag.new_vertex("forever", Forever)
    execution = jet.new_job(dag).execute()

    def end(_: Any) -> None:
        jet.shutdown()
        done.set()

    execution.add_done_callback(end)
    assert execution.cancel()
    assert done.wait(60)
    with pytest.raises(CancelledError):
        execution.result(0)
    with pytest.raises(ShmjetError, match="has been shut down"):
        jet.jobs()


def test_an_execution_whose_end_nobody_tells_is_asked_about(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RemoteEndpoint, "patience", 0.2)
    take, lost = KnownRuns.take, []

    def lose_an_end(known: KnownRuns, change: Any) -> Any:
        if lost or not JobStatus(change.status).is_terminal:
            return take(known, change)
        lost.append(change)
        return None

    with new_client([address], ClientConfig(secret="hush")) as jet:
        monkeypatch.setattr(KnownRuns, "take", lose_an_end)
        jet.new_job(items("quiet")).run(60)
        assert len(lost) == 1


def test_executions_are_asked_about_until_somebody_knows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shmjet.cluster.client.status_poller.AGAIN_S", 0.01)
    asked, pending = [], [5, 7]
    done = threading.Event()

    def post(make: Callable[[int], Any]) -> Future[Any]:
        reply: Future[Any] = Future()
        asked.append(make(len(asked)).executions)
        if len(asked) < 3:
            pending[:] = [7]
            reply.set_result(Refused(0, "MemberLostError", "there is no coordinator"))
        else:
            reply.set_result(Done(0))
            done.set()
        return reply

    ExecutionStatusPoller(post, lambda: list(pending)).all()
    assert done.wait(60)
    assert asked == [[5, 7], [7], [7]]


def test_a_client_that_knows_one_member_goes_on_with_the_others(
    address: str, eventually: Callable[[Callable[[], object]], None]
) -> None:
    config = JetConfig(cores=1, bind="127.0.0.1:0", secret="hush", cluster_name="orders", members=[address])
    with new_instance(config) as second:
        only = second.cluster.members[1].address
        jet = new_client([only], ClientConfig(secret="hush"))
        kept = jet.get_map("kept")
        kept.put_all({number: number for number in range(5000)})
        eventually(lambda: jet.cluster.is_safe)
        under_way = iter(kept.items())
        seen = [next(under_way)]
        os.kill(second.cluster.members[1].pid, signal.SIGKILL)
    try:
        seen += under_way
        assert len(seen) == len(dict(seen)) == 5000
        eventually(lambda: [member.address for member in jet.cluster.members] == [address])
        assert len(kept) == len(dict(kept)) == 5000, "what the lost member had is on the other one"
        kept["new"] = 1
        assert kept["new"] == 1
        kept.destroy()
    finally:
        jet.shutdown()


def test_many_clients_may_come_at_once(address: str) -> None:
    def come(_: int) -> int:
        with new_client([address], ClientConfig(secret="hush", connect_timeout=60)) as jet:
            return len(jet.cluster.members)

    with ThreadPoolExecutor(100) as threads:
        assert list(threads.map(come, range(100))) == [1] * 100


def test_where_nobody_is_the_error_says_who_was_asked() -> None:
    with pytest.raises(MemberLostError, match=r"127\.0\.0\.1:1: connection refused; host\.invalid:1: .*shmjet member"):
        new_client(["127.0.0.1:1", "host.invalid:1"], ClientConfig(secret="hush", connect_timeout=2))


@pytest.mark.parametrize("wrong", ["10.0.0.5", "10.0.0.5:x", ":5701", "10.0.0.5:99999", "", 5])
def test_what_is_no_address_is_named(wrong: Any) -> None:
    with pytest.raises(ConfigError, match=r"new_client\(\) takes addresses such as '10\.0\.0\.5:5701', got "):
        new_client(["10.0.0.6:5701", wrong], ClientConfig(secret="hush"))
