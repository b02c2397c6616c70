"""Traversers: lazily computed sequences that can say "nothing now" and go on later.

Jet's `Traverser`. A traverser over a Python iterable is a chain of C-level iterators (`map`, `filter`,
`itertools`), so that a step costs no Python call of ours; a traverser that may resume after "nothing now" (a subclass
with its own `next`) is chained by small classes instead, because C iterators such as `chain` end for good.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from operator import is_not
from typing import Any

from shmjet.core.key_functions import is_native

_END = object()
_is_item = partial(is_not, None)

Predicate = Callable[[Any], Any]


class Traverser:
    """A sequence whose next item is computed when it is asked for.

    Subclasses override `next`, which returns None when there is nothing now; it may be asked again later. As a Python
    iterable a traverser ends there. Each method below returns a new traverser that draws on this one, so that
    this one is used no more.

    Example:
        >>> list(traverse(range(10)).filter(lambda n: n % 2).map(str).append("end"))
        ['1', '3', '5', '7', '9', 'end']
    """

    _iterator: Iterator[Any] | None = None
    """What a traverser over an iterable draws on; None where `next` is overridden."""

    def next(self) -> Any:
        """Return the next item, or None when there is none now.

        Raises:
            TypeError: the iterable underneath gave None, which is never an item.
        """
        if self._iterator is None:
            return None
        item = next(self._iterator, _END)
        if item is None:
            raise TypeError("None is never an item: a traverser's iterable gave it; leave it out with a filter")
        return None if item is _END else item

    def __iter__(self) -> Iterator[Any]:
        return self if self._iterator is None else self._iterator

    def __next__(self) -> Any:
        item = self.next()
        if item is None:
            raise StopIteration
        return item

    def map(self, fn: Callable[[Any], Any]) -> Traverser:
        """Apply `fn` to each item; what it maps to None is left out."""
        return self._over(filter(_is_item, map(_guarded("map", fn), self)))

    def filter(self, predicate: Predicate) -> Traverser:
        """Keep the items for which `predicate` is true."""
        return self._over(filter(_guarded("filter", predicate), self))

    def flat_map(self, fn: Callable[[Any], Iterable[Any] | Traverser]) -> Traverser:
        """Replace each item by the items of the iterable or traverser that `fn` returns, lazily.

        Example:
            >>> list(traverse("ab", "cd").flat_map(list))
            ['a', 'b', 'c', 'd']
        """
        fn = _guarded("flat_map", fn)
        if self._resumes:
            return _ResumingFlatMap(self, fn)
        return self._over(itertools.chain.from_iterable(map(fn, self)))

    def take_while(self, predicate: Predicate) -> Traverser:
        """Pass items on until `predicate` is false for one; then it is exhausted."""
        return self._over(itertools.takewhile(_guarded("take_while", predicate), self))

    def drop_while(self, predicate: Predicate) -> Traverser:
        """Leave items out until `predicate` is false for one; pass that and all others on."""
        return self._over(itertools.dropwhile(_guarded("drop_while", predicate), self))

    def append(self, item: Any) -> Traverser:
        """Give one more item when this traverser first has none."""
        return self._then(iter([item]))

    def prepend(self, item: Any) -> Traverser:
        """Give an item before those of this traverser."""
        if self._resumes:
            return _ResumingSequence(iter([item]), self, iter(()))
        return self._over(itertools.chain([item], self))

    def peek(self, action: Callable[[Any], Any]) -> Traverser:
        """Call `action` with each item as it passes."""
        action = _guarded("peek", action)

        def look(item: Any) -> Any:
            action(item)
            return item

        return self._over(map(look, self))

    def on_first_null(self, action: Callable[[], Any]) -> Traverser:
        """Call `action` once, when this traverser first has no item."""

        def run() -> Iterator[Any]:
            action()
            yield from ()

        return self._then(run())

    @property
    def _resumes(self) -> bool:
        """True where items may come again after "nothing now"."""
        return self._iterator is None

    def _then(self, rest: Iterator[Any]) -> Traverser:
        if self._resumes:
            return _ResumingSequence(iter(()), self, rest)
        return self._over(itertools.chain(self, rest))

    def _over(self, iterator: Iterator[Any]) -> Traverser:
        return _ResumingIterator(iterator) if self._resumes else _IteratorTraverser(iterator)


def _guarded(step: str, fn: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Return `fn`, whose StopIteration is an error.

    For `map` and the like it would be the end, and what is left would be lost in silence (see `mapped`).
    """
    if is_native(fn):
        return fn

    def call(item: Any) -> Any:
        try:
            return fn(item)
        except StopIteration as error:
            raise RuntimeError(f"the function of {step}() raised StopIteration") from error

    return call


class _IteratorTraverser(Traverser):
    """Over an iterator that is exhausted for good when it ends."""

    def __init__(self, iterator: Iterator[Any]) -> None:
        self._iterator = iterator


class _ResumingIterator(Traverser):
    """Over `map`, `filter` and the like on a traverser that resumes; these ask again after an end."""

    def __init__(self, source: Iterator[Any]) -> None:
        self._source = source

    def next(self) -> Any:
        return next(self._source, None)


class _ResumingFlatMap(Traverser):
    def __init__(self, source: Traverser, fn: Callable[[Any], Iterable[Any]]) -> None:
        self._source = source
        self._fn = fn
        self._inner: Iterator[Any] = iter(())

    def next(self) -> Any:
        while True:
            item = next(self._inner, _END)
            if item is None:
                raise TypeError("None is never an item: the function of flat_map() gave it among others")
            if item is not _END:
                return item
            outer = self._source.next()
            if outer is None:
                return None
            self._inner = iter(self._fn(outer))


class _ResumingSequence(Traverser):
    """First a prefix, then a traverser that resumes, and once, when that first has nothing, a suffix."""

    def __init__(self, prefix: Iterator[Any], source: Traverser, suffix: Iterator[Any]) -> None:
        self._prefix = prefix
        self._source = source
        self._suffix = suffix

    def next(self) -> Any:
        item = next(self._prefix, None)
        if item is None:
            item = self._source.next()
        return next(self._suffix, None) if item is None else item


def traverse(*items: Any) -> Traverser:
    """Return a traverser over the given items; a single argument that is iterable and no text is iterated over.

    Args:
        items: one iterable, traverser, iterator or generator; or the items themselves.

    Example:
        >>> list(traverse(range(3))), list(traverse(7, 8)), list(traverse("word")), list(traverse())
        ([0, 1, 2], [7, 8], ['word'], [])
    """
    if len(items) != 1:
        return _IteratorTraverser(iter(items))
    only = items[0]
    if isinstance(only, Traverser):
        return only
    if isinstance(only, Iterable) and not isinstance(only, str | bytes | bytearray):
        return _IteratorTraverser(iter(only))
    return _IteratorTraverser(iter(items))
