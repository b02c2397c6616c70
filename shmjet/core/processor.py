"""The processor contract: what the engine calls, when, how often, and what the answers mean; and who makes processors.

The callbacks are those of Jet's `Processor`, `ProcessorSupplier` and `ProcessorMetaSupplier`. Most processors are
easier to write on `AbstractProcessor`. Nothing here knows where a processor runs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NoReturn

from shmjet.core.context import DataGrid, MetaSupplierContext, ProcessorContext, SupplierContext
from shmjet.core.keys import DEFAULT_TO_ONE_KEY, partition_id
from shmjet.core.ownership import dealt, owners_in
from shmjet.data.errors import ProcessorError, ShmjetError

if TYPE_CHECKING:
    from shmjet.core.inbox import Inbox
    from shmjet.core.outbox import Outbox
    from shmjet.data.marks import Watermark

__all__ = [
    "DataGrid",
    "MetaSupplierContext",
    "Processor",
    "ProcessorContext",
    "ProcessorFactory",
    "ProcessorMetaSupplier",
    "ProcessorSupplier",
    "SupplierContext",
    "SupplierLike",
    "make_processors",
    "supplier_for_all",
]

NO_STATE: Final = "a stage without state"
"""The kind of saved state of processors that have none (`Supply.state_kind`)."""


class NotSavedError(ShmjetError):
    """Raised when state is captured by a processor that has not kept all of it: the snapshot fails, the job goes on."""


class Processor:
    """Does the work of one vertex on one worker; used by one tasklet, never by two callers at once.

    A *cooperative* processor shares its worker with others: a call should take about a millisecond, must not block,
    and returns as soon as the outbox refuses an item. A processor that has to block sets `is_cooperative = False`, on
    its class or before `init`, and gets a process of its own; its calls should still return about once a second.
    The constructor should acquire nothing that needs closing: `init` is the place.

    Example:
        >>> class Doubler(Processor):
        ...     def process(self, ordinal, inbox):
        ...         while inbox and self.outbox.offer(inbox.peek() * 2):
        ...             inbox.remove()
    """

    is_cooperative: bool = True

    movable: bool | None = None
    """Whether another worker may take the processor over, between two callbacks, pickled; a processor that holds
    what cannot be pickled stays anyway. By default (None) all may but sources and sinks."""

    next_call: float | None = None
    """When the engine calls again where nothing new has come, read after each call. None: a callback that returned
    False, and an overridden `try_process`, are called again with the idle back-off (microseconds to a millisecond).
    Seconds from 0: not before then, unless items come. `math.inf`: only when items come, and the worker can sleep until
    then. It does not hold up a callback that the outbox has refused an item, which is called when there is room."""

    work_unit: str = "items"
    """What a source's `progress` counts: "items" or "bytes"; settled when `init` ends."""

    late_events_dropped: int = 0
    """Events that the processor has dropped so far because they came too late; a metric, read after each call."""

    failed_items_skipped: int = 0
    """Items that the processor has skipped so far because a function failed on them (`on_error`); as above."""

    outbox: Outbox
    """Set by `init`."""

    context: ProcessorContext
    """Set by `init`."""

    def init(self, outbox: Outbox, context: ProcessorContext) -> None:
        """Get ready: called once, before anything else; may block.

        An override calls `super().init(outbox, context)` to have `self.outbox` and `self.context`.
        """
        self.outbox = outbox
        self.context = context

    def process(self, ordinal: int, inbox: Inbox) -> None:
        """Process items that came on an inbound edge.

        Called with a non-empty inbox, and again with the same one until it is empty. Items that cannot be dealt with
        now, because the outbox refuses, are left in the inbox.

        Args:
            ordinal: of the inbound edge.
            inbox: holds the items.
        """
        raise ProcessorError(
            f"{type(self).__name__} got items on inbound ordinal {ordinal} but does not implement process(); "
            "a source has no inbound edges"
        )

    def try_process(self) -> bool:
        """Do work that no item asked for; called without an inbox before a new batch, until all edges are done.

        Returns:
            False to be called again before anything else.
        """
        return True

    def try_process_watermark(self, watermark: Watermark) -> bool:
        """React to a watermark, and pass it on; the inbox is empty then, and watermarks rise.

        Returns:
            False to be called again with the same watermark before anything else.
        """
        outbox = getattr(self, "outbox", None)
        if outbox is None:
            raise ProcessorError(
                f"{type(self).__name__} cannot pass {watermark!r} on: its init() has to call super().init(outbox, "
                "context), or it overrides try_process_watermark()"
            )
        return bool(outbox.offer(watermark))

    def complete_edge(self, ordinal: int) -> bool:
        """React to the end of an inbound edge.

        Args:
            ordinal: of the edge.

        Returns:
            False to be called again before anything else.
        """
        return True

    def complete(self) -> bool:
        """Emit what is left when all inbound edges are done; a source, which has none, emits everything here.

        Returns:
            True when there is nothing left; nothing but `close` is called after that. False to be called again.
        """
        return True

    def progress(self) -> tuple[int, int]:
        """Say how much of its work a source has done, and of how much; for monitoring. Asked after each call.

        Returns:
            (done, total) in `work_unit`; a total of 0 is not known. Of a total that processors share, one has all and
            the others have 0.
        """
        return 0, 0

    _saves_at_end: bool = False
    """Whether `save_to_snapshot` works after `complete` has returned True, too: the state of a source at its end. The
    engine then calls it once more, and the entries belong to all later snapshots."""

    def save_to_snapshot(self) -> bool:
        """Save all state with `outbox.offer_to_snapshot`; called when a snapshot begins, with an empty inbox.

        Items that came before the snapshot are reflected in the state, others have not been seen. It may emit. It is
        called after a restore has finished, between two calls of `complete` at the earliest after the inputs have
        ended, and not after `complete` has returned True. Without a guarantee it is called when the job is exported;
        what it raises then fails the export, not the job.

        Returns:
            False to be called again before anything else.
        """
        return True

    _captures: bool = False
    """Whether `_capture` works now. The engine then calls it at the barrier in place of `save_to_snapshot`, passes the
    barrier on, and calls `save_to_snapshot` between other callbacks until it is through."""

    def _capture(self) -> bool:
        """Keep the state of this moment for `save_to_snapshot`, which saves it whatever comes in meanwhile.

        It may emit. Returns False to be called again before anything else.
        """
        return True

    def snapshot_commit_prepare(self) -> bool:
        """Prepare a transaction: what was written so far can be committed later, whatever happens to the process.

        Called after `save_to_snapshot`, but not for an export that leaves the job running.

        Returns:
            False to be called again before anything else.
        """
        return True

    def snapshot_commit_finish(self, success: bool) -> bool:
        """Commit what was prepared: the snapshot is valid. It may be called with items in the inbox, and must not emit.

        Args:
            success: False when there is no such snapshot; what was prepared then belongs to the next one.

        Returns:
            False to be called again before anything else.
        """
        return True

    def restore_from_snapshot(self, inbox: Inbox) -> None:
        """Take `(key, value)` entries of a snapshot back from the inbox, before anything is processed.

        They are those of any processors of the vertex whose keys' partitions belong to this processor now, and those
        saved under a `BroadcastKey`. Called again with the same inbox until it is empty.
        """
        raise ProcessorError(f"{type(self).__name__} got saved state but does not implement restore_from_snapshot()")

    def finish_snapshot_restore(self) -> bool:
        """React to the end of the entries to restore; False to be called again."""
        return True

    def close(self) -> None:
        """Release what `init` acquired: called exactly once after `init`, also when that failed, and not without it."""


