"""Sinks that are one ready-made processor each: maps, lists, sockets, the log, nowhere."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from shmjet import processors
from shmjet.core.job import ProcessingGuarantee
from shmjet.core.processor import ProcessorMetaSupplier
from shmjet.pipeline.definitions import SinkDef
from shmjet.processors.grid.merge_sink import add_merging


def map_(
    name: str,
    key_fn: Callable[[Any], Any] | None = None,
    value_fn: Callable[[Any], Any] | None = None,
    merge_fn: Callable[[Any, Any], Any] | None = None,
) -> SinkDef[Any]:
    """Put each item into a map of the instance.

    Without `merge_fn` the last one written of equal keys stays. With it, `merge_fn(old, new)` gives the value where the
    key has one already (in the map, or from another item); None removes the entry. Items go to the processor that owns
    their key then, so that nothing is lost; the order in which values are merged is not defined.

    In an EXACTLY_ONCE job, puts are repeated after a restart, which changes nothing if a key's value is the same each
    time. With `merge_fn` items wait in memory for the next snapshot, and are merged once when it is valid.

    Args:
        name: of the map, made when it does not exist.
        key_fn, value_fn: key and value of an item; without both, items are (key, value) tuples.
        merge_fn: see above.

    Raises:
        TypeError: `name` is not a non-empty string, only one function is given, or one is not callable.

    Example:
        >>> map_("lengths", key_fn=lambda word: word, value_fn=len).name
        'map(lengths)'
        >>> map_("totals", merge_fn=lambda old, new: old + new).name
        'map(totals)'
    """
    supplier = processors.write_map(name, key_fn, value_fn)
    for what, fn in (("key_fn", key_fn), ("value_fn", value_fn), ("merge_fn", merge_fn)):
        if fn is not None and not callable(fn):
            raise TypeError(f"sinks.map: {what} must be callable, got {fn!r} ({type(fn).__name__})")
    expand = None
    if merge_fn is not None:
        expand = partial(add_merging, map_name=name, key_fn=key_fn, value_fn=value_fn, merge_fn=merge_fn)
    return SinkDef(f"map({name})", supplier, expand=expand, by_row=True, guarantee=ProcessingGuarantee.EXACTLY_ONCE)


def list_(name: str) -> SinkDef[Any]:
    """Append each item to a list of the instance; the order of an upstream stage with one processor is kept.

    In an EXACTLY_ONCE job items wait in memory for the next snapshot, and are appended once when it is valid.

    Args:
        name: of the list, made when it does not exist.

    Raises:
        TypeError: `name` is not a non-empty string.

    Example:
        >>> list_("primes").parallelism
        1
    """
    return SinkDef(
        f"list({name})",
        ProcessorMetaSupplier.prefer_local_parallelism_one(processors.write_list(name)),
        1,
        guarantee=ProcessingGuarantee.EXACTLY_ONCE,
    )


def socket(host: str, port: int, to_string_fn: Callable[[Any], str] = str, *, charset: str = "utf-8") -> SinkDef[Any]:
    """Connect to a server and send each item as a line of text; one connection per member.

    In a job with a processing guarantee a restart connects anew and may send items again: at-least-once.

    Args:
        host, port: of the server.
        to_string_fn: text of an item, without the newline.
        charset: of the text.

    Raises:
        TypeError, ValueError, LookupError: for arguments that make no sense.

    A connection that is refused, or does not come about within 10 s, makes the job fail with the `OSError`.

    Example:
        >>> socket("localhost", 5001).name
        'socket(localhost:5001)'
    """
    supplier = processors.write_socket(host, port, to_string_fn, encoding=charset)
    supplier_of_one = ProcessorMetaSupplier.prefer_local_parallelism_one(supplier)
    return SinkDef(
        f"socket({host}:{port})", supplier_of_one, 1, by_row=True, guarantee=ProcessingGuarantee.AT_LEAST_ONCE
    )


def logger(to_string_fn: Callable[[Any], str] = str, predicate: Callable[[Any], Any] | None = None) -> SinkDef[Any]:
    """Log each item at level INFO, where it is processed.

    Args:
        to_string_fn: text of an item.
        predicate: log only the items for which it is true.

    Raises:
        TypeError: a function is not callable.

    Example:
        >>> logger(repr).name
        'logger'
    """
    return SinkDef("logger", processors.logger(to_string_fn, predicate), by_row=True)


def noop() -> SinkDef[Any]:
    """Take all items and do nothing with them.

    Example:
        >>> noop().name
        'noop'
    """
    return SinkDef("noop", processors.noop(), guarantee=ProcessingGuarantee.EXACTLY_ONCE)
