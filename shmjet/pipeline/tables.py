"""Tables: the latest value for each key of a stream, for other streams to look up.

Descriptions only. After Samza's local tables, and tables with side inputs.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from shmjet.core.key_functions import KeyFn
from shmjet.data.errors import PlanError
from shmjet.pipeline.checks import checked_key
from shmjet.pipeline.definitions import SourceDef


@dataclass(frozen=True)
class Table:
    """A table by its name, within one pipeline.

    `stage.send_to(table)` puts the entries of a stream into it, `stage.join_table(table, key_fn, fn)` looks them up. On
    bounded data a table is complete before the first item is joined with it; of several values for a key the last one
    counts.

    Args:
        name: two tables of the same name are one.
        side_inputs: sources from which the table is filled, in addition to what is sent to it.
        side_key: key of an item of these sources, under which the item is put; without it they hold `(key, value)`.

    Raises:
        PlanError: the name is not a str, or it is empty. TypeError: a side input is not a source.

    Example:
        >>> Table("profiles").name
        'profiles'
    """

    name: str
    side_inputs: tuple[SourceDef[Any], ...] = field(default=(), kw_only=True)
    side_key: KeyFn = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name:
            raise PlanError(f"Table: the name must be a non-empty text, got {self.name!r}")
        object.__setattr__(self, "side_inputs", tuple(self.side_inputs))
        for source in self.side_inputs:
            if not isinstance(source, SourceDef):
                raise TypeError(
                    f"table {self.name!r}: a side input must be a source (see shmjet.sources), got {source!r}"
                )
        checked_key(f"table {self.name!r}: side_key", self.side_key)