ProcessorFactory = Callable[[], Processor]
"""A `Processor` subclass, or any callable without arguments that makes a processor."""


class ProcessorSupplier:
    """Makes the processors of one vertex on one member, and may share resources among them.

    One copy of the supplier lives in each worker process (and each carrier) that hosts processors of the vertex. `init`
    is called there, then `get` with the *total* count of the member; the process keeps the processors that are placed
    on it and forgets the others, so a constructor must acquire nothing. `close` is called there at the end.

    `is_cooperative` may say for all processors whether they are. With None the processors are asked: one copy on the
    coordinator is initialised before the job is planned. If they are not cooperative it is closed again, and the
    processors that it has made are forgotten: they were never initialised, so nothing of theirs is called.

    Example:
        >>> class Numbered(ProcessorSupplier):
        ...     def get(self, count):
        ...         return [MyProcessor(i) for i in range(count)]       # doctest: +SKIP
    """

    is_cooperative: bool | None = None

    is_endless: bool = False
    """Whether the processors are a source without an end; the job then counts latency before throughput."""

    @staticmethod
    def of(factory: ProcessorFactory | ProcessorSupplier) -> ProcessorSupplier:
        """Return a supplier that calls `factory` for each processor; a supplier is returned as it is."""
        return factory if isinstance(factory, ProcessorSupplier) else FactorySupplier(factory)

    def init(self, context: SupplierContext) -> None:
        """Get ready: called once per process, before `get`; may block. `context` says where it runs."""

    def get(self, count: int) -> Sequence[Processor]:
        """Return exactly `count` processors, those of local index 0, 1, ... on this member."""
        raise ProcessorError(f"{type(self).__name__} does not implement get(count)")

    def close(self, error: BaseException | None) -> None:
        """Release what `init` acquired; called also when that failed. `error` made the execution fail, or is None."""


