"""Sources that read a Hazelcast cluster elsewhere, by the official Python client."""

from __future__ import annotations

import os
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

from shmjet.core.event_time import EventTimePolicy
from shmjet.core.job import ProcessingGuarantee
from shmjet.core.processor import ProcessorMetaSupplier
from shmjet.data.errors import ConfigError
from shmjet.pipeline.definitions import SourceDef, StreamSourceDef
from shmjet.processors.general.base import Supply
from shmjet.processors.hazelcast.settings import ClusterSettings, checked_settings

if TYPE_CHECKING:
    from shmjet.grid import MapEvent


def remote_map(name: str, config: Any = None, *, predicate: Any = None, projection: Any = None) -> SourceDef[Any]:
    """Emit the (key, value) tuples of a map of a Hazelcast cluster, each once.

    It needs the package hazelcast-python-client, here and where the job runs. Each processor has a client and a process
    of its own and reads its share of the map's partitions, in pages; there are two on each member, unless
    `set_local_parallelism` says otherwise. In a job with a guarantee the positions are saved; they hold as long as the
    map does not change, also when the cluster loses members that have backups.

    Args:
        name: of the map. A map that does not exist is empty.
        config: where the cluster is: an address ("host:5701"), several, a dict of the options of
            `hazelcast.HazelcastClient`, or a `hazelcast.config.Config`, which is taken as it is. Unless given, the
            address is "localhost:5701", the option `cluster_connect_timeout` 20 s (in which members are looked for,
            at the start and after all were lost), and `redo_operation` True.
        predicate: of `hazelcast.predicate`: only the entries for which it is true; members evaluate it.
        projection: of `hazelcast.projection`: what the members make of an entry is emitted in its place, but for None.

    Returns:
        a source for `Pipeline.read_from`. Values are what the client makes of them: numbers, str, lists, dates,
        `HazelcastJsonValue`, and classes for which `config` has serializers or factories.

    Raises:
        ModuleNotFoundError: the client is not installed. TypeError: `name` is not a non-empty string, or `config` or a
        predicate of another type. ConfigError: the client does not take an option.

    A cluster that is not found makes the job fail with a `ProcessorError`. A cluster that is lost and not found again
    has the job restarted, by `RestartableError`.

    Example:
        >>> remote_map("orders", "10.0.0.7:5701").name
        'remote_map(orders)'
        >>> from hazelcast.predicate import greater
        >>> p.read_from(remote_map("orders", {"cluster_name": "shop", "cluster_members": ["10.0.0.7:5701"]},
        ...                        predicate=greater("this", 100)))                         # doctest: +SKIP
    """
    from shmjet.processors.hazelcast.readers import RemoteMapReader

    settings = _checked("remote_map", name, config)
    _check_query(predicate, projection)
    supply = Supply(RemoteMapReader, name, settings, predicate, projection)
    return SourceDef(
        f"remote_map({name})",
        ProcessorMetaSupplier.of(supply, min(2, os.cpu_count() or 1)),
        columnar=False,
        guarantee=ProcessingGuarantee.EXACTLY_ONCE,
    )


def remote_list(name: str, config: Any = None) -> SourceDef[Any]:
    """Emit the items of a list of a Hazelcast cluster, each once, in order, with one processor.

    It reads the items that the list has when the job begins, in pages. A restarted job goes on behind the last item
    that its snapshot knows; items may be appended meanwhile, but none removed.

    Args:
        name: of the list. A list that does not exist is empty.
        config: where the cluster is, as for `remote_map`.

    Raises:
        ModuleNotFoundError, TypeError, ConfigError: as `remote_map`.

    Example:
        >>> remote_list("primes", "10.0.0.7:5701").parallelism
        1
    """
    from shmjet.processors.hazelcast.readers import RemoteListReader

    supply = Supply(RemoteListReader, name, _checked("remote_list", name, config))
    return SourceDef(
        f"remote_list({name})",
        ProcessorMetaSupplier.force_total_parallelism_one(supply),
        1,
        guarantee=ProcessingGuarantee.EXACTLY_ONCE,
    )


