"""The convenient base of processors: one method per item, and emission that survives a refusing outbox.

Jet's `AbstractProcessor`. Loops over items are here, so that a user's method is the only Python call per item;
emission in bulk asks the outbox for its room first and makes just so many items, so that nothing is made, refused and
kept.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, NoReturn

from shmjet.core.context import ProcessorContext
from shmjet.core.outbox import Ordinals, Outbox
from shmjet.core.processor import Processor
from shmjet.core.traverser import Traverser
from shmjet.data.errors import ProcessorError

if TYPE_CHECKING:
    import logging

    from shmjet.core.inbox import Inbox

TryProcess = Callable[[Any], bool]
_LARGEST_DRAW = 1 << 16
"""Items drawn at once where the outbox sets no bound."""


class AbstractProcessor(Processor):
    """Base class for processors that handle one item at a time.

    Override `try_process0` .. `try_process4` for the first inbound ordinals, or `try_process_any` for all; each returns
    True when it is through with the item, and False to get the same item again when the outbox refused.

    Example:
        >>> class ItemAndSuccessor(AbstractProcessor):
        ...     def __init__(self):
        ...         self.mapper = self.flat_mapper(lambda n: [n, n + 1])
        ...     def try_process0(self, item):
        ...         return self.mapper.try_process(item)
    """

    _handlers: dict[int, TryProcess] | None = None
    _saving: list[Any] | None = None
    _emissions: dict[int | tuple[int, ...], tuple[Any, Iterator[Any]]] | None = None

    def init(self, outbox: Outbox, context: ProcessorContext) -> None:
        """Get ready; an override calls `super().init(outbox, context)` first."""
        super().init(outbox, context)
        if type(self).try_emit is AbstractProcessor.try_emit:
            self.try_emit = outbox.offer  # type: ignore[method-assign]  # saves a call per item

    @property
    def logger(self) -> logging.Logger:
        """The logger of the context."""
        return self.context.logger

    def process(self, ordinal: int, inbox: Inbox) -> None:
        """Hand the items of the inbox to `try_process<ordinal>` one by one until it returns False."""
        handlers = self._handlers
        if handlers is None:
            handlers = self._handlers = {}
        handler = handlers.get(ordinal)
        if handler is None:
            handler = handlers[ordinal] = self._handler_of(ordinal)
        items, done = inbox._items, inbox._pos
        try:
            for item in islice(items, done, None) if done else items:
                answer = handler(item)
                if answer:
                    done += 1
                elif answer is None:
                    self._forgot_answer(ordinal)
                else:
                    break
        finally:
            inbox._pos = done

    def try_process0(self, item: Any) -> bool:
        """Process an item of inbound ordinal 0; False to get it again."""
        return self.try_process_any(0, item)

    def try_process1(self, item: Any) -> bool:
        """Process an item of inbound ordinal 1; False to get it again."""
        return self.try_process_any(1, item)

    def try_process2(self, item: Any) -> bool:
        """Process an item of inbound ordinal 2; False to get it again."""
        return self.try_process_any(2, item)

    def try_process3(self, item: Any) -> bool:
        """Process an item of inbound ordinal 3; False to get it again."""
        return self.try_process_any(3, item)

    def try_process4(self, item: Any) -> bool:
        """Process an item of inbound ordinal 4; False to get it again."""
        return self.try_process_any(4, item)

    def try_process_any(self, ordinal: int, item: Any) -> bool:
        """Process an item of any inbound ordinal that has no method of its own; False to get it again."""
        method = f"try_process{ordinal}() or " if ordinal <= 4 else ""
        raise ProcessorError(
            f"{type(self).__name__} got an item on inbound ordinal {ordinal} but implements neither "
            f"{method}try_process_any() nor process()"
        )

    def try_emit(self, item: Any, ordinal: Ordinals = -1) -> bool:
        """Offer an item to the outbox.

        Args:
            item: anything but None.
            ordinal: -1 for all outbound ordinals, one of them, or several.

        Returns:
            False when it was refused: return from the callback and emit the same item next time.
        """
        return self._ready_outbox().offer(item, ordinal)

    def emit_from_traverser(self, traverser: Traverser | Iterable[Any], ordinal: Ordinals = -1) -> bool:
        """Emit the items of a traverser or of any iterable or generator, as many as there is room for.

        Only so many items are drawn as the outbox takes, so that state which the traverser changes as it goes never
        runs ahead of what was emitted.

        Args:
            traverser: the same object in each call until True is returned; the position in it is kept.
            ordinal: as `try_emit`.

        Returns:
            True when it has nothing more (now, in the case of a traverser that resumes); False to be called again.

        Raises:
            ProcessorError: another object than in the last call, which returned False.
            TypeError: there is a None among the items.

        Example:
            >>> class Numbers(AbstractProcessor):
            ...     def __init__(self):
            ...         self.numbers = traverse(range(1_000_000))
            ...     def complete(self):
            ...         return self.emit_from_traverser(self.numbers)
        """
        outbox = self._ready_outbox()
        emissions = self._emissions
        if emissions is None:
            emissions = self._emissions = {}
        target = ordinal if isinstance(ordinal, int) else tuple(ordinal)
        current, iterator = emissions.get(target, (None, None))
        if iterator is None:
            iterator = iter(traverser)
            emissions[target] = (traverser, iterator)
        elif current is not traverser:
            raise ProcessorError(
                f"{type(self).__name__}: emit_from_traverser() got another object before the last one was through; "
                "keep it in a field and pass the same one until True is returned"
            )
        if not _emit(outbox, iterator, ordinal):
            return False
        del emissions[target]
        return True

    emit_cooperatively = emit_from_traverser

    def try_emit_to_snapshot(self, key: Any, value: Any) -> bool:
        """Save one entry; only in `save_to_snapshot`, see `Outbox.offer_to_snapshot`."""
        return self._ready_outbox().offer_to_snapshot(key, value)

    def emit_from_traverser_to_snapshot(self, entries: Iterable[tuple[Any, Any]]) -> bool:
        """Save the entries of a traverser or of any iterable, as many as there is room for.

        Args:
            entries: pairs of key and value; the same object in each call until True is returned.

        Returns:
            True when all are saved; False to be called again.

        Example:
            >>> class Counts(AbstractProcessor):
            ...     def __init__(self):
            ...         self.counts, self.entries = {}, None
            ...     def save_to_snapshot(self):
            ...         if self.entries is None:
            ...             self.entries = traverse(list(self.counts.items()))
            ...         if not self.emit_from_traverser_to_snapshot(self.entries):
            ...             return False
            ...         self.entries = None
            ...         return True
            ...     def restore(self, key, value):
            ...         self.counts[key] = value
        """
        outbox = self._ready_outbox()
        state = self._saving
        if state is None or state[0] is not entries:
            if state is not None:
                raise ProcessorError(
                    f"{type(self).__name__}: emit_from_traverser_to_snapshot() got another object before the last one "
                    "was through; keep it in a field and pass the same one until True is returned"
                )
            state = self._saving = [entries, iter(entries), None]
        _, iterator, pending = state
        if pending is not None and not outbox.offer_to_snapshot(*pending):
            return False
        for entry in iterator:
            if not outbox.offer_to_snapshot(*entry):
                state[2] = entry
                return False
        self._saving = None
        return True

    def flat_mapper(self, fn: Callable[[Any], Iterable[Any] | Traverser], ordinal: Ordinals = -1) -> FlatMapper:
        """Return a `FlatMapper` that emits what `fn` makes of an item; may be called in the constructor.

        Args:
            fn: returns an iterable, a generator or a traverser for an item.
            ordinal: as `try_emit`.
        """
        return FlatMapper(self, fn, ordinal)

    def restore_from_snapshot(self, inbox: Inbox) -> None:
        """Hand the saved entries in the inbox to `restore` one by one."""
        for key, value in inbox.take():
            self.restore(key, value)

    def restore(self, key: Any, value: Any) -> None:
        """Take one saved entry back: the key and the value that were saved."""
        raise ProcessorError(f"{type(self).__name__} got saved state but does not implement restore(key, value)")

    def _handler_of(self, ordinal: int) -> TryProcess:
        name = f"try_process{ordinal}"
        own = getattr(type(self), name, None)
        if own is None or own is getattr(AbstractProcessor, name, None):
            return partial(self.try_process_any, ordinal)
        handler: TryProcess = getattr(self, name)
        return handler

    def _forgot_answer(self, ordinal: int) -> NoReturn:
        raise ProcessorError(
            f"{type(self).__name__} returned None for an item of inbound ordinal {ordinal}; "
            "return True when it is through with the item, False to get it again"
        )

    def _ready_outbox(self) -> Outbox:
        outbox: Outbox | None = getattr(self, "outbox", None)
        if outbox is None:
            raise ProcessorError(
                f"{type(self).__name__} has no outbox; emit from process() or complete(), and when init() is "
                "overridden, call super().init(outbox, context) in it"
            )
        return outbox


class FlatMapper:
    """Emits what a function makes of an item, over as many calls as the outbox needs. Made by `flat_mapper`.

    Example:
        >>> class Halves(AbstractProcessor):
        ...     def __init__(self):
        ...         self.mapper = self.flat_mapper(lambda text: text.split("-"))
        ...     def try_process0(self, item):
        ...         return self.mapper.try_process(item)
    """

    __slots__ = ("_fn", "_items", "_iterator", "_ordinal", "_owner", "_pos")

    def __init__(
        self, owner: AbstractProcessor, fn: Callable[[Any], Iterable[Any] | Traverser], ordinal: Ordinals = -1
    ) -> None:
        self._owner = owner
        self._fn = fn
        self._ordinal = ordinal
        self._items: list[Any] | tuple[Any, ...] | None = None
        self._pos = 0
        self._iterator: Iterator[Any] | None = None

    def try_process(self, item: Any) -> bool:
        """Emit the results for an item; call it with the same item until it returns True.

        The function is called once per item, and a generator is drawn from only as far as there is room.

        Raises:
            TypeError: the function returned None or a None among its results.
        """
        outbox = self._owner.outbox
        if self._items is None and self._iterator is None:
            made = self._fn(item)
            kind = made.__class__
            if kind is list or kind is tuple:
                count = len(made)  # type: ignore[arg-type]
                accepted = outbox.offer_all(made, self._ordinal)  # type: ignore[arg-type]
                if accepted == count:
                    return True
                self._items, self._pos = made, accepted  # type: ignore[assignment]
                return False
            self._iterator = _iterator_over(made, self._fn)
        if self._items is not None:
            self._pos += outbox.offer_all(self._items, self._ordinal, self._pos)
            if self._pos < len(self._items):
                return False
            self._items = None
            return True
        assert self._iterator is not None
        if not _emit(outbox, self._iterator, self._ordinal):
            return False
        self._iterator = None
        return True


def _iterator_over(made: Any, fn: Callable[..., Any]) -> Iterator[Any]:
    try:
        return iter(made)
    except TypeError:
        name = getattr(fn, "__name__", repr(fn))
        raise TypeError(
            f"{name} returned {made!r} ({type(made).__name__}), but a flat-map function returns an iterable, "
            "an empty one for no results"
        ) from None


def _emit(outbox: Outbox, iterator: Iterator[Any], ordinal: Ordinals) -> bool:
    """Draw what there is room for and offer it; True when the iterator gave less than that."""
    room = outbox.room(ordinal)
    if room == 0:
        return False
    if room > _LARGEST_DRAW:
        room = _LARGEST_DRAW
    items = list(islice(iterator, room))
    outbox.offer_all(items, ordinal)
    return len(items) < room
