"""`when(...).then(...).otherwise(...)`: the value of the first condition that is true."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Never

from shmjet.core.expressions.expression import Call, Expression, Literal, as_expression


@dataclass(frozen=True, eq=False)
class Condition:
    """A condition that still needs its value; made by `when`.

    Args:
        pairs: conditions and values of the earlier branches, in turn.
        condition: of this one.
    """

    pairs: tuple[Expression, ...]
    condition: Expression

    def then(self, value: Any) -> Then:
        """Say what the result is where the condition is true and no earlier one is.

        Args:
            value: a value or an expression. It is computed in the rows that take it: errors of others do not count.
        """
        return Then("when", (*self.pairs, self.condition, as_expression(value), Literal(None)))


class Then(Call):
    """An expression of branches, null where no condition is true; further ones may follow."""

    def when(self, condition: Any) -> Condition:
        """Begin another branch, for the rows that have taken none so far."""
        return Condition(self.of[:-1], as_expression(condition))

    def otherwise(self, value: Any) -> Expression:
        """Say what the result is where no condition is true (false or null): a value or an expression."""
        return Call("when", (*self.of[:-1], as_expression(value)))


def literal(value: Any) -> Expression:
    """Return a value as an expression. Stages take a str for the name of a column, so text for all rows needs it.

    Args:
        value: a number, text, date or the like; None is a null.

    Raises:
        TypeError: it is not a single value.

    Example:
        >>> from shmjet import Batch, column
        >>> from shmjet.columns.expressions import evaluate
        >>> evaluate(literal("x"), Batch({"n": [1, 2]})).tolist()
        ['x', 'x']
    """
    return as_expression(value)


def when(condition: Any, *values: Never) -> Condition:
    """Begin an expression that chooses by conditions.

    Args:
        condition: an expression of bools; null counts as false.
        values: none; a TypeError says where they go.

    Raises:
        TypeError: it is neither an expression nor a value.

    Example:
        >>> from shmjet import Batch, column
        >>> from shmjet.columns.expressions import evaluate
        >>> size = when(column("n") > 9).then("large").when(column("n") > 3).then("medium").otherwise("small")
        >>> evaluate(size, Batch({"n": [1, 5, 70]})).tolist()
        ['small', 'medium', 'large']
    """
    if values:
        raise TypeError(
            "when() takes the condition alone; the values go into when(condition).then(value).otherwise(value)"
        )
    return Condition((), as_expression(condition))
