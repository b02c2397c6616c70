"""Programs whose operators take plain numbers, as one call of C for all rows of a batch.

What is compiled is arithmetic, comparisons and logic of int64 and float64 columns without nulls, and of numbers. The
results are those of the steps one by one (`operations`). Everything else is not compiled, and a result of integers that
leaves its type ends a program: the steps one by one then say what it is.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from shmjet._native._columns import run_numbers
from shmjet.data.text import Mask

REGISTERS: Final = 64
"""As many as C has."""

_ARITHMETIC: Final = {"+": "+", "-": "-", "*": "*", "/": "/"}
_COMPARISONS: Final = {"<": "<", "<=": "l", ">": ">", ">=": "g", "==": "=", "!=": "!"}
_LOGIC: Final = {"&": "&", "|": "|", "^": "^"}
_KINDS: Final = {np.dtype(np.int64): "i", np.dtype(np.float64): "f"}
_RANGE: Final = range(-(1 << 63), 1 << 63)

Node = tuple[int, tuple[int, ...], str, Any]
"""A node of a tree: its number, those of its operands, its function or "", and else its value."""


class NotCompiled(Exception):
    """A program has something that is not for plain numbers."""


@dataclass(frozen=True, slots=True)
class Compiled:
    """Instructions, numbers as words, and of each result whether it is of bools, of floats or of integers."""

    code: bytes
    values: bytes
    dtypes: tuple[Any, ...]
    places: tuple[int, ...]
    """Which of the results each expression has: equal expressions share one."""


class NumberProgram:
    """Expressions over plain numbers.

    Args:
        columns: number → name of the columns that are read.
        nodes: all others, operands first; None: something is not for plain numbers whatever the columns are.
        results: numbers of what the expressions give.
    """

    def __init__(self, columns: Mapping[int, str], nodes: Sequence[Node] | None, results: Sequence[int]) -> None:
        self._columns = dict(columns)
        self._nodes = nodes
        self._results = tuple(results)
        self._compiled: dict[tuple[str, ...], Compiled | None] = {}

    def run(
        self, inputs: Mapping[str, Any], rows: int, chosen: Mask | None = None, kept: int | None = None
    ) -> list[npt.NDArray[Any]] | None:
        """Return what each expression gives; None where the steps have to be computed one by one.

        Args:
            inputs: values and mask of each column.
            rows: of all of them.
            chosen: the rows that are computed; None: all.
            kept: how many they are.
        """
        kept = rows if kept is None else kept
        if self._nodes is None or kept < 2:
            return None
        arrays, kinds = [], []
        for name in self._columns.values():
            values, mask = inputs[name][:2]
            kind = _KINDS.get(values.dtype) if mask is None and isinstance(values, np.ndarray) else None
            if kind is None or not (values.flags.c_contiguous and values.flags.aligned):
                return None
            arrays.append(values)
            kinds.append(kind)
        signature = tuple(kinds)
        if signature not in self._compiled:
            self._compiled[signature] = self._compile(signature)
        compiled = self._compiled[signature]
        if compiled is None:
            return None
        results = [np.empty(kept, dtype) for dtype in compiled.dtypes]
        if run_numbers(compiled.code, tuple(arrays), compiled.values, tuple(results), rows, chosen):
            return None
        for result in results:
            result.flags.writeable = False
        return [results[place] for place in compiled.places]

    def _compile(self, kinds: tuple[str, ...]) -> Compiled | None:
        assert self._nodes is not None
        try:
            return _Compiler(dict(zip(self._columns, kinds, strict=True)), self._nodes, self._results).compiled()
        except NotCompiled:
            return None


class _Compiler:
    """Makes instructions: registers are columns, then numbers, then results, then what is computed on the way.

    Args:
        kinds: of the columns, by number.
        nodes, results: as of `NumberProgram`.
    """

    def __init__(self, kinds: Mapping[int, str], nodes: Sequence[Node], results: Sequence[int]) -> None:
        self._kinds = dict(kinds)
        self._nodes = nodes
        self._results = results
        self._literals: dict[int, int | float] = {}
        self._code: list[tuple[str, str, Any, Any, Any]] = []
        self._columns = list(kinds)
        self._words: list[bytes] = []
        self._on_the_way: list[Any] = []

    def compiled(self) -> Compiled:
        """Return the program. Raises NotCompiled."""
        for number, operands, function, value in self._nodes:
            if not function:
                self._literals[number] = _number(value)
            elif len(operands) == 2:
                self._operator(number, function, *operands)
            else:
                raise NotCompiled
        given = list(dict.fromkeys(self._results))
        if any(number in self._columns or number in self._literals for number in given):
            raise NotCompiled
        rest = [each for each in self._on_the_way if each not in given]
        order = [*self._columns, *(("word", word) for word in self._words), *given, *rest]
        if len(order) > REGISTERS:
            raise NotCompiled
        places = {each: place for place, each in enumerate(order)}
        code = b"".join(
            bytes((ord(symbol), ord(kind), places[one], places[two], places[to]))
            for symbol, kind, one, two, to in self._code
        )
        dtypes = {"i": np.dtype(np.int64), "f": np.dtype(np.float64), "b": np.dtype(np.bool_)}
        return Compiled(
            code,
            b"".join(self._words),
            tuple(dtypes[self._kinds[number]] for number in given),
            tuple(given.index(number) for number in self._results),
        )

    def _operator(self, number: int, function: str, one: int, two: int) -> None:
        if one in self._literals and two in self._literals:
            raise NotCompiled
        if function in _LOGIC:
            if self._kinds.get(one) != "b" or self._kinds.get(two) != "b":
                raise NotCompiled
            self._emit(_LOGIC[function], "b", one, two, number, "b")
            return
        kinds = {self._kind(one), self._kind(two)}
        kind = "f" if "f" in kinds else "i"
        if "b" in kinds or (function == "/" and kind == "i"):
            raise NotCompiled
        operands = self._as(kind, one), self._as(kind, two)
        if function in _COMPARISONS:
            self._emit(_COMPARISONS[function], kind, *operands, number, "b")
        elif function in _ARITHMETIC:
            self._emit(_ARITHMETIC[function], kind, *operands, number, kind)
        else:
            raise NotCompiled

    def _kind(self, number: int) -> str:
        if number in self._literals:
            return "i" if isinstance(self._literals[number], int) else "f"
        return self._kinds[number]

    def _as(self, kind: str, number: int) -> Any:
        """Return the register of an operand as a number of a kind."""
        if number in self._literals:
            value = self._literals[number]
            word = struct.pack("<q", value) if kind == "i" else struct.pack("<d", float(value))
            if word not in self._words:
                self._words.append(word)
            return "word", word
        if self._kinds[number] == kind:
            return number
        made = "float", number
        if made not in self._on_the_way:
            self._emit("c", "i", number, number, made, "f")
        return made

    def _emit(self, symbol: str, kind: str, one: Any, two: Any, to: Any, result: str) -> None:
        self._code.append((symbol, kind, one, two, to))
        self._kinds[to] = result
        self._on_the_way.append(to)


def _number(value: Any) -> int | float:
    if type(value) is float or (type(value) is int and value in _RANGE):
        return value
    raise NotCompiled
