"""Against a real member of Hazelcast: one JVM for all tests of this file."""

from __future__ import annotations

import itertools
import struct
import time
from collections.abc import Callable, Iterator
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

import shmjet
from shmjet import JobConfig, Pipeline, ProcessingGuarantee, sinks, sources
from shmjet.core.context import MetaSupplierContext
from shmjet.core.event_time import EventTimePolicy
from tests import hazelcast_members
from tests.hazelcast_members import HazelcastMember, free_ports
from tests.processors.driving import Driver

hazelcast = pytest.importorskip("hazelcast", reason="the package hazelcast-python-client is not installed")

pytestmark = pytest.mark.slow

PARTITIONS = 11


@pytest.fixture(scope="module")
def member(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HazelcastMember]:
    try:
        hazelcast_members.jar()
    except RuntimeError as error:
        pytest.skip(f"Hazelcast cannot be started: {error}")
    journals = {"changes*": 11_000, "few*": 22}
    [port] = free_ports(1)
    member = HazelcastMember(tmp_path_factory.mktemp("member"), port, journals=journals, partitions=PARTITIONS)
    yield member
    member.close()


@pytest.fixture(scope="module")
def client(member: HazelcastMember) -> Iterator[Any]:
    client = hazelcast.HazelcastClient(**member.config)
    yield client
    client.shutdown()


@pytest.fixture(scope="module")
def jet(member: HazelcastMember) -> Iterator[shmjet.JetInstance]:
    with shmjet.new_instance(shmjet.JetConfig(cores=2)) as instance:
        yield instance


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    return str(request.node.name)


def run(jet: shmjet.JetInstance, source: Any, sink: Any) -> None:
    p = Pipeline()
    p.read_from(source).write_to(sink)
    jet.new_job(p).run(60)


def collected(jet: shmjet.JetInstance, source: Any) -> list[Any]:
    with sinks.collect() as results:
        run(jet, source, results)
        return list(results)


def failure_of(jet: shmjet.JetInstance, source: Any, sink: Any) -> str:
    with pytest.raises(shmjet.JobFailedError) as raised:
        run(jet, source, sink)
    return str(raised.value)


def drivers_of(source: Any, count: int, policy: EventTimePolicy | None = None, room: int = 2048) -> list[Driver]:
    """Return a source's processors, started, without an engine."""
    meta = source.supplier if policy is None else source.timed(policy)
    meta.init(MetaSupplierContext(vertex_name="v", local_parallelism=count, total_parallelism=count))
    given = meta.get(["here"])
    supplier = given["here"] if not callable(given) else given("here")
    config = JobConfig(processing_guarantee=ProcessingGuarantee.EXACTLY_ONCE)
    return [
        Driver(processor, index=index, count=count, config=config, room=room)
        for index, processor in enumerate(supplier.get(count))
    ]


def close(drivers: list[Driver]) -> None:
    for driver in drivers:
        driver.processor.close()


def read_some(driver: Driver, enough: Callable[[], bool]) -> None:
    """Call a source until there is enough, for at most a minute."""
    deadline = time.monotonic() + 60
    while not enough():
        assert time.monotonic() < deadline, driver.output
        driver.call(driver.processor.complete)


def test_a_map_is_written_and_read_whole_by_two_processors(
    jet: shmjet.JetInstance, member: HazelcastMember, client: Any, name: str
) -> None:
    entries = [(f"key {number}", number) for number in range(5_000)]
    run(jet, sources.items(entries), sinks.remote_map(name, member.config))
    assert client.get_map(name).size().result() == len(entries)
    found = collected(jet, sources.remote_map(name, member.config))
    assert sorted(found) == sorted(entries)


def test_values_come_back_as_the_client_has_them(jet: shmjet.JetInstance, member: HazelcastMember, name: str) -> None:
    values = [1, -1.5, "text", True, ["list", 2], Decimal("1.50"), date(2026, 1, 2), {"pickled": 1}, bytearray(b"ab")]
    entries = [*enumerate(values), (True, "a bool"), (1.0, "a float")]
    run(jet, sources.items(entries), sinks.remote_map(name, member.config))
    found = collected(jet, sources.remote_map(name, member.config))
    assert sorted(str(entry) for entry in found) == sorted(str(entry) for entry in entries)


def test_functions_make_keys_and_values_and_the_last_of_equal_keys_stays(
    jet: shmjet.JetInstance, member: HazelcastMember, client: Any, name: str
) -> None:
    sink = sinks.remote_map(name, member.config, key_fn=lambda number: number % 10, value_fn=str)
    run(jet, sources.items(range(8_000)), sink)
    found = dict(client.get_map(name).entry_set().result())
    assert found == {number % 10: str(number) for number in range(7_990, 8_000)}


