"""What sources and sinks of Hazelcast do with a client that fails, is slow, or is not there."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import shmjet
from shmjet import JobConfig, ProcessingGuarantee, sinks, sources
from shmjet.core.context import MetaSupplierContext
from shmjet.core.latency_policy import LOW_LATENCY
from shmjet.processors.hazelcast.settings import CONNECT_TIMEOUT, checked_settings
from shmjet.testing import TestInbox
from tests.processors.driving import Driver

hazelcast = pytest.importorskip("hazelcast", reason="the package hazelcast-python-client is not installed")

BATCH = LOW_LATENCY.write_items


class FakeCollection:
    """A map or a list of which the test says when a write is through, and how it ends."""

    def __init__(self) -> None:
        self.written: list[Any] = []
        self.futures: list[Any] = []
        self.answers_at_once = True

    def _begin(self, items: Any) -> Any:
        from hazelcast.future import Future

        self.written.append(items)
        future = Future()
        self.futures.append(future)
        if self.answers_at_once:
            future.set_result(None)
        return future

    put_all = add_all = _begin

    def _to_data(self, value: Any) -> Any:
        if callable(value):
            raise TypeError("no function")
        return value


class FakeClient:
    def __init__(self) -> None:
        self.collection = FakeCollection()
        self.is_shut_down = threading.Event()

    def get_map(self, name: str) -> FakeCollection:
        return self.collection

    get_list = get_map

    def shutdown(self) -> None:
        self.is_shut_down.set()


def prepared(proxy: FakeCollection, entries: dict[Any, Any]) -> Callable[[], list[Any]]:
    """As `prepare_put_all`, which needs a client that knows its partitions."""
    for key, value in entries.items():
        assert None not in (key, value)
        proxy._to_data(key)
        proxy._to_data(value)
    return lambda: [proxy.put_all(entries)]


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeClient]:
    client = FakeClient()
    monkeypatch.setattr(hazelcast, "HazelcastClient", lambda config=None, **options: client)
    monkeypatch.setattr("shmjet.processors.hazelcast.protocol.prepare_put_all", prepared)
    yield client
    assert client.is_shut_down.is_set()


def driver_of(definition: Any) -> Driver:
    meta = definition.supplier
    meta.init(MetaSupplierContext(vertex_name="v", local_parallelism=1, total_parallelism=1))
    given = meta.get(["here"])
    supplier = given["here"] if not callable(given) else given("here")
    config = JobConfig(processing_guarantee=ProcessingGuarantee.EXACTLY_ONCE)
    return Driver(supplier.get(1)[0], config=config, policy=LOW_LATENCY)


def test_one_write_is_under_way_and_items_wait_for_the_next(client: FakeClient) -> None:
    collection = client.collection
    collection.answers_at_once = False
    driver = driver_of(sinks.remote_list("l"))
    inbox = TestInbox(*range(3 * BATCH))
    for _ in range(4):
        driver.call(driver.processor.process, 0, inbox)
    assert collection.written == [list(range(BATCH))]
    assert len(inbox) == 0  # the second batch is serialized, the third gathered
    collection.futures[0].set_result(None)
    collection.answers_at_once = True
    while inbox:
        driver.call(driver.processor.process, 0, inbox)
    driver.complete()
    assert collection.written == [list(range(at, at + BATCH)) for at in range(0, 3 * BATCH, BATCH)]


def test_a_barrier_waits_for_what_was_written(client: FakeClient) -> None:
    client.collection.answers_at_once = False
    driver = driver_of(sinks.remote_map("m"))
    driver.feed([("a", 1)])
    for _ in range(3):
        assert not driver.call(driver.processor.save_to_snapshot)
    assert client.collection.written == [{"a": 1}]
    client.collection.futures[0].set_result(None)
    assert driver.call(driver.processor.save_to_snapshot)
    driver.complete()


def test_a_few_items_are_written_when_they_have_waited(client: FakeClient) -> None:
    driver = driver_of(sinks.remote_list("l"))
    driver.feed(["a"])
    while not client.collection.written:
        driver.call(driver.processor.try_process)
    driver.call(driver.processor.try_process)
    assert client.collection.written == [["a"]]
    assert driver.processor.next_call == float("inf")
    driver.complete()


@pytest.mark.parametrize(
    ("error", "raised"),
    [
        (hazelcast.errors.HazelcastClientNotActiveError("gone"), shmjet.RestartableError),
        (hazelcast.errors.TargetDisconnectedError("gone"), shmjet.RestartableError),
        (OSError("gone"), shmjet.RestartableError),
        (hazelcast.errors.HazelcastError("full"), shmjet.ProcessorError),
    ],
)
def test_a_lost_cluster_restarts_the_job_and_another_failure_fails_it(
    client: FakeClient, error: Exception, raised: type[Exception]
) -> None:
    client.collection.answers_at_once = False
    driver = driver_of(sinks.remote_map("m", {"cluster_name": "shop"}))
    driver.feed([("a", 1)])
    driver.call(driver.processor.save_to_snapshot)
    client.collection.futures[0].set_exception(error)
    with pytest.raises(raised, match="vertex 'v': remote map 'm'"):
        driver.call(driver.processor.save_to_snapshot)
    driver.processor.close()


@pytest.mark.parametrize(
    ("item", "text"),
    [
        (("a", None), "a value is None"),
        ((print, 1), "cannot write the key builtin_function_or_method"),
        (("a", print), "cannot write the value builtin_function_or_method"),
        ("ab", "expected \\(key, value\\) items, got str 'ab'"),
        (([], 1), "unhashable"),
    ],
)
def test_items_that_cannot_be_put_are_named(client: FakeClient, item: Any, text: str) -> None:
    driver = driver_of(sinks.remote_map("m"))
    driver.feed([("good", 1), item])
    with pytest.raises(shmjet.ProcessorError, match=f"vertex 'v': remote map 'm': .*{text}"):
        driver.call(driver.processor.save_to_snapshot)
    driver.processor.close()


def test_keys_that_only_python_takes_for_equal_are_all_put(client: FakeClient) -> None:
    driver = driver_of(sinks.remote_map("m"))
    driver.feed([(1, "int"), (True, "bool"), (1.0, "float"), (1, "int again")])
    driver.complete()
    assert [list(map(repr, entries.items())) for entries in client.collection.written] == [
        *(["(1, 'int again')"], ["(True, 'bool')"], ["(1.0, 'float')"])
    ]


def test_a_cluster_that_is_not_there_is_told_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(config: Any = None, **options: Any) -> Any:
        import logging

        try:
            raise ConnectionRefusedError("connection refused")
        except OSError:
            logging.getLogger("hazelcast.internal").warning("cannot connect", exc_info=True)
        raise hazelcast.errors.IllegalStateError("Unable to connect to any cluster")

    monkeypatch.setattr(hazelcast, "HazelcastClient", refuse)
    with pytest.raises(shmjet.ProcessorError) as raised:
        driver_of(sinks.remote_map("m", ["a:1", "b:2"]))
    assert str(raised.value) == (
        f"vertex 'v': remote map 'm': cannot connect to cluster 'dev' at a:1, b:2 within {CONNECT_TIMEOUT:g} s: "
        "ConnectionRefusedError: connection refused"
    )


def test_a_client_that_comes_after_an_interruption_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    client, begun, go = FakeClient(), threading.Event(), threading.Event()

    def slow(config: Any = None, **options: Any) -> FakeClient:
        begun.set()
        go.wait(60)
        return client

    class Interrupted(BaseException):
        pass

    class Interrupting(threading.Event):
        """Of the first event that is waited for without a limit: the wait for the client."""

        def wait(self, timeout: float | None = None) -> bool:
            if timeout is None and threading.current_thread() is threading.main_thread() and begun.wait(60):
                raise Interrupted
            return super().wait(timeout)

    monkeypatch.setattr(hazelcast, "HazelcastClient", slow)
    monkeypatch.setattr("shmjet.processors.hazelcast.connection.threading.Event", Interrupting)
    with pytest.raises(Interrupted):
        driver_of(sinks.remote_map("m"))
    go.set()
    assert client.is_shut_down.wait(60)


@pytest.mark.parametrize(
    "make",
    [
        lambda: sources.remote_map("m"),
        lambda: sources.remote_list("l"),
        lambda: sources.remote_map_journal("m"),
        lambda: sinks.remote_map("m"),
        lambda: sinks.remote_list("l"),
    ],
)
def test_a_missing_package_is_told_with_how_to_install_it(
    make: Callable[[], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "hazelcast", None)
    with pytest.raises(ModuleNotFoundError, match="pip install hazelcast-python-client"):
        make()


def test_a_host_without_the_package_is_told_by_its_vertex(monkeypatch: pytest.MonkeyPatch) -> None:
    sink = sinks.remote_map("m")
    monkeypatch.setitem(sys.modules, "hazelcast", None)
    with pytest.raises(ModuleNotFoundError, match="vertex 'v': remote map 'm': this host lacks"):
        driver_of(sink)


def test_a_cluster_is_given_by_address_addresses_options_or_configuration() -> None:
    assert checked_settings("f", None).addresses == "localhost:5701"
    assert checked_settings("f", "a:1").addresses == "a:1"
    assert checked_settings("f", ["a:1", "b:2"]).addresses == "a:1, b:2"
    options = checked_settings("f", {"cluster_name": "shop", "redo_operation": False, "labels": None}).options
    assert options == {"cluster_name": "shop", "redo_operation": False, "cluster_connect_timeout": CONNECT_TIMEOUT}
    config = hazelcast.config.Config()
    config.cluster_name = "own"
    settings = checked_settings("f", config)
    assert (settings.cluster_name, settings.given, settings.connect_timeout) == ("own", config, -1)


@pytest.mark.parametrize(
    ("make", "error", "text"),
    [
        (lambda: sources.remote_map(""), TypeError, "expected a name"),
        (lambda: sinks.remote_list(7), TypeError, "expected a name"),  # type: ignore[arg-type]
        (lambda: sources.remote_map("m", 5701), TypeError, "config must be an address"),
        (lambda: sources.remote_map("m", {"cluster": "x"}), shmjet.ConfigError, "sources.remote_map: .*cluster"),
        (lambda: sources.remote_map("m", {"cluster_name": 3}), shmjet.ConfigError, "must be a string"),
        (lambda: sources.remote_map("m", predicate=bool), TypeError, r"use filter\(fn\)"),
        (lambda: sources.remote_map("m", projection=bool), TypeError, r"use map\(fn\)"),
        (
            lambda: sources.remote_map("m", predicate=hazelcast.predicate.paging(None, 5)),
            shmjet.ConfigError,
            "in pages anyway",
        ),
        (lambda: sources.remote_map_journal("m", start="now"), ValueError, "oldest"),  # type: ignore[arg-type]
        (lambda: sinks.remote_map("m", key_fn=str), TypeError, "both key_fn and value_fn"),
        (lambda: sinks.remote_map("m", key_fn=str, value_fn=3), TypeError, "value_fn must be callable"),  # type: ignore[arg-type]
    ],
)
def test_arguments_that_make_no_sense_are_refused(make: Callable[[], Any], error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        make()


def test_what_is_promised_is_told() -> None:
    assert sinks.remote_map("m").guarantee is ProcessingGuarantee.EXACTLY_ONCE
    assert sinks.remote_list("l").guarantee is ProcessingGuarantee.AT_LEAST_ONCE
    assert not sources.remote_map("m").supplier.is_cooperative
