"""Projections and filters that sources do themselves: what is pushed, what is not, and that results stay the same."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import shmjet
from shmjet import Batch, BatchError, JetConfig, JetInstance, JobFailedError, Pipeline, column, sinks, sources
from shmjet.columns import count, sum_

SCHEMA = {"id": int, "name": str, "price": float, "qty": "int8"}
ROWS = 40_000


@pytest.fixture(scope="module")
def jet() -> Iterator[JetInstance]:
    with shmjet.new_instance(JetConfig(cores=2)) as instance:
        yield instance


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("csv") / "table.csv"
    lines = [f'{i},"n{i % 7}",{i / 8 if i % 11 else ""},{i % 5}\n' for i in range(ROWS)]
    path.write_text("id,name,price,qty\n" + "".join(lines))
    return str(path)


@pytest.fixture
def run(jet: JetInstance) -> Callable[[Pipeline, Any], list[Any]]:
    def run(p: Pipeline, stage: Any) -> list[Any]:
        with sinks.collect() as results:
            stage.write_to(results)
            jet.new_job(p).run(60)
            return [row for batch in results for row in batch.tuples()]

    return run


def reading(path: str, schema: Any = SCHEMA, **options: Any) -> tuple[Pipeline, Any]:
    p = Pipeline()
    return p, p.read_from(sources.csv(path, schema, as_=Batch, **options))


def explained(p: Pipeline, stage: Any) -> str:
    stage.write_to(sinks.noop())
    return p.explain()


@pytest.mark.parametrize("schema", [SCHEMA, None], ids=["schema", "inferred"])
def test_a_csv_source_reads_the_columns_and_gives_the_rows_that_are_wanted(
    table: str, schema: Any, run: Callable[..., list[Any]]
) -> None:
    p, stage = reading(table, schema)
    stage = stage.filter(column("qty") > 2).select("name", cost=column("price") * 2).filter(column("name") == "n3")
    stage = stage.group_by("name").agg(cost=sum_("cost"), n=count())
    found = run(p, stage)
    plan = p.explain()
    assert "reads only name, price" in plan
    assert "gives only rows where (column('qty') > 2)" in plan
    assert "gives only rows where (column('name') == 'n3')" in plan
    assert "filter" not in plan
    chosen = [i for i in range(ROWS) if i % 5 > 2 and i % 7 == 3]
    assert found == [("n3", sum(i / 4 for i in chosen if i % 11), len(chosen))]


def test_rows_alone_are_counted_by_one_column(table: str, run: Callable[..., list[Any]]) -> None:
    p, stage = reading(table)
    assert run(p, stage.group_by().agg(n=count())) == [(ROWS,)]
    assert "reads only one column" in p.explain()


def test_no_row_left_keeps_the_columns(table: str, jet: JetInstance) -> None:
    p, stage = reading(table)
    with sinks.collect() as results:
        stage.filter(column("id") < 0).select("name", x=column("price")).write_to(results)
        jet.new_job(p).run(60)
        batches = list(results)
    assert {tuple(batch.schema) for batch in batches} == {("name", "x")}
    assert sum(batch.num_rows for batch in batches) == 0


def test_a_filter_on_a_computed_column_stays_and_one_on_a_renamed_one_goes(table: str) -> None:
    p, stage = reading(table)
    stage = stage.with_columns(price=column("price") * 2).filter(column("price") > 1)
    plan = explained(p, stage.select("price"))
    assert "gives only rows" not in plan
    assert "reads only price" in plan
    p, stage = reading(table)
    plan = explained(p, stage.select(cost="price", key="id").filter(column("key") > 1))
    assert "gives only rows where (column('id') > 1)" in plan
    assert "reads only id, price" in plan


def test_what_several_stages_read_is_read_for_all_of_them(table: str) -> None:
    p, stage = reading(table)
    stage.filter(column("id") > 1).select("name").write_to(sinks.noop())
    stage.group_by("qty").agg(n=count()).write_to(sinks.noop())
    plan = p.explain()
    assert "reads only id, name, qty" in plan
    assert "gives only rows" not in plan


def test_a_join_needs_its_keys_and_what_keeps_names_as_they_are(table: str) -> None:
    p, left = reading(table)
    right = p.read_from(sources.csv(table, SCHEMA, as_=Batch))
    plan = explained(p, left.join(right, on="id", suffix="_right").select("qty", "price_right"))
    assert "reads only id, price, qty" in plan
    assert "reads only id, price\n" in plan


def test_whatever_else_follows_needs_all_columns(table: str) -> None:
    for more in (lambda s: s, lambda s: s.map(len), lambda s: s.distinct(), lambda s: s.sort("id")):
        p, stage = reading(table)
        assert "reads only" not in explained(p, more(stage))


def test_bad_lines_are_left_out_as_if_nothing_were_pushed(tmp_path: Path, run: Callable[..., list[Any]]) -> None:
    path = tmp_path / "bad.csv"
    path.write_text("id,name,price,qty\n1,a,x,1\n2,b,1.5,2\n3,c,2.5,3\n")
    p, stage = reading(str(path), on_bad_line="skip")
    assert sorted(run(p, stage.filter(column("qty") < 3).select("id"))) == [(2,)]
    p, stage = reading(str(path))
    with pytest.raises(JobFailedError, match="line 2, column 'price'"):
        run(p, stage.select("price"))
    p, stage = reading(str(path), {"id": int, "name": str, "price": str})
    with pytest.raises(JobFailedError, match="column 'qty', which is not in the schema"):
        run(p, stage.select("id"))


def test_a_column_that_is_not_there_is_named(table: str, run: Callable[..., list[Any]]) -> None:
    for schema in (SCHEMA, None):
        p, stage = reading(table, schema)
        with pytest.raises(JobFailedError, match="nowhere") as failed:
            run(p, stage.filter(column("nowhere") > 1).select("id"))
        assert isinstance(failed.value.cause, BatchError)
        assert "there are ['id', 'name', 'price', 'qty']" in str(failed.value.cause)
