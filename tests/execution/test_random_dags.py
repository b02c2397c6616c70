"""Random DAGs: what every vertex gets is what the interpreter says, however they are run, and none stands still."""

from __future__ import annotations

import pytest

from tests.examples import drawn
from tests.execution.random_dags import check, check_on, engine


@pytest.mark.parametrize("first", range(0, drawn(80), 20))
def test_every_vertex_of_a_random_dag_gets_what_the_interpreter_says(first: int) -> None:
    for seed in range(first, first + 20):
        check(seed)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["rings", "cluster"])
def test_random_dags_side_by_side_on_a_real_engine_get_it_too(kind: str) -> None:
    with engine(kind) as jet:
        assert sum(check_on(jet, kind, range(first, first + 3), 60) for first in (0, 3)) > 0
