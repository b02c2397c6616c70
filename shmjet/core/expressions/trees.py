"""Walks over trees of expressions of any depth: Python's own recursion ends at some hundred levels.

A node is known by what it is made of (`operands`) alone, so expressions can be built on this.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

SHOWN: Final = 20_000
"""Characters of an expression that are shown: where each step uses the one before it twice, there is no end."""


def operands_first(root: Any) -> list[Any]:
    """Return the nodes of a tree, each once, operands before what is made of them.

    Example:
        >>> from shmjet import column
        >>> operands_first(column("a") + 1)
        [column('a'), 1, (column('a') + 1)]
    """
    done: set[int] = set()
    found: list[Any] = []
    stack = [root]
    while stack:
        node = stack[-1]
        waiting = [] if id(node) in done else [each for each in node.operands if id(each) not in done]
        if waiting:
            stack.extend(reversed(waiting))
            continue
        stack.pop()
        if id(node) not in done:
            done.add(id(node))
            found.append(node)
    return found


def depth_of(root: Any) -> int:
    """Return how many nodes lie on the longest way down a tree.

    Example:
        >>> from shmjet import column
        >>> depth_of(column("a") + 1 + 1)
        3
    """
    depths: dict[int, int] = {}
    for node in operands_first(root):
        depths[id(node)] = 1 + max((depths[id(each)] for each in node.operands), default=0)
    return depths[id(root)]


def shown(root: Any, parts_of: Callable[[Any], Sequence[Any]]) -> str:
    """Return a tree as text.

    Args:
        root: of the tree.
        parts_of: what a node is shown as: pieces of text and other nodes.
    """
    pieces: list[str] = []
    length = 0
    stack = [root]
    while stack and length <= SHOWN:
        part = stack.pop()
        if isinstance(part, str):
            pieces.append(part)
            length += len(part)
        else:
            stack.extend(reversed(parts_of(part)))
    text = "".join(pieces)
    return text if not stack and length <= SHOWN else f"{text[:SHOWN]}..."


def number_of(expression: Any, numbers: dict[Any, int], seen: dict[int, tuple[int, Any]]) -> int:
    """Return a number that equal expressions share.

    Args:
        expression: a tree, of any depth.
        numbers: the numbers given so far; changed.
        seen: nodes by identity, with their numbers; changed. It keeps the nodes alive.
    """
    stack = [expression]
    while stack:
        node = stack[-1]
        if id(node) in seen:
            stack.pop()
            continue
        waiting = [each for each in node.operands if id(each) not in seen]
        if waiting:
            stack.extend(reversed(waiting))
            continue
        key = (node._label(), *(seen[id(each)][0] for each in node.operands))
        seen[id(node)] = (numbers.setdefault(key, len(numbers)), node)
        stack.pop()
    return seen[id(expression)][0]
