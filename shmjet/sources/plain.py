"""Sources that are one ready-made processor each: maps, lists, sockets."""

from __future__ import annotations

import codecs
from functools import partial
from typing import Any

from shmjet import processors
from shmjet.core.checks import check_at_least
from shmjet.core.event_time import EventTimePolicy
from shmjet.core.job import ProcessingGuarantee
from shmjet.core.keys import DEFAULT_PARTITION_COUNT
from shmjet.core.processor import ProcessorMetaSupplier
from shmjet.data.errors import PartitionCountError
from shmjet.pipeline.definitions import SourceDef, StreamSourceDef
from shmjet.processors.files.line_blocks import check_encoding
from shmjet.processors.general.base import Supply
from shmjet.processors.general.sockets import checked_address
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


def socket_stream(host: str, port: int, *, charset: str = "utf-8", errors: str = "replace") -> StreamSourceDef[str]:
    """Connect to a server and emit the lines of text that it sends, as they come.

    It promises nothing, whatever the guarantee of the job: what was sent to a processor that is lost does not come
    again, and a restarted job connects anew. When the server closes the connection the stream ends: windows and joins
    give their last results, and the job completes. The last line need not end with a newline.

    Args:
        host, port: of the server.
        charset, errors: of the text, as for `bytes.decode`.

    Raises:
        TypeError, ValueError, LookupError: for arguments that make no sense.

    A connection that is refused, is broken, or does not come about within 10 s, makes the job fail with the `OSError`.

    Example:
        >>> p.read_from(socket_stream("localhost", 5000)).with_ingestion_timestamps()           # doctest: +SKIP
        >>> socket_stream("localhost", 5000).name
        'socket_stream(localhost:5000)'
    """
    address = checked_address("socket_stream", host, port)
    codecs.lookup_error(errors)
    timed = partial(_socket_supplier, (*address, check_encoding(charset), errors))
    return StreamSourceDef(f"socket_stream({host}:{port})", timed(None), 1, timed=timed)


def _socket_supplier(arguments: tuple[str, int, str, str], policy: EventTimePolicy | None) -> ProcessorMetaSupplier:
    from shmjet.processors.streams.socket_stream import SocketStreamProcessor

    return ProcessorMetaSupplier.prefer_local_parallelism_one(Supply(SocketStreamProcessor, *arguments, policy))


def _key(entry: tuple[Any, Any]) -> Any:
    return entry[0]
