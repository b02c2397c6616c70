"""Links of the pages lead somewhere, and pages name what they have to."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

from shmjet import core, processors
from shmjet.cli.app import app

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
PAGES = [*ROOT.glob("*.md"), *(page for page in DOCS.rglob("*.md") if "_build" not in page.parts)]


def anchor_of(heading: str) -> str:
    """Return the anchor that a heading has on the code host and in Sphinx' output."""
    return re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")


def rows_of(page: Path, columns: int) -> list[list[str]]:
    """Return the cells of all rows of tables with so many columns."""
    lines = [line for line in page.read_text().splitlines() if line.startswith("|")]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return [row for row in rows if len(row) == columns]


def test_links_lead_somewhere() -> None:
    assert {str(page.relative_to(ROOT)): lost for page in PAGES if (lost := lost_links(page))} == {}


def lost_links(page: Path) -> list[str]:
    """Return the links of a page to files or headings that are not there."""
    lost = []
    text = re.sub(r"```.*?```", "", page.read_text(), flags=re.S)
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        found = page.parent / path if path else page
        if not found.exists() or (anchor and anchor not in anchors(found)):
            lost.append(target)
    return lost


@cache
def anchors(page: Path) -> set[str]:
    """Return those of the headings of a page."""
    return set(map(anchor_of, re.findall(r"^#+ (.*)$", page.read_text(), re.M)))


def test_every_page_is_in_a_table_of_contents() -> None:
    listed = {DOCS / "index.md"}
    for page in DOCS.rglob("*.md"):
        for body in re.findall(r"```\{toctree\}\n(.*?)```", page.read_text(), re.S):
            for line in body.splitlines():
                if line and not line.startswith(":"):
                    listed |= set(page.parent.glob(f"{line}.md"))
    assert {page for page in PAGES if DOCS in page.parents} - listed == set()


def test_the_figures_of_the_readme_are_those_of_the_benches() -> None:
    """They are rounded, and benches differ from machine to machine; what is held is that no reader is misled."""
    measured = {(cells[0], cells[3]): cells[5] for cells in rows_of(ROOT / "bench" / "RESULTS.md", 6)}
    figures = [cells for cells in rows_of(ROOT / "README.md", 4) if cells[3].replace(".", "").isdigit()]
    assert len(figures) > 10
    bench = ""
    for _, named, peer, ratio in figures:
        bench = named.strip("`") or bench
        found = float(measured[bench, peer.split("`")[1]])
        assert found / 2 < float(ratio) < found * 2, (bench, peer)


def test_the_page_on_columns_names_all_processors_on_batches() -> None:
    text = (DOCS / "columns.md").read_text() + (DOCS / "columns-files.md").read_text()
    on_batches = [name for name in processors.__all__ if re.search("batch|npy|npz|group_by|to_rows", name)]
    assert len(on_batches) > 7
    for name in (*on_batches, "Batch", "Text", "column", "columns"):
        assert f"{name}(" in text or f"`{name}`" in text, name


def test_the_page_on_errors_names_all_of_them() -> None:
    text = (DOCS / "errors.md").read_text()
    errors = [name for name in core.__all__ if name.endswith("Error")]
    assert len(errors) > 10
    assert [name for name in errors if f"`{name}`" not in text] == []


def test_the_page_on_the_command_line_names_all_commands() -> None:
    text = (DOCS / "command-line.md").read_text()
    commands = [name for name, command in app.commands.items() if not command.hidden]
    assert len(commands) > 3
    assert [name for name in commands if f"`shmjet {name}" not in text] == []
