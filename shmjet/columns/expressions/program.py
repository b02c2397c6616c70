"""Expressions as steps: what is common to several is computed once, and a branch only where it is taken.

A scope is a list of steps that compute one after the other. The value of a branch of `when` (and what `fill_null` fills
with) is a scope of its own: it is computed with the rows that take it as `active`, so that an overflow in another row
is none. What the scopes around it have computed already it uses.
"""

from __future__ import annotations

import datetime
import decimal
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy as np

from shmjet.columns.expressions.casts import prepared_cast
from shmjet.columns.expressions.choices import filled, taken, when
from shmjet.columns.expressions.date_parts import DATE_FUNCTIONS
from shmjet.columns.expressions.membership import prepared_membership
from shmjet.columns.expressions.number_program import Node, NumberProgram
from shmjet.columns.expressions.numpy_calls import prepared_numpy
from shmjet.columns.expressions.operations import OPERATIONS
from shmjet.columns.expressions.text_calls import prepared_text
from shmjet.columns.expressions.vector import Vector, null
from shmjet.core.column_key import ColumnKey
from shmjet.core.expressions import Call, Expression, Literal
from shmjet.core.expressions.numpy_functions import PREFIX
from shmjet.core.expressions.trees import number_of
from shmjet.data.errors import BatchError
from shmjet.data.text import Mask

Function: TypeAlias = Callable[[Sequence[Vector], int, "Mask | None"], Vector]
"""Computes a step: of operands, the number of rows, and the rows that count (None: all)."""

_SHOWN: Final = 120
"""Characters of an expression in a message."""

Computed: TypeAlias = dict[int, Vector]
"""What steps have given, by their number."""


@dataclass(frozen=True, slots=True)
class Step:
    """One node of the tree: its number, its operands' numbers, what computes it, and the node, for messages."""

    number: int
    operands: tuple[int, ...]
    function: Function
    node: Expression


@dataclass(frozen=True, slots=True)
class LiteralStep:
    """A value."""

    number: int
    value: Any


@dataclass(frozen=True, slots=True)
class WhenStep:
    """`when(...).then(...).otherwise(...)`: scopes of its conditions and values."""

    number: int
    conditions: tuple[Scope, ...]
    values: tuple[Scope, ...]
    node: Expression


@dataclass(frozen=True, slots=True)
class FillStep:
    """`fill_null(...)`: the column's number, and the scope of what fills it."""

    number: int
    operand: int
    filling: Scope
    node: Expression


@dataclass(frozen=True, slots=True)
class Scope:
    """Steps in order, and the numbers of what they are made for."""

    steps: tuple[Step | LiteralStep | WhenStep | FillStep, ...]
    results: tuple[int, ...]


class Program:
    """Expressions, ready to be computed over blocks of rows.

    Args:
        expressions: what is computed.

    Raises:
        BatchError: an option of a function cannot be: a type that is none, a pattern that is not valid.
    """

    def __init__(self, expressions: Sequence[Expression]) -> None:
        self.names = tuple(dict.fromkeys(name for each in expressions for name in each.names))
        self._numbers: dict[Any, int] = {}
        self._seen: dict[int, tuple[int, Expression]] = {}
        for each in expressions:
            number_of(each, self._numbers, self._seen)
        columns = {self._number(ColumnKey((name,))): name for name in self.names}
        self._columns = columns
        try:
            self._scope = self._scope_of(expressions, frozenset(columns))
        except RecursionError:
            raise BatchError(
                "an expression has too many conditions within conditions; write them in one chain: "
                "when(...).then(...).when(...).then(...).otherwise(...)"
            ) from None
        self.numbers = NumberProgram(columns, _plain_nodes(self._scope), self._scope.results)
        """The same, for columns of plain numbers."""

    def in_registers(self) -> NumberProgram:
        """Return the same for columns of plain numbers, where results stay in registers; they may be columns."""
        return NumberProgram(self._columns, _plain_nodes(self._scope), self._scope.results, stays=True)

    def run(self, columns: Mapping[str, Vector], rows: int) -> list[Vector]:
        """Return what each expression gives in a block.

        Args:
            columns: the columns that are read, by name.
            rows: of the block.

        Raises:
            BatchError: types do not go together, or a value leaves its type.
        """
        computed = {number: columns[name] for number, name in self._columns.items()}
        return _run(self._scope, computed, rows, None)

    def _number(self, expression: Expression) -> int:
        return number_of(expression, self._numbers, self._seen)

    def _scope_of(self, expressions: Sequence[Expression], known: frozenset[int]) -> Scope:
        steps: list[Any] = []
        done = set(known)
        for expression in expressions:
            stack = [expression]
            while stack:
                node = stack[-1]
                number = self._number(node)
                waiting = [] if number in done else [o for o in _eager(node) if self._number(o) not in done]
                if waiting:
                    stack.extend(reversed(waiting))
                    continue
                stack.pop()
                if number not in done:
                    steps.append(self._step(node, number, frozenset(done)))
                    done.add(number)
        return Scope(tuple(steps), tuple(self._number(each) for each in expressions))

    def _step(self, node: Expression, number: int, known: frozenset[int]) -> Any:
        if isinstance(node, Literal):
            return LiteralStep(number, plain_scalar(node.value))
        assert isinstance(node, Call), node
        if node.function == "when":
            conditions = tuple(self._scope_of([each], known) for each in node.of[:-1:2])
            values = tuple(self._scope_of([each], known) for each in (*node.of[1::2], node.of[-1]))
            return WhenStep(number, conditions, values, node)
        if node.function == "fill_null":
            return FillStep(number, self._number(node.of[0]), self._scope_of([node.of[1]], known), node)
        return Step(number, tuple(self._number(each) for each in node.of), _function(node), node)


