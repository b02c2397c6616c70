"""`ComputedTotals`: expressions whose values go from registers into the only group of a table, block by block.

Of rows that all are one group, columns that only aggregates read need not be written. A table takes such values once a
batch has shown it the dtypes; what is not for plain numbers, or leaves its type, is computed in the usual way. Must not
know processors.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, final

import numpy as np

from shmjet.columns.aggregates import Aggregate
from shmjet.columns.expressions.number_program import Call, Compiled, NumberProgram
from shmjet.columns.expressions.program import Program
from shmjet.columns.expressions.projection import columns_of
from shmjet.columns.expressions.row_chooser import RowChooser
from shmjet.columns.group_schema import StateForm, state_dtype
from shmjet.columns.groups import Groups
from shmjet.core.column_key import ColumnKey
from shmjet.core.expressions import Expression
from shmjet.data.batch import Batch

_NO_REGISTER: Final = 255
_COUNTED: Final = bytes((ord("i"), _NO_REGISTER, _NO_REGISTER))
"""What stands for the values of an aggregate that counts rows."""


@final
class ComputedTotals:
    """The columns that aggregates read, computed while they are added.

    Args:
        outputs: name → expression, of the columns that are computed.
        keep: the columns of a batch are there, too; otherwise only these.
        aggregates: result → aggregate; none that keeps rows.

    Raises:
        KeyError: an aggregate reads a column that is not there.
    """

    def __init__(self, outputs: Mapping[str, Expression], keep: bool, aggregates: Mapping[str, Aggregate]) -> None:
        self._aggregates = dict(aggregates)
        read = [each.column for each in aggregates.values() if each.column is not None]
        columns = dict.fromkeys([*read, *outputs])  # all outputs: what no aggregate reads may raise
        expressions = [outputs.get(name, ColumnKey((name,))) if keep else outputs[name] for name in columns]
        self._places = {name: place for place, name in enumerate(columns)}
        self._program = Program(expressions)
        self._numbers = self._program.in_registers()
        self._known: dict[Compiled, tuple[list[StateForm], bytes] | None] = {}

    def add(self, groups: Groups, batch: Batch, chosen: RowChooser | NumberProgram | None = None) -> bool:
        """Add what the expressions give in some rows of a batch.

        Args:
            groups: where to.
            batch: what expressions and condition read.
            chosen: what chooses the rows: a mask, or a condition whose result stays in a register; None: all are.

        Returns:
            False: nothing was added, and it has to be in the usual way.
        """
        if not groups.takes_computed or not all(name in batch for name in self._program.names):
            return False
        inputs, rows, condition = columns_of(self._program.names, batch), batch.num_rows, None
        if isinstance(chosen, RowChooser):
            call = self._numbers.call(inputs, rows, chosen.mask, chosen.rows)
        else:
            call = self._numbers.call(inputs, rows)
        if call is None:
            return False
        if isinstance(chosen, NumberProgram):
            condition = _condition(chosen, batch)
            if condition is None or call.has_nulls:
                return False
        if call.program not in self._known:
            self._known[call.program] = self._registers(call.program)
        known = self._known[call.program]
        return known is not None and groups.add_computed(call, *known, condition)

    def _registers(self, program: Compiled) -> tuple[list[StateForm], bytes] | None:
        """Return what a table has to have for the results of a program, and where they are; None: it takes none."""
        forms, registers = [], b""
        for result, aggregate in self._aggregates.items():
            if aggregate.column is None:
                forms.append(StateForm(np.dtype(np.int64), True))
                registers += _COUNTED
                continue
            place = self._places[aggregate.column]
            dtype = program.dtypes[place]
            if dtype == np.bool_:
                return None
            forms.append(StateForm(state_dtype(result, aggregate, dtype), True))
            value, known = program.places[place]
            registers += bytes((ord(dtype.kind), value, _NO_REGISTER if known is None else known))
        return forms, registers


def _condition(condition: NumberProgram, batch: Batch) -> Call | None:
    """Return what gives bools without nulls for the rows of a batch; None where it does not."""
    if not all(name in batch for name in condition.names):
        return None
    call = condition.call(columns_of(condition.names, batch), batch.num_rows)
    if call is None or call.has_nulls or call.program.dtypes[0] != np.bool_:
        return None
    return call


def totals_of(
    outputs: Mapping[str, Expression], keep: bool, keys: tuple[str, ...], aggregates: Mapping[str, Aggregate]
) -> ComputedTotals | None:
    """Return what adds columns as they are computed; None where there are groups by keys, or rows are kept.

    Args:
        outputs, keep, aggregates: as of `ComputedTotals`.
        keys: of the table.
    """
    if keys or any(each.keeps_rows for each in aggregates.values()):
        return None
    missing = [each.column for each in aggregates.values() if each.column is not None and each.column not in outputs]
    return None if missing and not keep else ComputedTotals(outputs, keep, aggregates)
