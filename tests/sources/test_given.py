"""Given items, maps, lists and sockets as sources."""

from __future__ import annotations

import socket
import threading
from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import shmjet
from shmjet import ConfigError, PlanError, ShmjetError, sources
from shmjet.core.keys import partition_id
from tests.processors.driving import Driver, processors_of
from tests.sources.running import collected


def shares(source: Any, count: int, grid: Any = None) -> list[list[Any]]:
    """Return what each of `count` processors emits."""
    made = processors_of(source.supplier, count)
    return [Driver(each, index=i, count=count, grid=grid).complete(()) for i, each in enumerate(made)]


def test_few_items_keep_their_order(jet: shmjet.JetInstance) -> None:
    assert collected(jet, sources.items("hello")) == list("hello")
    assert collected(jet, sources.items([])) == []


def test_a_long_range_is_emitted_by_all_processors(jet: shmjet.JetInstance) -> None:
    source = sources.items(range(200_000))
    assert [len(share) for share in shares(source, 4)] == [50_000] * 4
    assert sorted(collected(jet, source)) == list(range(200_000))


def test_many_items_are_emitted_by_all_processors() -> None:
    emitted = shares(sources.items(iter(range(100_000))), 3)
    assert all(emitted)
    assert [item for share in emitted for item in share] == list(range(100_000))


def test_none_is_refused() -> None:
    with pytest.raises(TypeError, match="None"):
        sources.items([1, None])


@given(st.lists(st.tuples(st.text(max_size=3), st.integers())), st.integers(1, 20), st.integers(1, 5))
def test_partitioned_items_are_where_their_key_belongs(
    items: list[tuple[str, int]], partitions: int, parallelism: int
) -> None:
    source = sources.items(items, partitions=partitions, key=lambda item: item[0])
    assert source.partitions == partitions
    assert source.partition_key is not None
    assert source.partition_key(("a", 1)) == "a"
    emitted = shares(source, parallelism)
    assert Counter(item for share in emitted for item in share) == Counter(items)
    for index, share in enumerate(emitted):
        assert all(partition_id(item[0], partitions) % parallelism == index for item in share)


@pytest.mark.parametrize("arguments", [{"partitions": 3}, {"key": len}, {"partitions": 0, "key": len}])
def test_partitions_and_key_belong_together(arguments: dict[str, Any]) -> None:
    with pytest.raises((TypeError, ShmjetError), match="partitions"):
        sources.items("ab", **arguments)


@pytest.mark.parametrize("count", [0, -1, 1.5])
def test_a_wrong_count_is_an_error_of_the_setting_and_of_the_plan(count: Any) -> None:
    for kind in (ConfigError, PlanError):
        with pytest.raises(kind, match=r"sources\.items: partitions must be"):
            sources.items("ab", partitions=count, key=len)
        with pytest.raises(kind, match=r"sources\.map: partitions must be"):
            sources.map("m", partitions=count)


def test_a_map_is_read_by_partitions(jet: shmjet.JetInstance) -> None:
    entries = {f"key {number}": number for number in range(5000)}
    jet.get_map("read").update(entries)
    source = sources.map("read")
    assert source.partitions == 271
    assert dict(collected(jet, source)) == entries
    emitted = shares(source, 3, grid=jet)
    for index, share in enumerate(emitted):
        assert share
        assert all(partition_id(key, 271) % 3 == index for key, _ in share)
    assert collected(jet, sources.map("nothing of that name")) == []


def test_a_map_read_by_other_partitions_is_divided_by_them(jet: shmjet.JetInstance) -> None:
    entries = {number: -number for number in range(1000)}
    jet.get_map("other").update(entries)
    source = sources.map("other", partitions=8)
    assert dict(collected(jet, source)) == entries
    for index, share in enumerate(shares(source, 3, grid=jet)):
        assert all(partition_id(key, 8) % 3 == index for key, _ in share)


def test_a_list_is_read_in_order(jet: shmjet.JetInstance) -> None:
    jet.get_list("read").extend(range(10_000))
    assert collected(jet, sources.list("read")) == list(range(10_000))


@pytest.mark.parametrize("make", [sources.map, sources.list])
def test_names_are_checked(make: Any) -> None:
    with pytest.raises(TypeError, match="name"):
        make("")


def test_a_socket_is_read_to_its_end(jet: shmjet.JetInstance) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(60)

        def serve() -> None:
            connection, _ = server.accept()
            with connection:
                connection.sendall("eins\r\nzwölf\n".encode())

        thread = threading.Thread(target=serve)
        thread.start()
        assert collected(jet, sources.socket("127.0.0.1", server.getsockname()[1])) == ["eins", "zwölf"]
        thread.join()