def test_partitions_of_keys_are_those_of_the_client(client: Any) -> None:
    from shmjet.processors.hazelcast.protocol import partition_of

    to_data = client.get_map("any")._to_data
    keys = [0, 1, -1, 2**31 - 1, "", "a", "ab", "abc", "abcd", "ключ", b"", b"bytes", 1.5, (1, "x"), date(2026, 1, 2)]
    for key in (*keys, *map(str, range(2000)), *range(2000)):
        assert partition_of(to_data(key), PARTITIONS) == client.partition_service.get_partition_id(key), key


def test_a_key_whose_hash_is_the_least_integer_is_in_the_first_partition() -> None:
    from hazelcast.serialization.data import Data

    from shmjet.processors.hazelcast.protocol import partition_of

    assert partition_of(Data(bytearray(struct.pack(">ii", -(2**31), -1))), PARTITIONS) == 0


def test_members_evaluate_predicates_and_projections(
    jet: shmjet.JetInstance, member: HazelcastMember, client: Any, name: str
) -> None:
    from hazelcast.predicate import less
    from hazelcast.projection import single_attribute

    client.get_map(name).put_all({number: str(number) for number in range(100)}).result()
    few = less("__key", 3)
    assert sorted(collected(jet, sources.remote_map(name, member.config, predicate=few))) == [
        *((0, "0"), (1, "1"), (2, "2"))
    ]
    values = sources.remote_map(name, member.config, predicate=few, projection=single_attribute("this"))
    assert sorted(collected(jet, values)) == ["0", "1", "2"]


def test_a_list_is_appended_and_read_in_order(
    jet: shmjet.JetInstance, member: HazelcastMember, client: Any, name: str
) -> None:
    client.get_list(name).add("first").result()
    run(jet, sources.items(range(10_000)), sinks.remote_list(name, member.config))
    assert collected(jet, sources.remote_list(name, member.config)) == ["first", *range(10_000)]
    assert collected(jet, sources.remote_list("empty", member.config)) == []


