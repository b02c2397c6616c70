"""An edge: which vertex feeds which, how items are routed to its processors, and how much may lie in between.

A description only: it is pickled with its DAG, and the engine reads it when it makes a plan. It must not know of
processes, lanes or sockets. The model is Jet's `Edge`; several edges between two vertices are allowed when their
ordinals differ.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from shmjet.core.batch_order import BatchOrder
from shmjet.core.checks import check_at_least, check_callable, check_int, with_known_settings
from shmjet.core.keys import DEFAULT_TO_ONE_KEY
from shmjet.core.vertex import Vertex
from shmjet.data.errors import ConfigError, DagError

KeyFunction = Callable[[Any], Any]
Partitioner = Callable[[Any, int], int]

COMPRESSIONS = ("lz4",)
"""How what goes to other members may be made smaller."""


class Routing(enum.Enum):
    """To which processors of the destination an item goes.

    Example:
        >>> between(words, counts).partitioned().routing       # doctest: +SKIP
        <Routing.PARTITIONED: 'partitioned'>
    """

    UNICAST = "unicast"
    """To any one processor: the one on the same worker while it has room, else round robin over those with room."""

    ISOLATED = "isolated"
    """From processor *i* to processor *i* only; where the counts differ, they are dealt out modulo."""

    PARTITIONED = "partitioned"
    """To the one processor that owns the partition of the item's key."""

    BROADCAST = "broadcast"
    """To every processor."""

    ALL_TO_ONE = "all_to_one"
    """All items to the one processor that owns the partition of the edge's key."""

    FANOUT = "fanout"
    """To one processor of each member, item by item in turn among those of its processors that have room."""


@with_known_settings
@dataclass(frozen=True)
class EdgeConfig:
    """How much may lie on an edge.

    Args:
        high_water_mark: items that an outbox bucket takes before it refuses; at least 1.
        queue_size: items that one lane (one processor to one processor) holds; at least 1.
        packet_size_limit: bytes after which a network packet is sent, one item over at most; at least 1.
        receive_window_multiplier: how many flow-control periods' worth a sender may run ahead; at least 1.
        compression: "lz4" makes what goes to other members smaller where the network is slower than a core compresses
            (some 5 Gbit/s); it needs `pip install lz4` on all of them. None: not at all.

    Raises:
        ConfigError: an unknown field, a number that is not an integer or below 1, or an unknown compression.

    Example:
        >>> EdgeConfig(queue_size=64).high_water_mark
        2048
    """

    high_water_mark: int = 2048
    queue_size: int = 1024
    packet_size_limit: int = 16384
    receive_window_multiplier: int = 3
    compression: str | None = None

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if name != "compression":
                check_at_least(f"EdgeConfig.{name}", value, 1)
        if self.compression not in (None, *COMPRESSIONS):
            known = ", ".join(map(repr, COMPRESSIONS))
            raise ConfigError(f"EdgeConfig.compression must be None or one of {known}, got {self.compression!r}")


