"""Sources that are one ready-made processor each: maps, their journals, lists, sockets."""

from __future__ import annotations

import codecs
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

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

if TYPE_CHECKING:
    from shmjet.grid import MapEvent


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


def map_journal(name: str, start: Literal["oldest", "latest"] = "oldest") -> StreamSourceDef[MapEvent]:
    """Emit the changes of a map of the instance as they come, each as a `MapEvent`.

    The map needs a journal, `JetConfig(maps={name: MapConfig(journal_capacity=10_000)})`. Changes of one key come in
    their order. A job that was overtaken, because the journal holds fewer changes than were made meanwhile, gets an
    event of kind "lost" with their number, for each partition: filter by `event.kind` where that matters.

    In a job with a guarantee the positions are saved: a job that goes on reads what was changed meanwhile, each change
    once, also with another number of processors. One processor on each member reads, with changes in the order of
    their commits; `set_local_parallelism(n)` deals the map's environments out. The stream does not end; it fails when
    the map is destroyed.

    Args:
        name: of the map. It need not exist yet.
        start: where a new job begins: "oldest": with the first change of the map, and what the journal does not have
            any more is told as lost; "latest": with the first change after the job has begun.

    Returns:
        a source for `Pipeline.read_from`. It has no native timestamps: `with_timestamps(fn)` takes them from the event,
        and `fn` sees lost ones, too; `with_ingestion_timestamps()` gives the time at which a change is read. The
        changes of one `put_all` come in no order, so give a lag if it may bring older entries after newer ones.

    Raises:
        TypeError: `name` is not a non-empty string. ValueError: `start` is another text.

    A map without a journal makes the job fail with a `ConfigError`.

    Example:
        >>> map_journal("orders").name
        'map_journal(orders)'
        >>> p.read_from(sources.map_journal("orders")).with_ingestion_timestamps()   # doctest: +SKIP
    """
    if not isinstance(name, str) or not name:
        raise TypeError(f"map_journal: expected a name, got {name!r}")
    if start not in ("oldest", "latest"):
        raise ValueError(f'map_journal: start must be "oldest" or "latest", got {start!r}')
    timed = partial(_journal_supplier, name, start)
    return StreamSourceDef(
        f"map_journal({name})", timed(None), 1, guarantee=ProcessingGuarantee.EXACTLY_ONCE, timed=timed
    )


def _journal_supplier(name: str, start: str, policy: EventTimePolicy | None) -> ProcessorMetaSupplier:
    from shmjet.processors.streams.map_journal import MapJournalProcessor

    return ProcessorMetaSupplier.prefer_local_parallelism_one(Supply(MapJournalProcessor, name, start, policy))


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
