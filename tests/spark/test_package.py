"""What importing the package costs, and says where something is missing."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytest.importorskip("pyspark")

from shmjet import ShmjetError
from shmjet.spark import task_links
from shmjet.spark.error_summary import told_by_spark
from shmjet.spark.links import Destination


def run(program: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)


def test_neither_shmjet_nor_what_workers_load_imports_pyspark() -> None:
    found = run(
        "import sys, shmjet, shmjet.sources, shmjet.spark.feed_processor, shmjet.spark.feed, shmjet.spark.task\n"
        "print([name for name in sys.modules if name.partition('.')[0] in ('pyspark', 'py4j', 'pandas', 'pyarrow')])"
    )
    assert (found.stdout.strip(), found.stderr) == ("[]", "")


def test_without_pyspark_one_line_says_what_to_install() -> None:
    hidden = (
        "import importlib.util as u; find = u.find_spec\n"
        "u.find_spec = lambda name, *rest: None if name == 'pyspark' else find(name, *rest)\n"
    )
    found = run(hidden + "import shmjet.spark")
    says = "ModuleNotFoundError: shmjet.spark needs PySpark and Java 17 or later: pip install pyspark"
    assert found.stderr.splitlines()[-1].startswith(says)
    assert run(hidden + "import shmjet, shmjet.sources, shmjet.sinks").returncode == 0


def test_an_executor_on_another_host_is_told_so() -> None:
    elsewhere = Destination("/nowhere", 1, "feed", 1, 0, False, ("another boot", "far.example"))
    with pytest.raises(
        ShmjetError, match=r"the shmjet job on 'far\.example': a feed reaches executors on the job's own"
    ):
        task_links.link_to(elsewhere, 0)


@pytest.mark.parametrize(
    ("text", "summary", "details"),
    [
        ("no such table\n\tat org.apache.spark.Foo(Foo.scala:7)\n", "Spark: no such table", ""),
        ("one\ntwo\n", "Spark: one", "two"),
        (
            'Job aborted: Traceback (most recent call last):\n  File "/x/pyspark/worker.py", line 1, in main\n    f()\n'
            '  File "mine.py", line 3, in f\n    1 / 0\nZeroDivisionError: division by zero\n\n\tat x.y.Z(Z.java)\n'
            "Driver stacktrace:\n\tat foo",
            "Spark: in a Python worker: ZeroDivisionError: division by zero",
            'File "mine.py", line 3, in f',
        ),
        (
            'Failed: Traceback (most recent call last):\n  File "/s/pyspark.zip/pyspark/worker.py", line 1, in main\n'
            '    f()\n  File "/other/lib/shmjet/spark/task.py", line 9, in g\n    f()\n'
            '  File "/home/me/shmjet/spark/mine.py", line 3, in f\n    h()\n'
            '  File "/home/me/pyspark/jobs.py", line 4, in h\n    1 / 0\nZeroDivisionError: division by zero\n',
            "Spark: in a Python worker: ZeroDivisionError: division by zero",
            'File "/home/me/shmjet/spark/mine.py", line 3, in f\nFile "/home/me/pyspark/jobs.py", line 4, in h',
        ),
        ("", "Spark: ValueError()", ""),
    ],
)
def test_what_spark_says_is_made_short(text: str, summary: str, details: str) -> None:
    assert told_by_spark(ValueError(text) if text else ValueError()) == (summary, details)
