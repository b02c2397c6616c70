"""Descriptions of aggregates."""

from __future__ import annotations

import pickle
import subprocess
import sys

import pytest

from shmjet.columns.aggregates import Aggregate, count, first, last, max_, mean, min_, sum_, var


@pytest.mark.parametrize(
    ("aggregate", "text"),
    [
        (sum_("v"), "sum_('v')"),
        (count(), "count()"),
        (count("v"), "count('v')"),
        (min_("v"), "min_('v')"),
        (max_("v"), "max_('v')"),
        (mean("v"), "mean('v')"),
        (first("v"), "first('v')"),
        (last("v"), "last('v')"),
        (var("v"), "var('v')"),
        (var("v", ddof=0), "var('v', ddof=0)"),
    ],
)
def test_an_aggregate_is_a_small_value(aggregate: Aggregate, text: str) -> None:
    assert repr(aggregate) == text
    assert eval(text) == aggregate
    copy = pickle.loads(pickle.dumps(aggregate))
    assert copy == aggregate
    assert hash(copy) == hash(aggregate)
    assert len(pickle.dumps(aggregate)) < 200


def test_wrong_arguments_are_refused() -> None:
    with pytest.raises(ValueError, match="sum needs the name of a column, a non-empty str, got None"):
        sum_(None)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="count needs the name of a column, a non-empty str, got ''"):
        count("")
    with pytest.raises(ValueError, match="ddof must be an int of at least 0, got -1"):
        var("v", ddof=-1)
    with pytest.raises(ValueError, match=r"an aggregate is one of sum, .*, got 'median'"):
        Aggregate("median", "v")  # type: ignore[arg-type]


def test_describing_aggregates_does_not_load_numpy() -> None:
    code = "import sys; import shmjet.columns.aggregates; sys.exit('numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
