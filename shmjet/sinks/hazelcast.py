"""Sinks that write to a Hazelcast cluster elsewhere, by the official Python client."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from shmjet.core.job import ProcessingGuarantee
from shmjet.core.processor import ProcessorMetaSupplier
from shmjet.pipeline.definitions import SinkDef
from shmjet.processors.general.base import Supply
from shmjet.processors.hazelcast.settings import ClusterSettings, checked_settings


def remote_map(
    name: str,
    config: Any = None,
    key_fn: Callable[[Any], Any] | None = None,
    value_fn: Callable[[Any], Any] | None = None,
) -> SinkDef[Any]:
    """Put each item into a map of a Hazelcast cluster, in batches; the last one written of equal keys stays.

    It needs the package hazelcast-python-client, here and where the job runs. One processor on each member writes, so
    the order of a single upstream processor is kept; `set_local_parallelism(n)` has more write. In an EXACTLY_ONCE job
    puts are repeated after a restart, which changes nothing if a key's value is the same each time.

    Args:
        name: of the map, made when it does not exist.
        config: where the cluster is, as for `sources.remote_map`. Integers are written as Java's int unless
            `default_int_type` says otherwise; objects without a serializer are pickled, which only Python can read.
        key_fn, value_fn: key and value of an item; without both, items are (key, value) tuples.

    Raises:
        ModuleNotFoundError: the client is not installed. TypeError: `name` is not a non-empty string, only one function
        is given, one is not callable, or `config` is of another type. ConfigError: the client does not take an option.

    A value that the client cannot write, None among them, makes the job fail with a `ProcessorError`, as a cluster that
    is not found does. A cluster that is lost and not found again has the job restarted, by `RestartableError`.

    Example:
        >>> remote_map("lengths", "10.0.0.7:5701", key_fn=lambda word: word, value_fn=len).name
        'remote_map(lengths)'
    """
    from shmjet.processors.hazelcast.writers import RemoteMapWriter

    settings = _checked("remote_map", name, config)
    if (key_fn is None) != (value_fn is None):
        raise TypeError("sinks.remote_map: give both key_fn and value_fn, or neither for (key, value) items")
    for what, fn in (("key_fn", key_fn), ("value_fn", value_fn)):
        if fn is not None and not callable(fn):
            raise TypeError(f"sinks.remote_map: {what} must be callable, got {fn!r} ({type(fn).__name__})")
    supply = Supply(RemoteMapWriter, name, settings, key_fn, value_fn)
    return SinkDef(
        f"remote_map({name})",
        ProcessorMetaSupplier.prefer_local_parallelism_one(supply),
        1,
        by_row=True,
        guarantee=ProcessingGuarantee.EXACTLY_ONCE,
    )


def remote_list(name: str, config: Any = None) -> SinkDef[Any]:
    """Append each item to a list of a Hazelcast cluster, in batches; the order of one upstream processor is kept.

    It is at-least-once: a restart appends again what came after the last snapshot, and a batch whose answer was lost
    with its member is appended again.

    Args:
        name: of the list, made when it does not exist.
        config: where the cluster is, as for `sources.remote_map`.

    Raises:
        ModuleNotFoundError, TypeError, ConfigError: as `remote_map`.

    Example:
        >>> remote_list("primes", "10.0.0.7:5701").parallelism
        1
    """
    from shmjet.processors.hazelcast.writers import RemoteListWriter

    supply = Supply(RemoteListWriter, name, _checked("remote_list", name, config))
    return SinkDef(
        f"remote_list({name})",
        ProcessorMetaSupplier.prefer_local_parallelism_one(supply),
        1,
        by_row=True,
        guarantee=ProcessingGuarantee.AT_LEAST_ONCE,
    )


def _checked(function: str, name: str, config: Any) -> ClusterSettings:
    if not isinstance(name, str) or not name:
        raise TypeError(f"sinks.{function}: expected a name, got {name!r}")
    return checked_settings(f"sinks.{function}", config)
