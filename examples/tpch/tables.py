"""The eight tables of TPC-H: their types, and `tpchgen-cli`, which makes them as CSV files."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any

from shmjet import Batch, Pipeline, sources
from shmjet.pipeline.stages import BatchStage

KEY, COUNT, MONEY, DATE, TEXT = "int64", "int64", "decimal(15, 2)", "datetime64[D]", "text"

SCHEMAS: dict[str, dict[str, str]] = {
    "lineitem": {
        **dict.fromkeys(("l_orderkey", "l_partkey", "l_suppkey"), KEY),
        "l_linenumber": COUNT,
        **dict.fromkeys(("l_quantity", "l_extendedprice", "l_discount", "l_tax"), MONEY),
        **dict.fromkeys(("l_returnflag", "l_linestatus"), TEXT),
        **dict.fromkeys(("l_shipdate", "l_commitdate", "l_receiptdate"), DATE),
        **dict.fromkeys(("l_shipinstruct", "l_shipmode", "l_comment"), TEXT),
    },
    "orders": {
        **dict.fromkeys(("o_orderkey", "o_custkey"), KEY),
        "o_orderstatus": TEXT,
        "o_totalprice": MONEY,
        "o_orderdate": DATE,
        **dict.fromkeys(("o_orderpriority", "o_clerk"), TEXT),
        "o_shippriority": COUNT,
        "o_comment": TEXT,
    },
    "customer": {
        "c_custkey": KEY,
        **dict.fromkeys(("c_name", "c_address"), TEXT),
        "c_nationkey": KEY,
        "c_phone": TEXT,
        "c_acctbal": MONEY,
        **dict.fromkeys(("c_mktsegment", "c_comment"), TEXT),
    },
    "part": {
        "p_partkey": KEY,
        **dict.fromkeys(("p_name", "p_mfgr", "p_brand", "p_type"), TEXT),
        "p_size": COUNT,
        "p_container": TEXT,
        "p_retailprice": MONEY,
        "p_comment": TEXT,
    },
    "partsupp": {
        **dict.fromkeys(("ps_partkey", "ps_suppkey"), KEY),
        "ps_availqty": COUNT,
        "ps_supplycost": MONEY,
        "ps_comment": TEXT,
    },
    "supplier": {
        "s_suppkey": KEY,
        **dict.fromkeys(("s_name", "s_address"), TEXT),
        "s_nationkey": KEY,
        "s_phone": TEXT,
        "s_acctbal": MONEY,
        "s_comment": TEXT,
    },
    "nation": {"n_nationkey": KEY, "n_name": TEXT, "n_regionkey": KEY, "n_comment": TEXT},
    "region": {"r_regionkey": KEY, "r_name": TEXT, "r_comment": TEXT},
}
"""Types of the columns by table, in the order of the files."""


def schemas(money: str = MONEY) -> dict[str, dict[str, str]]:
    """Return the types with another one for amounts, "float64" say."""
    return {
        table: {name: money if kind == MONEY else kind for name, kind in schema.items()}
        for table, schema in SCHEMAS.items()
    }


class Tables:
    """The tables as stages of one pipeline; `tables["orders"]` reads `orders.csv`, once however often it is used.

    Args:
        pipeline: gets the sources.
        folder: has the files.
        money: the type of amounts.
    """

    def __init__(self, pipeline: Pipeline, folder: Path, money: str = MONEY) -> None:
        self._pipeline, self._folder, self._schemas = pipeline, folder, schemas(money)
        self._are_decimals = money.startswith("decimal")
        self._stages: dict[str, BatchStage[Any]] = {}

    def money(self, amount: str) -> Decimal | float:
        """Return an amount in the type of the tables."""
        return Decimal(amount) if self._are_decimals else float(amount)

    def __getitem__(self, name: str) -> BatchStage[Any]:
        if name not in self._stages:
            schema: Mapping[str, Any] = self._schemas[name]
            source = sources.csv(self._folder / f"{name}.csv", schema, as_=Batch)
            self._stages[name] = self._pipeline.read_from(source).set_name(name)
        return self._stages[name]


def generate(folder: Path, scale: float) -> Path:
    """Make the tables in a folder unless they are there; return it.

    Raises:
        ModuleNotFoundError: `tpchgen-cli` is not installed.
    """
    if all((folder / f"{name}.csv").exists() for name in SCHEMAS):
        return folder
    places = [os.environ["PATH"], str(Path(sys.executable).parent), *(f"{place}/bin" for place in sys.path)]
    program = shutil.which("tpchgen-cli", path=os.pathsep.join(places))
    if program is None:
        raise ModuleNotFoundError("TPC-H needs its tables: pip install tpchgen-cli", name="tpchgen-cli")
    folder.mkdir(parents=True, exist_ok=True)
    subprocess.run([program, "csv", "-s", str(scale), f"--output-dir={folder}"], check=True, capture_output=True)
    return folder
