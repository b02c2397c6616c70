"""Programs whose operators take plain numbers, as one call of C for all rows of a batch.

What is compiled is arithmetic, comparisons, logic, choices and what tells nulls, of int64, float64 and bool columns and
of numbers. Masks are registers of bools: an operator without nulls costs nothing more. The results are those of the
steps one by one (`operations`, `choices`). Everything else is not compiled, and a result of integers that leaves its
type ends a program, whatever row it is in: the steps one by one then say whether that row counts.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy as np

from shmjet._native._columns import run_numbers
from shmjet.data.column import Values
from shmjet.data.text import Mask

REGISTERS: Final = 64
"""As many as C has."""

_ARITHMETIC: Final = {"+": "+", "-": "-", "*": "*", "/": "/"}
_COMPARISONS: Final = {"<": "<", "<=": "l", ">": ">", ">=": "g", "==": "=", "!=": "!"}
_LOGIC: Final = {"&": "&", "|": "|", "^": "^"}
_KINDS: Final = {np.dtype(np.int64): "i", np.dtype(np.float64): "f", np.dtype(np.bool_): "b"}
_DTYPES: Final = {kind: dtype for dtype, kind in _KINDS.items()}
_TESTS: Final = ("~", "is_null", "is_not_null")
_CHOICES: Final = ("when", "fill_null")
_TRUE: Final = ("word", b"\x01" * 8)
"""A register of bools that are all true."""

_RANGE: Final = range(-(1 << 63), 1 << 63)

Node = tuple[int, tuple[int, ...], str, Any]
"""A node of a tree: its number, those of its operands, its function or "", and else its value."""


Signature: TypeAlias = tuple[tuple[str, bool], ...]
"""Kind of each column, and whether it has nulls."""

Register: TypeAlias = Any
"""What stands for a register until all are known: a node, or a pair of what it holds and of which node."""


class NotCompiled(Exception):
    """A program has something that is not for plain numbers."""


@dataclass(frozen=True, slots=True)
class Compiled:
    """Instructions, numbers as words, and the dtypes: of each result, or of each expression if they stay."""

    code: bytes
    values: bytes
    dtypes: tuple[Any, ...]
    places: tuple[tuple[int, int | None], ...]
    """Which results, or registers if they stay, are values and mask of each expression: equal ones share them."""


@dataclass(frozen=True, slots=True)
class Call:
    """A program, and the columns and rows that it is to be run over."""

    program: Compiled
    columns: tuple[Any, ...]
    rows: int
    chosen: Mask | None
    kept: int
    has_nulls: bool


class NumberProgram:
    """Expressions over plain numbers.

    Args:
        columns: number → name of the columns that are read.
        nodes: all others, operands first; None: something is not for plain numbers whatever the columns are.
        results: numbers of what the expressions give.
        stays: results are not written, but stay in registers block by block; columns may be among them.
    """

    def __init__(
        self, columns: Mapping[int, str], nodes: Sequence[Node] | None, results: Sequence[int], stays: bool = False
    ) -> None:
        self._columns = dict(columns)
        self._nodes = nodes
        self._results = tuple(results)
        self._stays = stays
        self._compiled: dict[Signature, Compiled | None] = {}

    @property
    def names(self) -> Iterable[str]:
        """The columns that are read."""
        return self._columns.values()

    def run(
        self, inputs: Mapping[str, Any], rows: int, chosen: Mask | None = None, kept: int | None = None
    ) -> list[tuple[Values, Mask | None]] | None:
        """Return values and mask of each expression; None where the steps have to be computed one by one.

        Args:
            inputs: values and mask of each column, and whether it is of nulls without a type.
            rows: of all of them.
            chosen: the rows that are computed; None: all.
            kept: how many they are.
        """
        call = self.call(inputs, rows, chosen, kept)
        if call is None:
            return None
        program = call.program
        results = [np.empty(call.kept, dtype) for dtype in program.dtypes]
        if run_numbers(program.code, call.columns, program.values, tuple(results), rows, chosen):
            return None
        for result in results:
            result.flags.writeable = False
        return [(results[value], None if known is None else results[known]) for value, known in program.places]

    def call(
        self, inputs: Mapping[str, Any], rows: int, chosen: Mask | None = None, kept: int | None = None
    ) -> Call | None:
        """Return the program for some columns, and these; None where the steps have to be computed one by one.

        Args:
            inputs, rows, chosen, kept: as of `run`.
        """
        kept = rows if kept is None else kept
        if self._nodes is None or kept < 2:
            return None
        arrays, masks, kinds = [], [], []
        for name in self._columns.values():
            values, mask, untyped = inputs[name]
            kind = _KINDS.get(values.dtype) if isinstance(values, np.ndarray) else None
            if kind is None or untyped or not (values.flags.c_contiguous and values.flags.aligned):
                return None
            arrays.append(values)
            if mask is not None:
                if chosen is not None and kind == "f" and not (mask & chosen).any():
                    return None  # of these rows alone it would be of nulls without a type
                masks.append(np.ascontiguousarray(mask))
            kinds.append((kind, mask is not None))
        signature = tuple(kinds)
        if signature not in self._compiled:
            self._compiled[signature] = self._compile(signature)
        program = self._compiled[signature]
        return None if program is None else Call(program, (*arrays, *masks), rows, chosen, kept, bool(masks))

    def _compile(self, kinds: Signature) -> Compiled | None:
        assert self._nodes is not None
        try:
            compiler = _Compiler(dict(zip(self._columns, kinds, strict=True)), self._nodes, self._results)
            return compiler.staying() if self._stays else compiler.compiled()
        except NotCompiled:
            return None


class _Compiler:
    """Makes instructions: registers are columns, masks, numbers, results, then what is computed on the way.

    Args:
        kinds: kind of the columns, by number, and whether they have nulls.
        nodes, results: as of `NumberProgram`.
    """

    def __init__(self, kinds: Mapping[int, tuple[str, bool]], nodes: Sequence[Node], results: Sequence[int]) -> None:
        self._kinds: dict[Register, str] = {number: kind for number, (kind, _) in kinds.items()}
        self._known: dict[int, Register | None] = {
            number: ("known", number) if has_nulls else None for number, (_, has_nulls) in kinds.items()
        }
        self._nodes = nodes
        self._results = results
        self._literals: dict[int, int | float] = {}
        self._code: list[tuple[str, str, Register, Register, Register, Register]] = []
        self._columns: list[Register] = [*kinds, *(known for known in self._known.values() if known is not None)]
        self._words: list[bytes] = []
        self._on_the_way: list[Register] = []

    def compiled(self) -> Compiled:
        """Return the program that writes its results. Raises NotCompiled."""
        self._walk()
        given = list(dict.fromkeys(self._results))
        if any(number in self._columns for number in given):
            raise NotCompiled
        masks: dict[int, Register] = {}
        for number in given:
            known = self._known[number]
            if known is not None:
                masks[number] = "mask", number
                self._emit("&", "b", known, known, masks[number], "b")
        outputs = [*given, *masks.values()]
        places = self._registers(outputs)
        return Compiled(
            self._instructions(places),
            b"".join(self._words),
            tuple(_DTYPES[self._kinds[each]] for each in outputs),
            tuple(
                (outputs.index(number), outputs.index(masks[number]) if number in masks else None)
                for number in self._results
            ),
        )

    def staying(self) -> Compiled:
        """Return the program whose results stay in registers. Raises NotCompiled."""
        self._walk()
        places = self._registers([])
        knowns = [self._known[number] for number in self._results]
        return Compiled(
            self._instructions(places),
            b"".join(self._words),
            tuple(_DTYPES[self._kinds[number]] for number in self._results),
            tuple(
                (places[number], None if known is None else places[known])
                for number, known in zip(self._results, knowns, strict=True)
            ),
        )

    def _walk(self) -> None:
        """Make instructions of all nodes."""
        for number, operands, function, value in self._nodes:
            if not function:
                self._literals[number] = _number(value)
            elif function in _CHOICES:
                self._choice(number, operands if function == "when" else self._filled(operands))
            elif function in _TESTS:
                self._test(number, function, *operands)
            elif len(operands) == 2:
                self._operator(number, function, *operands)
            else:
                raise NotCompiled
        if any(number in self._literals for number in self._results):
            raise NotCompiled

    def _registers(self, outputs: Sequence[Register]) -> dict[Register, int]:
        rest = [each for each in self._on_the_way if each not in outputs]
        order = [*self._columns, *(("word", word) for word in self._words), *outputs, *rest]
        if len(order) > REGISTERS:
            raise NotCompiled
        return {each: place for place, each in enumerate(order)}

    def _instructions(self, places: Mapping[Register, int]) -> bytes:
        return b"".join(
            bytes((ord(symbol), ord(kind), places[one], places[two], places[to], places[by]))
            for symbol, kind, one, two, to, by in self._code
        )

    def _operator(self, number: int, function: str, one: int, two: int) -> None:
        if one in self._literals and two in self._literals:
            raise NotCompiled
        if function in _LOGIC:
            if self._kinds.get(one) != "b" or self._kinds.get(two) != "b":
                raise NotCompiled
            self._logic(number, function, one, two)
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
        self._known[number] = self._both_known(number, one, two)

    def _logic(self, number: int, function: str, one: int, two: int) -> None:
        """Three-valued: false `&` null is false, true `|` null is true."""
        knowns = self._known[one], self._known[two]
        if function == "^" or knowns == (None, None):
            self._emit(function, "b", one, two, number, "b")
            self._known[number] = self._both_known(number, one, two)
            return
        true: list[Register] = []
        false: list[Register] = []
        for operand, known in zip((one, two), knowns, strict=True):
            known = _TRUE if known is None else known
            self._use(known)
            true.append(self._made("&", operand, known, ("true", number, operand)))
            false.append(self._made("^", known, true[-1], ("false", number, operand)))
        self._emit(function, "b", true[0], true[1], number, "b")
        either = self._made("|" if function == "&" else "&", false[0], false[1], ("no", number))
        self._known[number] = self._made("|", number, either, ("known", number))

    def _test(self, number: int, function: str, operand: int) -> None:
        if operand in self._literals:
            raise NotCompiled
        known = self._known[operand]
        if function == "~":
            if self._kinds[operand] != "b":
                raise NotCompiled
            self._use(_TRUE)
            self._emit("^", "b", operand, _TRUE, number, "b")
            self._known[number] = known
            return
        known = _TRUE if known is None else known
        self._use(known)
        self._use(_TRUE)
        self._emit("^" if function == "is_null" else "&", "b", known, _TRUE, number, "b")
        self._known[number] = None

    def _filled(self, operands: Sequence[int]) -> tuple[Any, ...]:
        """Return the operands of the choice that `fill_null` is."""
        column, filling = operands
        if column in self._literals:
            raise NotCompiled
        return None, column, filling

    def _choice(self, number: int, operands: Sequence[Any]) -> None:
        """`operands` are conditions and values in turn, and the other value. No condition: where it is not null."""
        values = [*operands[1::2], operands[-1]]
        kinds = {self._kind(each) for each in values}
        kind = "b" if kinds == {"b"} else "f" if "f" in kinds else "i"
        if kind != "b" and "b" in kinds:
            raise NotCompiled
        chosen, known = self._as(kind, operands[-1]), self._known.get(operands[-1])
        for place in reversed(range(len(operands) // 2)):
            condition, value = operands[2 * place : 2 * place + 2]
            step = number, place
            by: Register
            value_known = self._known.get(value)
            if condition is None:
                by, value_known = _TRUE if value_known is None else value_known, None
                self._use(by)
            elif self._kinds.get(condition) != "b":
                raise NotCompiled
            else:
                there = self._known[condition]
                by = condition if there is None else self._made("&", condition, there, ("taken", *step))
            to = number if not place else ("chosen", *step)
            self._emit("?", kind, self._as(kind, value), chosen, to, kind, by)
            if known is not None or value_known is not None:
                one, two = (_TRUE if each is None else each for each in (value_known, known))
                self._use(one)
                self._use(two)
                self._emit("?", "b", one, two, ("known", *step), "b", by)
                known = "known", *step
            chosen = to
        self._known[number] = known

    def _both_known(self, number: int, one: int, two: int) -> Register | None:
        first, second = self._known.get(one), self._known.get(two)
        if first is None or second is None or first == second:
            return second if first is None else first
        made = "known", *sorted(map(repr, (first, second)))
        return made if made in self._on_the_way else self._made("&", first, second, made)

    def _kind(self, number: int) -> str:
        if number in self._literals:
            return "i" if isinstance(self._literals[number], int) else "f"
        return self._kinds[number]

    def _as(self, kind: str, number: int) -> Register:
        """Return the register of an operand as a number of a kind."""
        if number in self._literals:
            value = self._literals[number]
            word = "word", struct.pack("<q", value) if kind == "i" else struct.pack("<d", float(value))
            self._use(word)
            return word
        if self._kinds[number] == kind:
            return number
        made = "float", number
        if made not in self._on_the_way:
            self._emit("c", "i", number, number, made, "f")
        return made

    def _use(self, register: Register) -> None:
        """See to it that there is a register with this value, if it is one of values."""
        if isinstance(register, tuple) and register[0] == "word" and register[1] not in self._words:
            self._words.append(register[1])

    def _made(self, symbol: str, one: Register, two: Register, to: Register) -> Register:
        """Compute bools; return where they are."""
        self._emit(symbol, "b", one, two, to, "b")
        return to

    def _emit(
        self, symbol: str, kind: str, one: Register, two: Register, to: Register, result: str, by: Register = None
    ) -> None:
        self._code.append((symbol, kind, one, two, to, one if by is None else by))
        self._kinds[to] = result
        self._on_the_way.append(to)


def _number(value: Any) -> int | float:
    if type(value) is float or (type(value) is int and value in _RANGE):
        return value
    raise NotCompiled