def state_kind_of(supplier: object) -> str:
    """Return what a supplier, or a class of processors, calls the state that is saved; empty when it does not say."""
    kind = getattr(supplier, "state_kind", "")
    return kind if isinstance(kind, str) else ""


class CommittingSupplier(ProcessorSupplier):
    """A supplier that has something to do in its own process when the whole job has succeeded."""

    def commit(self) -> None:
        """Make the results of the processors made here visible.

        Called once when all processors of the job have ended well, on all members, before the job counts as completed;
        what it raises fails the job. It is not called for an execution that failed or was cancelled.
        """


class FactorySupplier(ProcessorSupplier):
    """Calls a processor class, or another callable without arguments, once per processor."""

    def __init__(self, factory: ProcessorFactory) -> None:
        self.factory = factory
        declared = getattr(factory, "is_cooperative", None)
        self.is_cooperative = declared if isinstance(declared, bool) else None
        self.is_endless = getattr(factory, "is_endless", False) is True
        self.state_kind = state_kind_of(factory)

    def get(self, count: int) -> Sequence[Processor]:
        return [self.factory() for _ in range(count)]

    def __repr__(self) -> str:
        return f"FactorySupplier({getattr(self.factory, '__qualname__', self.factory)!s})"


SupplierLike = ProcessorFactory | ProcessorSupplier
"""What a meta-supplier and the helpers below take."""


class ProcessorMetaSupplier:
    """Decides, on the coordinator, which supplier each member gets.

    `preferred_local_parallelism` is how many processors per member it would like (-1: no preference); a vertex with a
    local parallelism of its own overrules it.

    Example:
        >>> ProcessorMetaSupplier.prefer_local_parallelism_one(Processor).preferred_local_parallelism
        1
    """

    preferred_local_parallelism: int = -1
    is_cooperative: bool | None = None
    is_endless: bool = False

    @staticmethod
    def of(
        supplier: SupplierLike | ProcessorMetaSupplier, preferred_local_parallelism: int = -1
    ) -> ProcessorMetaSupplier:
        """Return a meta-supplier that gives every member a copy of the same supplier.

        Args:
            supplier: any of the three kinds; a meta-supplier is returned as it is.
            preferred_local_parallelism: processors per member that it would like; -1: no preference.
        """
        if isinstance(supplier, ProcessorMetaSupplier):
            return supplier
        return _SameEverywhere(ProcessorSupplier.of(supplier), preferred_local_parallelism)

    @staticmethod
    def prefer_local_parallelism_one(supplier: SupplierLike) -> ProcessorMetaSupplier:
        """Return a meta-supplier that gives every member `supplier`, and prefers a single processor per member."""
        return _SameEverywhere(ProcessorSupplier.of(supplier), 1)

    @staticmethod
    def force_total_parallelism_one(supplier: SupplierLike, key: Any = None) -> ProcessorMetaSupplier:
        """Return a meta-supplier that lets `supplier` make a single processor in the cluster.

        It is the one to which `all_to_one(key).distributed()` leads, which its edges should be. Other members get a
        processor that forgets what comes to it. Its `init` raises `ProcessorError` when the vertex asks for a local
        parallelism other than 1.

        Args:
            supplier: asked for one processor.
            key: that of the edge; by default that of `all_to_one()`.
        """
        return _OnlyOne(ProcessorSupplier.of(supplier), DEFAULT_TO_ONE_KEY if key is None else key)

    def init(self, context: MetaSupplierContext) -> None:
        """Get ready: called once per execution, before `get`; may block. `context` says what it belongs to."""

    def get(self, addresses: Sequence[str]) -> Mapping[str, ProcessorSupplier] | Callable[[str], ProcessorSupplier]:
        """Return the supplier for each of the members' `addresses`, as a mapping or a function; they are pickled."""
        raise ProcessorError(f"{type(self).__name__} does not implement get(addresses)")

    def commit(self) -> None:
        """Make the results visible: called once when all processors of the job have ended well, before the job counts
        as completed; what it raises fails the job. It is not called for an execution that failed or was cancelled.
        """

    def close(self, error: BaseException | None) -> None:
        """Release what `init` acquired; called also when that failed. `error` made the execution fail, or is None."""