class Edge:
    """A connection from an output ordinal of one vertex to an input ordinal of another.

    Made by `between` or `from_(...).to(...)`; its methods set one property each and return the edge. Read-only
    for everyone else are the attributes

    * `source: Vertex`, `source_ordinal: int`, `destination: Vertex`, `destination_ordinal: int`;
    * `routing: Routing`, `key_fn: (item) -> key` or None (the item is the key), `partitioner: (key, count) -> int`
      or None (the default one), `to_one_key` (of an all-to-one edge);
    * `is_distributed: bool`, `target_address: str | None` (of `distribute_to`);
    * `priority_value: int`, `is_buffered: bool`, `is_ordered: bool`, `order_key: (item) -> comparable` or None
      (the item itself), `edge_config: EdgeConfig`.

    Example:
        >>> from shmjet.core import DAG, Processor, from_
        >>> dag = DAG()
        >>> words, counts = dag.new_vertex("words", Processor), dag.new_vertex("counts", Processor)
        >>> from_(words, 1).to(counts).partitioned(lambda pair: pair[0]).distributed().priority(-1)
        from_('words', 1).to('counts', 0).partitioned(<lambda>).distributed().priority(-1)
    """

    def __init__(
        self,
        source: Vertex,
        source_ordinal: int = 0,
        destination: Vertex | None = None,
        destination_ordinal: int = 0,
    ) -> None:
        self.source = _check_vertex("source", source)
        self.source_ordinal = _check_ordinal("source", source, source_ordinal)
        self._destination: Vertex | None = None
        self.destination_ordinal = 0
        self.routing = Routing.UNICAST
        self.key_fn: KeyFunction | None = None
        self.partitioner: Partitioner | None = None
        self.to_one_key: Any = None
        self.is_distributed = False
        self.target_address: str | None = None
        self.priority_value = 0
        self.is_buffered = False
        self.is_ordered = False
        self.order_key: KeyFunction | BatchOrder | None = None
        self.edge_config = EdgeConfig()
        if destination is not None:
            self.to(destination, destination_ordinal)

    def to(self, destination: Vertex, ordinal: int = 0) -> Edge:
        """Set the vertex and the input ordinal at which the edge ends.

        Raises:
            DagError: the edge has a destination already, or the ordinal is negative.
        """
        if self._destination is not None:
            raise DagError(f"{self!r} has a destination already; make another edge to reach {destination.name!r}")
        self.destination_ordinal = _check_ordinal("destination", destination, ordinal)
        self._destination = _check_vertex("destination", destination)
        return self

    @property
    def destination(self) -> Vertex:
        """The vertex at which the edge ends.

        Raises:
            DagError: it has none yet.
        """
        if self._destination is None:
            raise DagError(f"{self!r} has no destination; say .to(vertex, ordinal)")
        return self._destination

    @property
    def has_destination(self) -> bool:
        """False until `to` has been called."""
        return self._destination is not None

    def unicast(self) -> Edge:
        """Send each item to any one processor (the default)."""
        return self._route(Routing.UNICAST)

    def isolated(self) -> Edge:
        """Join processor *i* with processor *i* only, so that order is kept; not on a distributed edge."""
        return self._route(Routing.ISOLATED)

    def partitioned(self, key_fn: KeyFunction | None = None, partitioner: Partitioner | None = None) -> Edge:
        """Send items of equal keys to the same processor.

        Args:
            key_fn: gives the key of an item; without it the item is its own key.
            partitioner: `(key, partition_count) -> partition` in `range(partition_count)`; the default takes the
                murmur3 hash of the key's canonical bytes (`shmjet.core.keys`).
        """
        if key_fn is not None:
            check_callable(f"{self!r}: partitioned(key_fn)", key_fn)
        if partitioner is not None:
            check_callable(f"{self!r}: partitioned(partitioner)", partitioner)
        self._route(Routing.PARTITIONED)
        self.key_fn = key_fn
        self.partitioner = partitioner
        return self

    def broadcast(self) -> Edge:
        """Send each item to all processors."""
        return self._route(Routing.BROADCAST)

    def all_to_one(self, key: Any = None) -> Edge:
        """Send all items to the one processor that owns the partition of `key` (any key; a constant by default)."""
        self._route(Routing.ALL_TO_ONE)
        self.to_one_key = DEFAULT_TO_ONE_KEY if key is None else key
        return self

    def fanout(self) -> Edge:
        """Send each item to one processor on every member, in turn among those of its processors that have room."""
        return self._route(Routing.FANOUT)

    def local(self) -> Edge:
        """Keep items on the member that made them (the default)."""
        self.is_distributed = False
        self.target_address = None
        return self

    def distributed(self) -> Edge:
        """Let items go to processors on any member."""
        return self._reach(None)

    def distribute_to(self, address: str) -> Edge:
        """Send all items to the member at `address` ("host:port"); the edge must be partitioned or all-to-one."""
        if not isinstance(address, str) or not address:
            raise DagError(
                f"{self!r}: distribute_to() takes a member's address such as '10.0.0.5:5701', got {address!r}"
            )
        return self._reach(address)

    def priority(self, value: int) -> Edge:
        """Set the priority: edges of a lower value are read to their end before those of a higher one (default 0)."""
        check_int(f"{self!r}: priority", value, DagError)
        self.priority_value = value
        return self

    def buffered(self) -> Edge:
        """Let the edge hold any number of items, so that its producer is never stopped by it.

        It takes the memory that it needs; without it a fork whose branches join again with different priorities
        waits for itself for ever.
        """
        self.is_buffered = True
        return self

    def ordered(self, key: KeyFunction | BatchOrder | None = None) -> Edge:
        """Merge the sorted outputs of all producers into one sorted input; each producer must emit in order.

        Args:
            key: gives what is compared; without it the items themselves are. For batches of sorted rows a `BatchOrder`.
        """
        if key is not None and not isinstance(key, BatchOrder):
            check_callable(f"{self!r}: ordered(key)", key)
        self.is_ordered = True
        self.order_key = key
        return self

    def configure(self, config: EdgeConfig) -> Edge:
        """Set how much may lie on the edge.

        Args:
            config: see `EdgeConfig`.

        Raises:
            ConfigError: it is something else.

        Example:
            >>> between(numbers, primes).configure(EdgeConfig(queue_size=64))       # doctest: +SKIP
        """
        if not isinstance(config, EdgeConfig):
            raise ConfigError(f"{self!r}: configure() takes an EdgeConfig, got {config!r}")
        self.edge_config = config
        return self

    @property
    def label(self) -> str:
        """Short name for messages: `'words'[1] -> 'counts'[0]`."""
        end = "nowhere" if self._destination is None else f"{self.destination.name!r}[{self.destination_ordinal}]"
        return f"{self.source.name!r}[{self.source_ordinal}] -> {end}"

    def traits(self) -> list[str]:
        """What differs from a plain unicast, local edge, as the calls that set it; `repr` and drawings show it."""
        calls: list[str] = []
        if self.routing is Routing.PARTITIONED:
            functions = [_name_of(f) for f in (self.key_fn, self.partitioner) if f is not None]
            calls.append(f"partitioned({', '.join(functions)})")
        elif self.routing is Routing.ALL_TO_ONE:
            calls.append(
                "all_to_one()" if self.to_one_key == DEFAULT_TO_ONE_KEY else f"all_to_one({self.to_one_key!r})"
            )
        elif self.routing is not Routing.UNICAST:
            calls.append(f"{self.routing.value}()")
        if self.target_address is not None:
            calls.append(f"distribute_to({self.target_address!r})")
        elif self.is_distributed:
            calls.append("distributed()")
        if self.priority_value:
            calls.append(f"priority({self.priority_value})")
        if self.is_buffered:
            calls.append("buffered()")
        if self.is_ordered:
            calls.append("ordered()" if self.order_key is None else f"ordered({_name_of(self.order_key)})")
        return calls

    def __repr__(self) -> str:
        start = f"from_({self.source.name!r}, {self.source_ordinal})"
        if self._destination is None:
            return start
        if self.source_ordinal == 0 and self.destination_ordinal == 0:
            ends = f"between({self.source.name!r}, {self.destination.name!r})"
        else:
            ends = f"{start}.to({self.destination.name!r}, {self.destination_ordinal})"
        return ".".join([ends, *self.traits()])

    def _route(self, routing: Routing) -> Edge:
        if routing is Routing.ISOLATED and self.is_distributed:
            raise DagError(f"{self!r}: a distributed edge cannot be isolated; drop distributed() or isolated()")
        self.routing = routing
        self.key_fn = self.partitioner = self.to_one_key = None
        return self

    def _reach(self, address: str | None) -> Edge:
        if self.routing is Routing.ISOLATED:
            raise DagError(f"{self!r}: an isolated edge cannot be distributed; drop isolated() or distributed()")
        self.is_distributed = True
        self.target_address = address
        return self


