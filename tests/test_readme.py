"""What the README shows runs, and what it names exists."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from shmjet import processors

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text()
EXAMPLES = re.findall(r"```python\n(.*?)```", README, re.S)


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda text: text.splitlines()[-1].strip())
def test_an_example_runs(
    example: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "text").write_text("to be or not to be\n")
    monkeypatch.setenv("SHMJET_CORES", "2")
    exec(compile(example.replace("/usr/share/common-licenses", str(tmp_path)), "README.md", "exec"), {})
    said = capsys.readouterr().out
    assert "('to', 2)" in said or said.startswith("Batch(1,000 rows, 3 columns)")


def test_the_readme_has_a_job_on_items_and_one_on_columns() -> None:
    assert len(EXAMPLES) == 2


def test_links_lead_somewhere() -> None:
    for page in (ROOT / "README.md", *(ROOT / "docs").glob("*.md")):
        for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name}: {target}"


def test_the_page_on_columns_names_all_processors_on_batches() -> None:
    text = (ROOT / "docs" / "columns.md").read_text() + (ROOT / "docs" / "columns-files.md").read_text()
    on_batches = [name for name in processors.__all__ if re.search("batch|npy|npz|group_by|to_rows", name)]
    assert len(on_batches) > 7
    for name in (*on_batches, "Batch", "Text", "column", "columns"):
        assert f"{name}(" in text or f"`{name}`" in text, name
