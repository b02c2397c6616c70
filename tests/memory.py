"""How much memory an object holds on to, for tests of what must not grow."""

from __future__ import annotations

import gc
import sys
from types import BuiltinFunctionType, FunctionType, ModuleType


def held_bytes(*things: object) -> int:
    """Return the size of all that can be reached from some objects, without modules, classes and functions."""
    seen: dict[int, object] = {}
    left = list(things)
    while left:
        one = left.pop()
        if id(one) not in seen and not isinstance(one, (type, ModuleType, FunctionType, BuiltinFunctionType)):
            seen[id(one)] = one
            left += gc.get_referents(one)
    return sum(map(sys.getsizeof, seen.values()))
