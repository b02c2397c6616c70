"""The demo: flights through Spark, the engine and Spark, on a small table."""

from __future__ import annotations

import random
import runpy
from pathlib import Path
from typing import Any

import pytest

from shmjet import JetConfig

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.slow
def test_the_engine_and_spark_learn_the_same_models(spark: Any, tmp_path: Path) -> None:
    rng = random.Random(13)
    lines = ["carrier,dep_delay,arr_delay,distance"]
    for n in range(600):
        late = rng.randint(-10, 90)
        lines.append(f"{'AA' if n % 3 else 'UA'},{late},{2 * late - 7},{rng.choice([50, 500, 1000])}")
    lines.append("AA,NA,NA,500")
    table = tmp_path / "flights.csv"
    table.write_text("\n".join(lines) + "\n")
    demo = runpy.run_path(str(ROOT / "examples" / "spark_flights.py"))
    engine, underneath = demo["main"](spark, table, tmp_path, JetConfig(cores=2))
    assert demo["same"](engine, underneath)
    near = sum(line.startswith("AA") and line.endswith(("500", "1000")) for line in lines[:-1])
    assert engine[0][:2] == ("AA", near)
    for _, _, made_up, per_minute, explained in engine:
        assert (made_up, per_minute, explained) == pytest.approx((7, 2, 1))
