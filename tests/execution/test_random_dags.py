"""Random DAGs: what every vertex gets is what the interpreter says, however they are run, and none stands still."""

from __future__ import annotations

import pytest

from tests.execution.random_dags import check


@pytest.mark.parametrize("first", range(0, 80, 20))
def test_every_vertex_of_a_random_dag_gets_what_the_interpreter_says(first: int) -> None:
    for seed in range(first, first + 20):
        check(seed)
