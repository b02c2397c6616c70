"""The guide for people who know Spark: its code runs, as it stands, in order."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

import shmjet.spark
from shmjet import JetInstance, Pipeline, aggregate_ops, sinks, sources

ROOT = Path(__file__).resolve().parents[2]
BLOCKS = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "spark.md").read_text(), re.S)


@pytest.mark.slow
def test_the_code_of_the_guide_runs(
    spark: Any, jet: JetInstance, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    names: dict[str, Any] = {"spark": spark, "jet": jet, "folder": str(tmp_path), "__name__": "guide"}
    for block in BLOCKS:
        exec(compile(block, "docs/spark.md", "exec"), names)
    shmjet.spark.free_dataframes()
    shown = capsys.readouterr().out
    assert "a shuffle of blocks by key" in shown
    assert "[Row(pieces=8)]" in shown
    totals = {row.customer: row.paid for row in spark.read.parquet(str(tmp_path / "totals")).collect()}
    expected: dict[str, float] = {}
    for n in range(100_000):
        if n % 17 * 1.5 > 3:
            expected[f"customer-{n % 100}"] = expected.get(f"customer-{n % 100}", 0) + n % 17 * 1.5
    assert totals == expected


def test_a_pipeline_explains_itself_for_spark_without_spark() -> None:
    p = Pipeline()
    words = p.read_from(sources.files("/*.txt")).set_name("lines").flat_map(str.split).set_name("words")
    words.grouping_key(lambda word: word).aggregate(aggregate_ops.counting()).sort().write_to(sinks.list("out"))
    words.write_to(sinks.noop())
    text = p.explain(target="spark")
    assert text.startswith("list(out): collect, then the driver\n")
    assert "sort: sample, range partitions, merge, mapPartitions" in text
    assert "sort-local: mapPartitions  → a shuffle of sorted blocks by ranges" in text
    assert "aggregate_by_key-combine: partitionBy, mapPartitions" in text
    assert "several stages read it: cached, and not computed again" in text
    assert "lines: mapPartitions over shares" in text
    assert "words: mapPartitions  → in the same task  (see above)" in text
    with pytest.raises(ValueError, match='target must be "engine" or "spark"'):
        p.explain(target="flink")  # type: ignore[arg-type]
