"""Sources with partitions, written here so that these tests rest on the rule for partitions and on nothing else."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from shmjet.core import partition_id
from shmjet.pipeline import SinkDef, SourceDef
from shmjet.processors import generate, write_list

KeyOf = Callable[[Any], Any]


def partitioned(name: str, items: Iterable[Any], partitions: int, key: KeyOf, parallelism: int = -1) -> SourceDef[Any]:
    """A source whose items lie in partitions by a key: partition `p` is processor `p` modulo their number."""
    given = list(items)

    def share(index: int, count: int) -> list[Any]:
        return [item for item in given if partition_id(key(item), partitions) % count == index]

    return SourceDef(name, generate(share), parallelism, partitions, key)


def scattered(name: str, items: Iterable[Any], parallelism: int = -1) -> SourceDef[Any]:
    """A source whose items lie anyhow."""
    given = list(items)
    return SourceDef(name, generate(lambda index, count: given[index::count]), parallelism)


def of_count(name: str, partitions: int | None) -> SourceDef[Any]:
    """A source of nothing, by its count alone."""
    if partitions is None:
        return scattered(name, ())
    return partitioned(name, (), partitions, lambda item: item)


def sink(name: str = "out", partitions: int | None = None) -> SinkDef[Any]:
    """A sink that writes to a list."""
    return SinkDef(name, write_list(name), 1, partitions=partitions)
