"""TPC-H's queries 1, 3 and 6 on columns give the answers of plain Python over the same tables."""

from __future__ import annotations

import csv
import importlib.util
import sys
from collections import defaultdict
from collections.abc import Iterator
from datetime import date
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import shmjet

BENCH = Path(__file__).resolve().parents[2] / "bench"
Row = dict[str, Any]

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def tpch() -> Iterator[ModuleType]:
    """The module `bench/tpch_dag.py`, which is in no package."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(BENCH))
        spec = importlib.util.spec_from_file_location("tpch_dag", BENCH / "tpch_dag.py")
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        patch.setitem(sys.modules, "tpch_dag", module)
        spec.loader.exec_module(module)
        yield module


@pytest.fixture(scope="module")
def tables(tpch: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tables at scale 0.01: 60,000 line items."""
    try:
        return Path(tpch.generate(tmp_path_factory.mktemp("tpch"), 0.01))
    except tpch.PeerSkipped as reason:
        pytest.skip(str(reason))


def rows(folder: Path, name: str) -> Iterator[Row]:
    with (folder / f"{name}.csv").open(newline="") as file:
        yield from csv.DictReader(file)


def q1(folder: Path) -> list[tuple[Any, ...]]:
    groups: dict[tuple[str, str], list[tuple[float, ...]]] = defaultdict(list)
    for row in rows(folder, "lineitem"):
        if row["l_shipdate"] <= "1998-09-02":
            values = (float(row[f"l_{name}"]) for name in ("quantity", "extendedprice", "discount", "tax"))
            groups[row["l_returnflag"], row["l_linestatus"]].append(tuple(values))
    answer = []
    for key, lines in sorted(groups.items()):
        number = len(lines)
        quantity, price, discount = (sum(line[i] for line in lines) for i in range(3))
        reduced = sum(line[1] * (1 - line[2]) for line in lines)
        charge = sum(line[1] * (1 - line[2]) * (1 + line[3]) for line in lines)
        means = quantity / number, price / number, discount / number
        answer.append((*key, quantity, price, reduced, charge, *means, number))
    return answer


def q3(folder: Path) -> list[tuple[Any, ...]]:
    day = "1995-03-15"
    customers = {row["c_custkey"] for row in rows(folder, "customer") if row["c_mktsegment"] == "BUILDING"}
    orders = {
        row["o_orderkey"]: row
        for row in rows(folder, "orders")
        if row["o_custkey"] in customers and row["o_orderdate"] < day
    }
    revenue: dict[str, float] = defaultdict(float)
    for row in rows(folder, "lineitem"):
        if row["l_shipdate"] > day and row["l_orderkey"] in orders:
            revenue[row["l_orderkey"]] += float(row["l_extendedprice"]) * (1 - float(row["l_discount"]))
    found = [
        (int(key), total, date.fromisoformat(orders[key]["o_orderdate"]), int(orders[key]["o_shippriority"]))
        for key, total in revenue.items()
    ]
    return sorted(found, key=lambda row: (-row[1], row[2]))[:10]


def q6(folder: Path) -> list[tuple[Any, ...]]:
    total = 0.0
    for row in rows(folder, "lineitem"):
        discount = float(row["l_discount"])
        if "1994-01-01" <= row["l_shipdate"] < "1995-01-01" and 0.05 <= discount <= 0.07:
            total += float(row["l_extendedprice"]) * discount if int(row["l_quantity"]) < 24 else 0
    return [(total,)]


def test_the_queries_give_the_answers_of_plain_python(tpch: ModuleType, tables: Path) -> None:
    with shmjet.new_instance(shmjet.JetConfig(cores=2)) as jet:
        for name, reference in (("tpch_q1", q1), ("tpch_q3", q3), ("tpch_q6", q6)):
            answer, expected = tpch.answer_of(jet, name, tables), reference(tables)
            assert tpch.same(answer, expected), (name, answer, expected)


def test_answers_that_differ_are_told_apart(tpch: ModuleType) -> None:
    assert tpch.same([(1, 2.0, "a")], [(1, 2.0 + 1e-12, "a")])
    assert not tpch.same([(1, 2.0)], [(1, 2.1)])
    assert not tpch.same([(1,)], [])
    assert not tpch.same([("a",)], [("b",)])
