"""Sources that are one ready-made processor each: maps, lists, sockets."""

from __future__ import annotations

from typing import Any

from shmjet import processors
from shmjet.core.checks import check_at_least
from shmjet.core.job import ProcessingGuarantee
from shmjet.core.keys import DEFAULT_PARTITION_COUNT
from shmjet.data.errors import PartitionCountError
from shmjet.pipeline.definitions import SourceDef
from shmjet.processors.general.base import Supply
from shmjet.processors.grid.partitioned_items import PartitionedMapProcessor


def map_(name: str, *, partitions: int = DEFAULT_PARTITION_COUNT) -> SourceDef[tuple[Any, Any]]:
    """Emit the (key, value) tuples of a map of the instance, each once.

    The source is partitioned by the entry's key, with the partitions of the map, so that a join by the key with
    another map, or with items that are partitioned alike, moves nothing. Under a processing guarantee the map must not
    change while the job runs, see `processors.read_map`.

    Args:
        name: of the map. A map that does not exist is empty.
        partitions: `JetConfig.partition_count` of the instance, when it is not the default. With another number the
            result is the same, but every processor reads the whole map.

    Raises:
        TypeError: `name` is not a non-empty string. ConfigError, PlanError: `partitions` is below 1.

    Example:
        >>> map_("counts").partitions
        271
    """
    processors.read_map(name)
    check_at_least("sources.map: partitions", partitions, 1, PartitionCountError)
    supplier = Supply(PartitionedMapProcessor, name, partitions)
    return SourceDef(
        f"map({name})", supplier, partitions=partitions, partition_key=_key, guarantee=ProcessingGuarantee.EXACTLY_ONCE
    )


def list_(name: str) -> SourceDef[Any]:
    """Emit the items of a list of the instance, each once, in order, with one processor.

    Args:
        name: of the list. A list that does not exist is empty.

    Raises:
        TypeError: `name` is not a non-empty string.

    Example:
        >>> list_("primes").name
        'list(primes)'
    """
    return SourceDef(
        f"list({name})", processors.read_list(name), 1, columnar=None, guarantee=ProcessingGuarantee.EXACTLY_ONCE
    )


def socket(host: str, port: int, *, charset: str = "utf-8", errors: str = "replace") -> SourceDef[str]:
    """Connect to a server and emit the lines of text that it sends, until it closes the connection.

    It promises nothing in a job with a processing guarantee: what was sent to a processor that is lost does not come
    again, and a restarted job connects anew.

    Args:
        host, port: of the server.
        charset, errors: of the text, as for `bytes.decode`.

    Raises:
        TypeError, ValueError, LookupError: for arguments that make no sense.

    A connection that is refused, or does not come about within 10 s, makes the job fail with the `OSError`.

    Example:
        >>> socket("localhost", 5000).parallelism
        1
    """
    supplier = processors.read_lines_socket(host, port, encoding=charset, errors=errors)
    return SourceDef(f"socket({host}:{port})", supplier, 1)


def _key(entry: tuple[Any, Any]) -> Any:
    return entry[0]