def between(source: Vertex, destination: Vertex) -> Edge:
    """Return an edge from ordinal 0 of `source` to ordinal 0 of `destination`.

    Example:
        >>> dag.edge(between(numbers, primes))       # doctest: +SKIP
    """
    return Edge(source, 0, destination, 0)


def from_(source: Vertex, ordinal: int = 0) -> Edge:
    """Return an edge that starts at an output ordinal of `source`; say `.to(vertex, ordinal)` next.

    Example:
        >>> dag.edge(from_(numbers, 1).to(other, 0))       # doctest: +SKIP
    """
    return Edge(source, ordinal)


def _name_of(function: Callable[..., Any] | BatchOrder) -> str:
    return getattr(function, "__name__", None) or type(function).__name__


def _check_vertex(role: str, vertex: Vertex) -> Vertex:
    if not isinstance(vertex, Vertex):
        raise DagError(f"an edge's {role} must be a Vertex (what dag.new_vertex() returns), got {vertex!r}")
    return vertex


def _check_ordinal(role: str, vertex: Vertex, ordinal: int) -> int:
    check_int(f"edge's {role} {getattr(vertex, 'name', vertex)!r}: ordinal", ordinal, DagError)
    if ordinal < 0:
        raise DagError(f"edge's {role} {vertex.name!r}: an ordinal counts from 0, got {ordinal}")
    return ordinal
