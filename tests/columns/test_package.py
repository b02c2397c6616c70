"""What `shmjet.columns` and `shmjet` offer, and what that costs to import."""

from __future__ import annotations

import subprocess
import sys

import pytest

import shmjet
import shmjet.columns


def test_the_module_is_the_key_of_several_columns_too() -> None:
    from shmjet import column, columns
    from shmjet.columns import sum_

    assert shmjet.columns is columns
    assert shmjet.columns("a", "b")({"a": 1, "b": 2}) == (1, 2)
    assert column("a").names == ("a",)
    assert repr(sum_("v")) == "sum_('v')"


def test_every_public_name_can_be_imported() -> None:
    for name in shmjet.columns.__all__:
        assert getattr(shmjet.columns, name) is not None
        assert name in dir(shmjet.columns)
    for name in ("Batch", "Text", "BatchError", "column", "columns"):
        assert name in shmjet.__all__
        assert getattr(shmjet, name) is not None
    assert shmjet.columns.Batch is shmjet.Batch
    assert shmjet.columns.Text is shmjet.Text
    assert shmjet.columns.column is shmjet.column


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'summ'"):
        shmjet.columns.summ  # type: ignore[attr-defined]


def test_describing_a_dag_of_columns_needs_no_numpy() -> None:
    script = (
        "import sys, shmjet\n"
        "from shmjet import DAG, between, column, columns, processors\n"
        "from shmjet.columns import count, first, last, max_, mean, min_, sum_, var\n"
        "dag = DAG()\n"
        "vertex = dag.new_vertex\n"
        "source = vertex('source', processors.read_items([1]))\n"
        "batches = vertex('batches', processors.to_batches(100, ['a', 'b']))\n"
        "mapped = vertex('mapped', processors.map_batches(lambda batch: batch))\n"
        "group = vertex('group', processors.group_by(columns('a', 'b')).agg(n=count(), total=sum_('v')))\n"
        "rows = vertex('rows', processors.to_rows())\n"
        "dag.edge(between(source, batches)).edge(between(batches, mapped))\n"
        "dag.edge(between(mapped, group).partitioned(column('a'))).edge(between(group, rows))\n"
        "dag.validate()\n"
        "print(sorted({'numpy', 'shmjet.data.batch', 'shmjet.data.text'} & set(sys.modules)))\n"
    )
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True)
    assert result.stdout == "[]\n"