@pytest.mark.parametrize("count", [1, 3])
def test_a_map_goes_on_where_a_snapshot_was_taken(
    member: HazelcastMember, client: Any, name: str, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shmjet.processors.hazelcast.readers.PAGE", 50)
    client.get_map(name).put_all({number: -number for number in range(3000)}).result()
    before = drivers_of(sources.remote_map(name, member.config), 2, room=7)
    for driver in before:
        read_some(driver, lambda driver=driver: len(driver.output) > 300)  # type: ignore[misc]
    saved = [entry for driver in before for entry in driver.save()]
    close(before)
    read = [entry for driver in before for entry in driver.output]
    assert len(read) < 3000
    after = drivers_of(sources.remote_map(name, member.config), count)
    for driver in after:
        driver.restore(saved)
        read += driver.complete(())
    assert sorted(read) == [(number, -number) for number in range(3000)]


def test_a_list_goes_on_where_a_snapshot_was_taken_and_not_when_it_is_shorter(
    member: HazelcastMember, client: Any, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shmjet.processors.hazelcast.readers.PAGE", 10)
    items = client.get_list(name)
    items.add_all(list(range(100))).result()
    [driver] = drivers_of(sources.remote_list(name, member.config), 1, room=3)
    read_some(driver, lambda: len(driver.output) >= 25)
    saved = driver.save()
    driver.processor.close()
    items.add("appended meanwhile").result()
    [after] = drivers_of(sources.remote_list(name, member.config), 1)
    after.restore(saved)
    assert driver.output + after.complete(()) == list(range(100))
    items.clear().result()
    [shorter] = drivers_of(sources.remote_list(name, member.config), 1)
    shorter.restore(saved)
    with pytest.raises(shmjet.ProcessorError, match="had 100 items when the job began and has 0 now"):
        shorter.call(shorter.processor.complete)
    shorter.processor.close()


def test_changes_come_in_order_and_from_the_latest_on(member: HazelcastMember, client: Any) -> None:
    entries = client.get_map("changes in order")
    entries.put("a", 1).result()
    [oldest] = drivers_of(sources.remote_map_journal("changes in order", member.config), 1)
    [latest] = drivers_of(sources.remote_map_journal("changes in order", member.config, start="latest"), 1)
    latest.call(latest.processor.complete)
    entries.put("a", 2).result()
    entries.remove("a").result()
    read_some(oldest, lambda: len(oldest.output) == 3)
    read_some(latest, lambda: len(latest.output) == 2)
    close([oldest, latest])
    assert [event[:4] for event in oldest.output] == [
        *(("added", "a", None, 1), ("updated", "a", 1, 2), ("removed", "a", 2, None))
    ]
    assert [event.sequence for event in oldest.output] == [0, 1, 2]
    assert latest.output == oldest.output[1:]


@pytest.mark.parametrize("count", [1, 3])
def test_a_journal_goes_on_where_a_snapshot_was_taken(
    member: HazelcastMember, client: Any, name: str, count: int
) -> None:
    journal = sources.remote_map_journal(f"changes {name}", member.config)
    entries = client.get_map(f"changes {name}")
    entries.put_all(dict.fromkeys(range(1000), 0)).result()
    before = drivers_of(journal, 2)
    read_some(before[0], lambda: len(before[0].output) > 200)
    saved = [entry for driver in before for entry in driver.save()]
    close(before)
    entries.put_all(dict.fromkeys(range(1000), 1)).result()
    read = [event for driver in before for event in driver.output]
    after = drivers_of(journal, count)
    for driver in after:
        driver.restore(saved)
    read_some(
        after[0],
        lambda: (
            [driver.call(driver.processor.complete) for driver in after] != []
            and len(read) + sum(len(driver.output) for driver in after) >= 2000
        ),
    )
    close(after)
    read += [event for driver in after for event in driver.output]
    assert sorted((event.key, event.new) for event in read) == list(itertools.product(range(1000), (0, 1)))


def test_what_a_journal_has_lost_is_counted(member: HazelcastMember, client: Any) -> None:
    journal = sources.remote_map_journal("few changes", member.config)
    entries = client.get_map("few changes")
    entries.put("a", 0).result()
    [before] = drivers_of(journal, 1)
    read_some(before, lambda: len(before.output) == 1)
    saved = before.save()
    close([before])
    for number in range(1, 11):
        entries.put("a", number).result()  # the partition's journal has room for two
    [after] = drivers_of(journal, 1)
    after.restore(saved)
    read_some(after, lambda: len(after.output) == 3)
    close([after])
    assert [(event.kind, event.new, event.sequence, event.lost) for event in after.output] == [
        *(("lost", None, 1, 8), ("updated", 9, 9, 0), ("updated", 10, 10, 0))
    ]


def test_another_journal_under_the_same_name_is_read_from_its_beginning(member: HazelcastMember, client: Any) -> None:
    journal = sources.remote_map_journal("changes destroyed", member.config)
    entries = client.get_map("changes destroyed")
    for number in range(5):
        entries.put("a", number).result()
    [before] = drivers_of(journal, 1)
    read_some(before, lambda: len(before.output) == 5)
    saved = before.save()
    close([before])
    entries.destroy()
    client.get_map("changes destroyed").put("a", "anew").result()
    [after] = drivers_of(journal, 1)
    after.restore(saved)
    read_some(after, lambda: len(after.output) == 2)
    close([after])
    assert [(event.kind, event.new, event.lost) for event in after.output] == [("lost", None, 0), ("added", "anew", 0)]


def test_each_partition_has_a_time_of_its_own(member: HazelcastMember, client: Any) -> None:
    entries = client.get_map("changes in time")
    for stamp in range(PARTITIONS * 5):
        entries.put(stamp, stamp).result()
    policy = EventTimePolicy(timestamp_fn=lambda event: event.new, stride=1)
    [driver] = drivers_of(sources.remote_map_journal("changes in time", member.config), 1, policy)
    read_some(driver, lambda: sum(type(item) is tuple for item in driver.output) == PARTITIONS * 5)
    facts = driver.processor.time_facts()  # type: ignore[attr-defined]
    close([driver])
    assert len(facts) == PARTITIONS
    assert sorted(item[0] for item in driver.output if type(item) is tuple) == list(range(PARTITIONS * 5))


def test_a_job_that_is_restarted_has_each_change(
    jet: shmjet.JetInstance, member: HazelcastMember, client: Any, eventually: Callable[..., None]
) -> None:
    changed, copied = client.get_map("changes to copy"), client.get_map("copied")
    changed.put_all(dict.fromkeys(range(500), 0)).result()
    p = Pipeline()
    (
        p.read_from(sources.remote_map_journal("changes to copy", member.config))
        .without_timestamps()
        .map(lambda event: (event.key, event.new))
        .write_to(sinks.remote_map("copied", member.config))
    )
    config = JobConfig(processing_guarantee=ProcessingGuarantee.EXACTLY_ONCE, snapshot_interval=0.05)
    job = jet.new_job(p, config)
    job.execute()
    eventually(lambda: copied.size().result() == 500)
    eventually(lambda: job.status is shmjet.JobStatus.RUNNING)
    job.restart()
    changed.put_all({number: number for number in range(500)}).result()
    eventually(lambda: dict(copied.entry_set().result()) == {number: number for number in range(500)})
    job.cancel()


def test_a_member_that_stands_still_for_a_while_is_waited_for(
    jet: shmjet.JetInstance, member: HazelcastMember, client: Any, eventually: Callable[..., None], tmp_path: Path
) -> None:
    seen = {number: tmp_path / str(number) for number in (100, 1000)}

    def noted(number: int) -> tuple[int, int]:
        if number in seen:
            seen[number].touch()
        return number, number

    p = Pipeline()
    (
        p.read_from(sources.item_stream(2000, lambda number, _: number))
        .without_timestamps()
        .map(noted)
        .write_to(sinks.remote_map("still", member.config))
    )
    job = jet.new_job(p)
    job.execute()
    eventually(seen[100].exists)
    member.pause()
    try:
        eventually(seen[1000].exists)  # the sink keeps as many
    finally:
        member.go_on()
    there = client.get_map("still").size().result()
    wanted = set(range(there + 1000))
    eventually(lambda: wanted <= set(client.get_map("still").key_set().result()))
    job.cancel()


def test_what_cannot_be_reached_or_written_is_named(jet: shmjet.JetInstance, member: HazelcastMember) -> None:
    other = {**member.config, "cluster_name": "other", "cluster_connect_timeout": 0}
    refused = failure_of(jet, sources.remote_map("m", other), sinks.noop())
    assert "vertex 'remote_map(m)'" in refused
    assert "cannot connect to cluster 'other' at 127.0.0.1" in refused
    assert "Check cluster name" in refused
    written = failure_of(jet, sources.items([(1, 2**40)]), sinks.remote_map("m", member.config))
    assert "vertex 'remote_map(m)': remote map 'm': cannot write the value int 1099511627776" in written
    assert "default_int_type" in written


def test_a_map_without_a_journal_is_named(member: HazelcastMember) -> None:
    with pytest.raises(shmjet.ConfigError, match="vertex 'v': remote map 'plain': the map has no event journal"):
        drivers_of(sources.remote_map_journal("plain", member.config), 1)


def test_what_another_language_has_written_asks_for_a_serializer(member: HazelcastMember, client: Any) -> None:
    class Price:
        def __init__(self) -> None:
            self.cents = 5

    class PriceSerializer(hazelcast.serialization.api.CompactSerializer[Price]):  # type: ignore[name-defined, misc]
        def read(self, reader: Any) -> Price:
            made = Price()
            made.cents = reader.read_int32("cents")
            return made

        def write(self, writer: Any, price: Price) -> None:
            writer.write_int32("cents", price.cents)

        def get_class(self) -> type[Price]:
            return Price

        def get_type_name(self) -> str:
            return "price"

    config = {**member.config, "compact_serializers": [PriceSerializer()]}
    knowing = hazelcast.HazelcastClient(**config)
    knowing.get_map("prices").put(1, Price()).result()
    knowing.shutdown()
    [driver] = drivers_of(sources.remote_map("prices", config), 1)
    [(key, price)] = driver.complete(())
    assert (key, price.cents) == (1, 5)
    [ignorant] = drivers_of(sources.remote_map("prices", member.config), 1)
    with pytest.raises(shmjet.ProcessorError, match="compact_serializers"):
        ignorant.complete(())
    ignorant.processor.close()


def test_the_journals_of_a_cluster_that_was_lost_whole_are_read_from_their_beginning(
    jet: shmjet.JetInstance, member: HazelcastMember, client: Any
) -> None:
    for number in range(5):
        client.get_map("changes lost").put("a", number).result()
    [driver] = drivers_of(sources.remote_map_journal("changes lost", member.config), 1)
    read_some(driver, lambda: len(driver.output) == 5)
    member.kill()
    member.start()
    other = hazelcast.HazelcastClient(**member.config)
    other.get_map("changes lost").put("a", "anew").result()  # fewer changes than were read before
    other.shutdown()
    read_some(driver, lambda: len(driver.output) == 5 + PARTITIONS + 1)
    close([driver])
    new = driver.output[5:]
    assert [event[:4] for event in new if event.kind != "lost"] == [("added", "a", None, "anew")]
    assert sorted(event.partition for event in new if event.kind == "lost") == list(range(PARTITIONS))
