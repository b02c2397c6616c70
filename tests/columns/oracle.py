"""Random stages of columns over awkward data, held against polars and DuckDB, and against themselves in other cuts.

A case is made from a seed: tables, and what is done with them. It runs from batches cut in any way, from rows and from
files where it can, on any number of workers and on two members. All outcomes, errors too, have to be the same, and what
the references make of the same rows. `differences.py` says where shmjet promises something else than these.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final, Protocol, TypeAlias

from shmjet import DAG, Batch, BatchError, JobFailedError
from shmjet.pipeline import Pipeline
from tests.columns.differences import Expected
from tests.columns.oracle_chains import ChainCase
from tests.columns.oracle_files import FileCase
from tests.columns.oracle_groups import GroupCase, rounded
from tests.columns.oracle_joins import JoinCase
from tests.columns.oracle_sorts import SortCase
from tests.tables.random_stages import StageCase

Run: TypeAlias = Callable[[Pipeline | DAG, str], list[Any]]
"""Runs a job with one list sink, `out`, on the engine of that name and returns what came."""


class Case(Protocol):
    """What is made from a seed."""

    is_ordered: bool
    """The order of the rows counts."""

    def jobs(self) -> Iterator[tuple[str, Pipeline | DAG | list[Pipeline | DAG]]]:
        """Give jobs that all have one outcome, each with a name; of a list the last one counts."""

    def expected(self) -> Iterator[tuple[str, Expected]]:
        """Give what each reference makes of the same rows, with its name."""


CASES: Final[dict[str, Callable[[int], Any]]] = {
    "groups": GroupCase,
    "joins": JoinCase,
    "sorts": SortCase,
    "chains": ChainCase,
    "files": FileCase,
    "stages": StageCase,
}


def check(
    kind: str, seed: int, run: Run, engines: Sequence[str], folder: Path | None = None, *, all_on_all: bool = False
) -> None:
    """Run a case in all ways and compare the outcomes.

    Args:
        kind: one of `CASES`.
        seed: of the case.
        run: what runs it.
        engines: names that `run` takes, at least one.
        folder: for files; None: the case does without.
        all_on_all: run every job on every engine; else only the first one is, and the engines take turns with the rest.

    Raises:
        AssertionError: outcomes differ from each other or from those of a reference; the text has seed and rows.
    """
    case = CASES[kind](seed)
    case.folder = folder
    outcomes: dict[Any, list[str]] = {}
    for at, (name, job) in enumerate(case.jobs()):
        for engine in engines if all_on_all or at == 0 else [engines[at % len(engines)]]:
            outcome = _outcome(run, job, engine, case)
            outcomes.setdefault(outcome, []).append(f"{name} on {engine}")
    where = f"{kind}, seed {seed}: {case!r}"
    assert len(outcomes) == 1, f"{where}: {outcomes}"
    (outcome,) = outcomes
    try:
        if hasattr(case, "compare"):
            case.compare(outcome)
        for name, expected in case.expected():
            _compare(name, case, expected, outcome)
    except AssertionError as error:
        raise AssertionError(f"{where}: {error}") from None


def _compare(name: str, case: Case, expected: Expected, outcome: tuple[str, Any]) -> None:
    kind, content = outcome
    if expected.error:
        assert kind in ("error", "fault"), f"{name} finds an error, {expected.error}; found {outcome}"
        assert expected.error in content, f"{name} finds an error, {expected.error}; found {content}"
        return
    rows = tuple(expected.rows if case.is_ordered else sorted(expected.rows, key=repr))
    assert kind == "rows", f"{name} has rows {rows}; found {outcome}"
    assert content == rows, f"{name} has rows {rows}; found {content}"


def _outcome(run: Run, job: Any, engine: str, case: Any) -> Any:
    *before, last = job if isinstance(job, list) else [job]
    try:
        for each in before:
            run(each, engine)
        items = run(last, engine)
    except (BatchError, JobFailedError) as error:
        cause = error.cause if isinstance(error, JobFailedError) else error
        text = re.sub(r"^.*vertex '[^']*': ", "", str(cause))
        if not isinstance(cause, BatchError):
            return "fault", text
        # Several values may be wrong where a column is mixed: any is named.
        return "error", "" if getattr(case, "is_mixed", False) else text
    batches = [item for item in items if isinstance(item, Batch)]
    streamed = getattr(case, "streamed", ())  # columns that have the dtypes of the batches they came in
    guessed = set(streamed)
    if isinstance(case, GroupCase):  # what a function returns is not known where it has not been called
        guessed |= {name for name, each in case.aggregates.items() if each.function == "custom"}
    orders = {batch.names for batch in batches}
    assert len(orders) <= 1, orders
    for name in set().union(*orders) - set(streamed):
        kinds = {str(batch.schema[name]) for batch in batches if batch.num_rows or name not in guessed}
        assert len(kinds) <= 1, (name, kinds)
    rows = [row for item in items for row in (item.tuples() if isinstance(item, Batch) else [tuple(item.values())])]
    form = [tuple(map(rounded, row)) for row in rows]
    if isinstance(case, GroupCase):  # docs/limits.md: the last digits of these differ
        places = [len(case.keys) + at for at, name in enumerate(case.aggregates) if name in ("var", "std")]
        form = [_with_fewer_digits(row, places) for row in form]
    return "rows", tuple(form if case.is_ordered else sorted(form, key=repr))


def _with_fewer_digits(row: tuple[Any, ...], places: Sequence[int]) -> tuple[Any, ...]:
    return tuple(f"{float(value):.6e}" if at in places and value is not None else value for at, value in enumerate(row))
