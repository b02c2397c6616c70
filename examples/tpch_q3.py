"""TPC-H's query 3: the ten unshipped orders of one market segment that bring the most.

    SELECT l_orderkey, sum(l_extendedprice * (1 - l_discount)) AS revenue, o_orderdate, o_shippriority
    FROM customer, orders, lineitem
    WHERE c_mktsegment = 'BUILDING' AND c_custkey = o_custkey AND l_orderkey = o_orderkey
      AND o_orderdate < DATE '1995-03-15' AND l_shipdate > DATE '1995-03-15'
    GROUP BY l_orderkey, o_orderdate, o_shippriority ORDER BY revenue DESC, o_orderdate LIMIT 10

The tables are made by `tpchgen-cli` (`pip install tpchgen-cli`). They are read as batches of columns, whose types are
found in the files, and the lines are filtered and summed as such; of what is left, the rows are joined as dicts.

    python examples/tpch_q3.py [SCALE]
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np

from shmjet import Batch, JetConfig, Pipeline, aggregate_ops, new_instance, on_keys, sinks, sources
from shmjet.columns import sum_

DAY = np.datetime64("1995-03-15")
SEGMENT = "BUILDING"
TABLES = "customer", "orders", "lineitem"

Order = tuple[int, float, str, int]
"""(key, revenue, date, ship priority)"""


def customers_of_segment(batch: Batch) -> Batch:
    """Return the customers that are wanted."""
    return batch.filter(batch["c_mktsegment"] == SEGMENT)


def early_orders(batch: Batch) -> Batch:
    """Return the orders before the day."""
    return batch.filter(batch["o_orderdate"] < DAY)


def late_revenues(batch: Batch) -> Batch:
    """Return order and revenue of the lines shipped after the day."""
    late = batch.filter(batch["l_shipdate"] > DAY)
    return Batch({"l_orderkey": late["l_orderkey"], "revenue": late["l_extendedprice"] * (1 - late["l_discount"])})


def joined(line: dict[str, Any], order: dict[str, Any]) -> Order:
    """Return what the query asks for."""
    return line["l_orderkey"], line["revenue"], str(order["o_orderdate"]), order["o_shippriority"]


def pipeline(folder: Path, best: sinks.Results[list[Order]]) -> Pipeline:
    """Describe the query."""

    def batches_of(table: str, *columns: str) -> Any:
        return p.read_from(sources.csv(folder / f"{table}.csv", columns=columns, as_=Batch)).set_name(table)

    p = Pipeline()
    customers = batches_of("customer", "c_custkey", "c_mktsegment").map_batches(customers_of_segment)
    orders = (
        batches_of("orders", "o_orderkey", "o_custkey", "o_orderdate", "o_shippriority")
        .map_batches(early_orders)
        .inner_hash_join(
            customers, on_keys(itemgetter("o_custkey"), itemgetter("c_custkey")), lambda order, customer: order
        )
    )
    (
        batches_of("lineitem", "l_orderkey", "l_extendedprice", "l_discount", "l_shipdate")
        .map_batches(late_revenues)
        .group_by("l_orderkey")
        .agg(revenue=sum_("revenue"))
        .join(orders, itemgetter("l_orderkey"), itemgetter("o_orderkey"), joined)
        .aggregate(aggregate_ops.bottom_n(10, key=lambda order: (-order[1], order[2], order[0])))
        .write_to(best)
    )
    return p


def main(folder: Path, config: JetConfig | None = None) -> list[Order]:
    """Run the query on the CSV files in a folder."""
    best: sinks.Results[list[Order]] = sinks.collect()
    with new_instance(config or JetConfig()) as jet:
        jet.new_job(pipeline(folder, best)).run()
        (found,) = best
    return found


def generate(folder: Path, scale: float) -> Path:
    """Make the tables in a folder.

    Raises:
        ModuleNotFoundError: `tpchgen-cli` is not installed.
    """
    places = [os.environ["PATH"], str(Path(sys.executable).parent), *(f"{place}/bin" for place in sys.path)]
    program = shutil.which("tpchgen-cli", path=os.pathsep.join(places))
    if program is None:
        raise ModuleNotFoundError("this example needs its data: pip install tpchgen-cli", name="tpchgen-cli")
    command = [program, "csv", "-s", str(scale), f"--output-dir={folder}", "--tables", ",".join(TABLES)]
    subprocess.run(command, check=True, capture_output=True)
    return folder


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as temporary:
        tables = generate(Path(temporary), float(sys.argv[1]) if len(sys.argv) > 1 else 0.1)
        for key, revenue, date, priority in main(tables):
            print(f"{key:10} {revenue:14.2f} {date} {priority}")
