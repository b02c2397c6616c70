"""The tables of TPC-H for benches: PyPI's `tpchgen-cli` makes them, without a network."""

from __future__ import annotations

import importlib.metadata
import os
import shutil
import subprocess
from collections.abc import Collection
from pathlib import Path

from _harness import PeerSkipped

SCHEMAS: dict[str, dict[str, str]] = {
    "lineitem": {
        **dict.fromkeys(("l_orderkey", "l_partkey", "l_suppkey", "l_linenumber", "l_quantity"), "int64"),
        **dict.fromkeys(("l_extendedprice", "l_discount", "l_tax"), "float64"),
        **dict.fromkeys(("l_returnflag", "l_linestatus"), "text"),
        **dict.fromkeys(("l_shipdate", "l_commitdate", "l_receiptdate"), "datetime64[D]"),
        **dict.fromkeys(("l_shipinstruct", "l_shipmode", "l_comment"), "text"),
    },
    "orders": {
        "o_orderkey": "int64",
        "o_custkey": "int64",
        "o_orderstatus": "text",
        "o_totalprice": "float64",
        "o_orderdate": "datetime64[D]",
        "o_orderpriority": "text",
        "o_clerk": "text",
        "o_shippriority": "int64",
        "o_comment": "text",
    },
    "customer": {
        "c_custkey": "int64",
        "c_name": "text",
        "c_address": "text",
        "c_nationkey": "int64",
        "c_phone": "text",
        "c_acctbal": "float64",
        "c_mktsegment": "text",
        "c_comment": "text",
    },
}
"""Types of the columns by table, in the order of the files."""


def generate(folder: Path, scale: float, tables: Collection[str] = tuple(SCHEMAS)) -> Path:
    """Make tables as CSV files, `NAME.csv` with a header, unless they are there; return their folder.

    Raises:
        PeerSkipped: `tpchgen-cli` is not installed.
    """
    if not all((folder / f"{name}.csv").exists() for name in tables):
        program = shutil.which("tpchgen-cli") or _installed_program()
        folder.mkdir(parents=True, exist_ok=True)
        command = [program, "csv", "-s", str(scale), f"--output-dir={folder}", "--tables", ",".join(tables)]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return folder


def _installed_program() -> str:
    try:
        files = importlib.metadata.files("tpchgen-cli") or []
    except importlib.metadata.PackageNotFoundError:
        files = []
    for file in files:
        path = Path(str(file.locate()))
        if path.name == "tpchgen-cli" and os.access(path, os.X_OK):
            return str(path)
    raise PeerSkipped("tpchgen-cli is not installed (pip install tpchgen-cli)")
