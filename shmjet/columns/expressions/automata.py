r"""Regular expressions as automata: whether a value matches, at the speed of its bytes.

Python's own parser reads the pattern, so what it means is what `re` says. The automaton goes over UTF-8 byte by byte
and takes all characters beyond ASCII for one; where a pattern tells them apart (`\w`, a letter beyond ASCII), a value
that has one before the answer is certain is left to `re`. What the automaton does not know at all (word boundaries, `$`
in the middle, very large patterns) is left to `re`, too; `compiled` returns None then.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from re import _constants as codes  # type: ignore[attr-defined]
from re import _parser as parser  # type: ignore[attr-defined]
from typing import Any, Final

import numpy as np
import numpy.typing as npt

REFUSED, ACCEPTED, UNKNOWN = 0, 1, 2
"""States in which the answer is certain; the last one says that `re` has it."""

_MOST_STATES: Final = 500
_MOST_NODES: Final = 2_000
_SIMPLE_FLAGS: Final = re.UNICODE | re.IGNORECASE | re.DOTALL | re.VERBOSE
_OTHER: Final = 128
"""Stands for every character beyond ASCII."""

_ASCII: Final = frozenset(range(128))
_ALL: Final = _ASCII | {_OTHER}
_NEWLINE: Final = frozenset([10])
_WORD: Final = frozenset(b for b in _ASCII if chr(b).isalnum() or chr(b) == "_")
_DIGIT: Final = frozenset(b for b in _ASCII if chr(b).isdigit())
_SPACE: Final = frozenset(b for b in _ASCII if chr(b).isspace())
_CATEGORIES: Final = {
    codes.CATEGORY_WORD: _WORD,
    codes.CATEGORY_NOT_WORD: _ASCII - _WORD,
    codes.CATEGORY_DIGIT: _DIGIT,
    codes.CATEGORY_NOT_DIGIT: _ASCII - _DIGIT,
    codes.CATEGORY_SPACE: _SPACE,
    codes.CATEGORY_NOT_SPACE: _ASCII - _SPACE,
}


_FOLDED_BEYOND: Final = frozenset(b"iIsSkK")
"""Letters that other characters beyond ASCII are equal to where case is ignored."""


class _UnknownError(Exception):
    """The pattern has something that the automaton does not know."""


@dataclass(frozen=True)
class Automaton:
    """A deterministic automaton over the bytes of UTF-8; see `text_dfa_column` in `_native/columns/text_match.h`.

    Args:
        table: the successors of each state, 256 each; the states 0, 1 and 2 are `REFUSED`, `ACCEPTED` and `UNKNOWN`.
        at_end: what a value is that ends in a state: one of these three.
        start: the first state.
        literal: a text that every match has in it; empty if none is known.
    """

    table: npt.NDArray[np.uint16]
    at_end: npt.NDArray[np.uint8]
    start: int
    literal: bytes


@dataclass
class _Graph:
    """An automaton with several ways from a node: each has a set of characters, or ways that are free, or an assertion.

    Node 0 is reached when the pattern has matched, node 1 when it has if the value ends there.
    """

    edges: list[tuple[frozenset[int], int] | None] = field(default_factory=lambda: [None, None])
    free: list[list[int]] = field(default_factory=lambda: [[], []])
    at_beginning: set[int] = field(default_factory=set)
    tells_apart: bool = False  # characters beyond ASCII

    def node(self, free: Sequence[int] = ()) -> int:
        if len(self.edges) >= _MOST_NODES:
            raise _UnknownError
        self.edges.append(None)
        self.free.append(list(free))
        return len(self.edges) - 1

    def step(self, characters: frozenset[int], to: int) -> int:
        node = self.node()
        self.edges[node] = characters, to
        return node

    def add(self, pattern: Iterable[Any], flags: int, to: int) -> int:
        """Add what matches a sequence and goes on at `to`; return its first node."""
        for op, argument in reversed(list(pattern)):
            to = self._one(op, argument, flags, to)
        return to

    def _one(self, op: Any, argument: Any, flags: int, to: int) -> int:
        if op is codes.SUBPATTERN:
            _, on, off, inner = argument
            if (on | off) & ~_SIMPLE_FLAGS:
                raise _UnknownError
            return self.add(inner, (flags | on) & ~off, to)
        if op is codes.BRANCH:
            return self.node([self.add(inner, flags, to) for inner in argument[1]])
        if op in (codes.MAX_REPEAT, codes.MIN_REPEAT):
            least, most, inner = argument
            return self._repeated(least, most, inner, flags, to)
        if op is codes.AT:
            return self._assertion(argument, to)
        return self.step(self._characters(op, argument, flags), to)

    def _assertion(self, where: Any, to: int) -> int:
        if where in (codes.AT_BEGINNING, codes.AT_BEGINNING_STRING):
            node = self.node([to])
            self.at_beginning.add(node)
            return node
        if to != 0 or where not in (codes.AT_END, codes.AT_END_STRING):
            raise _UnknownError
        return 1 if where is codes.AT_END_STRING else self.node([1, self.step(_NEWLINE, 1)])

    def _repeated(self, least: int, most: Any, inner: Any, flags: int, to: int) -> int:
        if most is codes.MAXREPEAT:
            loop = self.node()
            self.free[loop] = [self.add(inner, flags, loop), to]
            to = loop
        else:
            end = to
            for _ in range(most - least):
                to = self.node([self.add(inner, flags, to), end])
        for _ in range(least):
            to = self.add(inner, flags, to)
        return to

    def _characters(self, op: Any, argument: Any, flags: int) -> frozenset[int]:
        """Return the characters that one place of a pattern matches."""
        if op is codes.LITERAL:
            return self._single([argument], flags)
        if op is codes.NOT_LITERAL:
            return _ALL - self._single([argument], flags)
        if op is codes.ANY:
            return _ALL if flags & re.DOTALL else _ALL - _NEWLINE
        if op is not codes.IN:
            raise _UnknownError
        found: frozenset[int] = frozenset()
        negated = False
        for kind, value in argument:
            if kind is codes.NEGATE:
                negated = True
            elif kind is codes.LITERAL:
                found |= self._single([value], flags)
            elif kind is codes.RANGE:
                found |= self._single(range(min(value[0], _OTHER), min(value[1], _OTHER) + 1), flags)
            elif kind is codes.CATEGORY and value in _CATEGORIES:
                self.tells_apart = True
                found |= _CATEGORIES[value]
            else:
                raise _UnknownError
        return _ALL - found if negated else found

    def _single(self, characters: Sequence[int], flags: int) -> frozenset[int]:
        found = frozenset(characters) & _ASCII
        if len(found) < len(characters):
            self.tells_apart = True
        if not flags & re.IGNORECASE:
            return found
        if len(found) < len(characters):
            raise _UnknownError
        if found & _FOLDED_BEYOND:
            self.tells_apart = True
        return found | frozenset(ord(letter) for byte in found for letter in (chr(byte).lower(), chr(byte).upper()))

    def closure(self, nodes: Iterable[int], at_beginning: bool) -> frozenset[int]:
        """Return the nodes that free ways lead to and that have none themselves."""
        found: set[int] = set()
        waiting = list(nodes)
        while waiting:
            node = waiting.pop()
            if node not in found and (at_beginning or node not in self.at_beginning):
                found.add(node)
                waiting.extend(self.free[node])
        return frozenset(node for node in found if not self.free[node])


def compiled(pattern: str) -> Automaton | None:
    """Return the automaton that finds a pattern anywhere in a value, None if there is none.

    Example:
        >>> compiled("a+b") is not None, compiled(r"\\bword") is None
        (True, True)
    """
    try:
        parsed = parser.parse(pattern)
        flags = parsed.state.flags
        if flags & ~_SIMPLE_FLAGS:
            return None
        graph = _Graph()
        first = graph.add(parsed, flags, 0)
        return _determined(graph, first, _literal_of(parsed, flags))
    except (_UnknownError, RecursionError):
        return None


def _literal_of(pattern: Iterable[Any], flags: int) -> bytes:
    """Return the longest text that stands in a pattern as it is."""
    if flags & re.IGNORECASE:
        return b""
    best = run = ""
    for op, argument in pattern:
        run = run + chr(argument) if op is codes.LITERAL else ""
        best = max(best, run, key=len)
    try:
        return best.encode()
    except UnicodeEncodeError:
        return b""


def _determined(graph: _Graph, first: int, literal: bytes) -> Automaton:
    """Return the automaton whose states are sets of nodes: of matches that began at any character so far."""
    later = graph.closure([first], False)
    numbers: dict[frozenset[int], int] = {frozenset(): REFUSED}
    rows = [np.full(256, state, np.uint16) for state in (REFUSED, ACCEPTED, UNKNOWN)]
    ends = [REFUSED, ACCEPTED, UNKNOWN]
    waiting: list[frozenset[int]] = []

    def number(state: frozenset[int]) -> int:
        if 0 in state:
            return ACCEPTED
        if state not in numbers:
            if len(numbers) > _MOST_STATES:
                raise _UnknownError
            numbers[state] = len(rows)
            rows.append(np.zeros(256, np.uint16))
            ends.append(ACCEPTED if 1 in state else REFUSED)
            waiting.append(state)
        return numbers[state]

    start = number(graph.closure([first], True))
    while waiting:
        state = waiting.pop()
        own = numbers[state]
        successors: dict[int, list[int]] = {}
        for node in state:
            edge = graph.edges[node]
            for character in edge[0] if edge is not None else ():
                successors.setdefault(character, []).append(edge[1])  # type: ignore[index]
        row = rows[own]
        row[:] = number(later)
        for character, nodes in successors.items():
            following = number(graph.closure(nodes, False) | later)
            if character == _OTHER:
                row[0xC0:] = following
            else:
                row[character] = following
        row[0x80:0xC0] = own  # within a character
        if graph.tells_apart:
            row[0x80:] = UNKNOWN
    return Automaton(np.concatenate(rows), np.array(ends, np.uint8), start, literal)