def _plain_nodes(scope: Scope) -> list[Node] | None:
    """Return the steps of a scope as nodes, those of its branches among them; None if there are functions of others."""
    nodes: dict[int, Node] = {}
    return list(nodes.values()) if _add_plain(scope, nodes) else None


def _add_plain(scope: Scope, nodes: dict[int, Node]) -> bool:
    """Add the nodes of a scope. Returns whether it has nothing but functions without options."""
    for step in scope.steps:
        operands: tuple[int, ...] = ()
        function, value = "", None
        if isinstance(step, LiteralStep):
            value = step.value
        elif isinstance(step, WhenStep):
            if not all(_add_plain(each, nodes) for each in (*step.conditions, *step.values)):
                return False
            function = "when"
            pairs = zip(step.conditions, step.values, strict=False)
            operands = (*(each.results[0] for pair in pairs for each in pair), step.values[-1].results[0])
        elif isinstance(step, FillStep):
            if not _add_plain(step.filling, nodes):
                return False
            function, operands = "fill_null", (step.operand, step.filling.results[0])
        elif isinstance(step.node, Call) and not step.node.options:
            function, operands = step.node.function, step.operands
        else:
            return False
        nodes.setdefault(step.number, (step.number, operands, function, value))
    return True


def _eager(node: Expression) -> tuple[Expression, ...]:
    """Return the operands that are computed in every row in which the node is."""
    if isinstance(node, Call) and node.function in ("when", "fill_null"):
        return node.of[:1]
    return node.operands


def _run(scope: Scope, computed: Computed, rows: int, active: Mask | None) -> list[Vector]:
    for step in scope.steps:
        if isinstance(step, Step):
            try:
                result = step.function([computed[number] for number in step.operands], rows, active)
            except BatchError as error:
                raise BatchError(f"{_shown(step.node)}: {error}") from error.__cause__
        elif isinstance(step, LiteralStep):
            result = null(rows) if step.value is None else Vector(step.value, is_scalar=True)
        elif isinstance(step, FillStep):
            result = _fill(step, computed, rows, active)
        else:
            result = _choose(step, computed, rows, active)
        computed[step.number] = result
    return [computed[number] for number in scope.results]


def _shown(node: Expression) -> str:
    """Return an expression for a message; of a long one the columns that it reads."""
    text = repr(node)
    return text if len(text) <= _SHOWN else f"an expression of {', '.join(map(repr, node.names)):.{_SHOWN}}"


def _fill(step: FillStep, computed: Computed, rows: int, active: Mask | None) -> Vector:
    column = computed[step.operand]
    missing = ~column.mask(rows)
    if active is not None:
        missing &= active
    (filling,) = _run(step.filling, dict(computed), rows, missing)
    try:
        return filled(column, filling, rows, missing)
    except BatchError as error:
        raise BatchError(f"{_shown(step.node)}: {error}") from error.__cause__


def _choose(step: WhenStep, computed: Computed, rows: int, active: Mask | None) -> Vector:
    left = np.ones(rows, np.bool_) if active is None else active.copy()
    choices = []
    for condition, value in zip(step.conditions, step.values, strict=False):
        (decided,) = _run(condition, dict(computed), rows, left)
        try:
            rows_taken = taken(decided, rows) & left
        except BatchError as error:
            raise BatchError(f"{_shown(step.node)}: {error}") from error.__cause__
        left &= ~rows_taken
        choices.append((rows_taken, _run(value, dict(computed), rows, rows_taken)[0]))
    (other,) = _run(step.values[-1], dict(computed), rows, left)
    try:
        return when(choices, other, rows, left)
    except BatchError as error:
        raise BatchError(f"{_shown(step.node)}: {error}") from error.__cause__


def _function(node: Call) -> Function:
    if node.function in OPERATIONS:
        return OPERATIONS[node.function]
    if node.function == "cast":
        return prepared_cast(node.option("type"))
    if node.function == "is_in":
        return prepared_membership([plain_scalar(value) for value in node.option("values")])
    if node.function.startswith(PREFIX):
        return prepared_numpy(node.function)
    if node.function.startswith("dt."):
        return DATE_FUNCTIONS[node.function[3:]](**dict(node.options))
    return prepared_text(node.function, dict(node.options))


_PLAIN: Final = (bool, int, float, complex, str, bytes, type(None), decimal.Decimal)


def plain_scalar(value: Any) -> Any:
    """Return a literal as the operators take it.

    Raises:
        BatchError: there is no column of such values.
    """
    if isinstance(value, np.str_ | np.bytes_):
        return value.item()
    if isinstance(value, np.ndarray):
        return plain_scalar(value[()])
    if isinstance(value, str):
        return str(value)
    if isinstance(value, (*_PLAIN, np.generic)):
        return value
    if isinstance(value, datetime.datetime):
        return value if value.tzinfo is not None else np.datetime64(value, "us")
    if isinstance(value, datetime.date):
        return np.datetime64(value, "D")
    if isinstance(value, datetime.timedelta):
        return np.timedelta64(value, "us")
    raise BatchError(f"{value!r:.80} of type {type(value).__name__} cannot be a value of a column")
