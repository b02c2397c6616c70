"""Expressions of columns: what is computed of each row, described before there are rows.

A tree of `Column` names, literals and calls of functions by name. What the names mean is the business of
`shmjet.columns.expressions`, which computes them over batches. Must not know numpy: pipelines are built without it.
"""

from __future__ import annotations

from shmjet.core.expressions.conditions import Condition, Then, literal, when
from shmjet.core.expressions.date_functions import DateFunctions
from shmjet.core.expressions.expression import Call, Expression, Literal, as_expression
from shmjet.core.expressions.text_functions import TextFunctions

__all__ = [
    "Call",
    "Condition",
    "DateFunctions",
    "Expression",
    "Literal",
    "TextFunctions",
    "Then",
    "as_expression",
    "literal",
    "when",
]