class _SameEverywhere(ProcessorMetaSupplier):
    def __init__(self, supplier: ProcessorSupplier, preferred: int) -> None:
        self.supplier = supplier
        self.preferred_local_parallelism = preferred
        self.is_cooperative = supplier.is_cooperative
        self.is_endless = supplier.is_endless
        self.state_kind = state_kind_of(supplier)

    def get(self, addresses: Sequence[str]) -> Mapping[str, ProcessorSupplier]:
        return dict.fromkeys(addresses, self.supplier)


class _OnlyOne(ProcessorMetaSupplier):
    preferred_local_parallelism = 1

    def __init__(self, supplier: ProcessorSupplier, key: Any) -> None:
        self.supplier = supplier
        self.key = key
        self.partition, self.count = 0, 1
        self.owners = dealt(1, 1)
        self.is_cooperative = supplier.is_cooperative
        self.is_endless = supplier.is_endless
        self.state_kind = state_kind_of(supplier)

    def init(self, context: MetaSupplierContext) -> None:
        self.count = context.partition_count
        self.partition = partition_id(self.key, self.count)
        self.owners = owners_in(context)
        if context.local_parallelism != 1:
            raise ProcessorError(
                f"vertex {context.vertex_name!r} supports a total parallelism of 1 only, but its local parallelism is "
                f"{context.local_parallelism}; leave local_parallelism out or say 1"
            )

    def get(self, addresses: Sequence[str]) -> Mapping[str, ProcessorSupplier]:
        members = len(addresses)
        owners = self.owners if self.owners.members == members else dealt(self.count, members)
        chosen = addresses[owners.owner_of(self.partition, self.count)]
        return {address: self.supplier if address == chosen else FactorySupplier(StandIn) for address in addresses}


class StandIn(Processor):
    """Takes and makes nothing, on members that have no part in a vertex; in a worker or in a carrier, as the others."""

    _saves_at_end = True  # nothing, which tells that nothing is left to do in its place

    def process(self, ordinal: int, inbox: Inbox) -> None:
        inbox.clear()

    def restore_from_snapshot(self, inbox: Inbox) -> None:
        inbox.clear()  # what is broadcast comes here, too


def is_stand_in(supplier: object) -> bool:
    """Say whether a supplier is that of a member that has no part in a vertex.

    Example:
        >>> is_stand_in(FactorySupplier(StandIn)), is_stand_in(FactorySupplier(Processor))
        (True, False)
    """
    return isinstance(supplier, FactorySupplier) and supplier.factory is StandIn


def supplier_for_all(supplier: SupplierLike | ProcessorMetaSupplier) -> SupplierLike | None:
    """Return what every member gets of this supplier; None when it is a meta-supplier that has to be asked first.

    Example:
        >>> supplier_for_all(Processor) is Processor
        True
    """
    if type(supplier) is _SameEverywhere:
        return supplier.supplier
    return None if isinstance(supplier, ProcessorMetaSupplier) else supplier


def made_by(supplier: Any) -> Any:
    """Return what a supplier of ours only passes on, for its name; any other supplier as it is.

    Example:
        >>> made_by(ProcessorMetaSupplier.of(Processor)) is Processor
        True
    """
    while isinstance(supplier, _SameEverywhere | _OnlyOne | FactorySupplier):
        supplier = supplier.factory if isinstance(supplier, FactorySupplier) else supplier.supplier
    return supplier


def forgot_answer(processor: Processor, callback: str) -> NoReturn:
    """Raise the error for a callback that returned None where True or False is meant; called again, it never ended.

    Args:
        processor: whose it is.
        callback: its name, for the message.
    """
    raise ProcessorError(
        f"{callback} of {type(processor).__name__} returned None; return True when it is through, False to be called "
        "again"
    )


def make_processors(supplier: ProcessorSupplier, count: int, vertex_name: str) -> list[Processor]:
    """Return the processors of a vertex, after checking what the supplier gave.

    Args:
        supplier: its `get` is called.
        count: how many it has to make.
        vertex_name: for messages.

    Raises:
        ProcessorError: not exactly `count`, or something that is not a processor; the text names the vertex.

    Example:
        >>> len(make_processors(ProcessorSupplier.of(Processor), 3, "words"))
        3
    """
    made = supplier.get(count)
    if not isinstance(made, Sequence) or len(made) != count:
        found: Any = f"{len(made)} processors" if isinstance(made, Sequence) else repr(made)
        raise ProcessorError(
            f"vertex {vertex_name!r}: get({count}) of its supplier must return {count} processors, got {found}"
        )
    for processor in made:
        if not isinstance(processor, Processor):
            raise ProcessorError(
                f"vertex {vertex_name!r}: its supplier must make Processor objects, got {processor!r} "
                f"({type(processor).__name__})"
            )
    return list(made)