def remote_map_journal(
    name: str, config: Any = None, start: Literal["oldest", "latest"] = "oldest"
) -> StreamSourceDef[MapEvent]:
    """Emit the changes of a map of a Hazelcast cluster as they come, each as a `MapEvent`.

    The members' configuration must give the map an event journal. Changes of one key come in their order. A job that
    was overtaken, because the journal holds fewer changes than were made meanwhile, gets an event of kind "lost" with
    their number, for each partition. Where the journal is another one than before, because the map was destroyed or
    all members were lost, what it has is read from its beginning, after an event of kind "lost" whose number is 0: it
    is not known.

    In a job with a guarantee the positions are saved: a job that goes on reads what was changed meanwhile, each change
    once, also with another number of processors. One processor on each member reads, unless
    `set_local_parallelism(n)` says otherwise. The stream does not end.

    Args:
        name: of the map.
        config: where the cluster is, as for `remote_map`.
        start: where a new job begins: "oldest": with the oldest change that the journal has; "latest": with the first
            change after the job has begun.

    Returns:
        a source for `Pipeline.read_from`. It has no native timestamps: `with_timestamps(fn)` takes them from the event,
        and `fn` sees lost ones, too. Then each partition of the map has a time of its own, and one without changes
        holds the watermark back until `set_partition_idle_timeout` has passed. `with_ingestion_timestamps()` gives the
        time at which a change is read. Evicted and expired entries are "removed", loaded ones "added", merged ones
        "updated".

    Raises:
        ModuleNotFoundError, TypeError, ConfigError: as `remote_map`. ValueError: `start` is another text.

    A map without a journal makes the job fail with a `ConfigError`.

    Example:
        >>> remote_map_journal("orders", "10.0.0.7:5701").name
        'remote_map_journal(orders)'
        >>> p.read_from(remote_map_journal("orders")).with_ingestion_timestamps()           # doctest: +SKIP
    """
    settings = _checked("remote_map_journal", name, config)
    if start not in ("oldest", "latest"):
        raise ValueError(f'remote_map_journal: start must be "oldest" or "latest", got {start!r}')
    timed = partial(_journal_supplier, name, start, settings)
    return StreamSourceDef(
        f"remote_map_journal({name})", timed(None), 1, guarantee=ProcessingGuarantee.EXACTLY_ONCE, timed=timed
    )


def _journal_supplier(
    name: str, start: str, settings: ClusterSettings, policy: EventTimePolicy | None
) -> ProcessorMetaSupplier:
    from shmjet.processors.hazelcast.journal import RemoteJournalProcessor

    return ProcessorMetaSupplier.prefer_local_parallelism_one(
        Supply(RemoteJournalProcessor, name, start, settings, policy)
    )


def _checked(function: str, name: str, config: Any) -> ClusterSettings:
    if not isinstance(name, str) or not name:
        raise TypeError(f"sources.{function}: expected a name, got {name!r}")
    return checked_settings(f"sources.{function}", config)


def _check_query(predicate: Any, projection: Any) -> None:
    from hazelcast.predicate import PagingPredicate, Predicate
    from hazelcast.projection import Projection

    if predicate is not None and not isinstance(predicate, Predicate):
        raise TypeError(
            f"sources.remote_map: predicate must be one of hazelcast.predicate, got {predicate!r:.80}; "
            "use filter(fn) for functions of Python"
        )
    if isinstance(predicate, PagingPredicate):
        raise ConfigError("sources.remote_map: entries are read in pages anyway; give the predicate inside of paging()")
    if projection is not None and not isinstance(projection, Projection):
        raise TypeError(
            f"sources.remote_map: projection must be one of hazelcast.projection, got {projection!r:.80}; "
            "use map(fn) for functions of Python"
        )
