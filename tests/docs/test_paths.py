"""The paths and modules that the pages name exist."""

from __future__ import annotations

import importlib
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted([*ROOT.glob("docs/*.md"), *ROOT.glob("docs/design/*.md")])
TOPS = "shmjet|tests|bench|stress|model|examples|docs"
ENTRY_POINTS = "shmjet.discovery"  # a group of entry points, no module


def named(page: Path, pattern: str) -> list[str]:
    """Return what a pattern finds in the code spans of a page; code blocks are left out."""
    text = re.sub(r"```.*?```", "", page.read_text(), flags=re.S)
    return [span for span in re.findall(r"`([^`\s]+)`", text) if re.fullmatch(pattern, span)]


def spelled_out(path: str) -> Iterator[str]:
    """Yield the paths that `a/{b,c}.md` stands for."""
    if (found := re.search(r"\{([^}]*)\}", path)) is None:
        yield path
    else:
        for word in found[1].split(","):
            yield from spelled_out(path.replace(found[0], word, 1))


def exists(name: str) -> bool:
    """Say whether a dotted name is a module or something in a module."""
    module, found = name, importlib.import_module("shmjet")
    rest: list[str] = []
    while module != "shmjet":
        try:
            found = importlib.import_module(module)
            break
        except ModuleNotFoundError as error:
            if error.name is None or not error.name.startswith("shmjet"):
                return True  # it needs a package that is not installed
            module, _, last = module.rpartition(".")
            rest.insert(0, last)
    for part in rest:
        if not hasattr(found, part):
            return False
        found = getattr(found, part)
    return True


def test_paths_exist() -> None:
    spans = [(page, span) for page in PAGES for span in named(page, rf"(?:{TOPS})/[\w./{{}},-]*")]
    paths = [(page, path) for page, span in spans for path in spelled_out(span)]
    assert [(page.stem, path) for page, path in paths if not (ROOT / path).exists()] == []


def test_files_named_without_a_folder_exist() -> None:
    known = [f"/{path.relative_to(ROOT)}" for top in TOPS.split("|") for path in (ROOT / top).rglob("*.*")]
    names = [(page, name) for page in PAGES for name in named(page, r"(?:[a-z_]+/)*[a-z_]+\.(?:py|c|h|pml)")]
    there = {name for name in {name for _, name in names} if any(path.endswith(f"/{name}") for path in known)}
    assert [(page.stem, name) for page, name in names if name not in there] == []


def test_modules_exist() -> None:
    names = [(page, name) for page in PAGES for name in named(page, r"shmjet(?:\.\w+)+")]
    assert [(page.stem, name) for page, name in names if name != ENTRY_POINTS and not exists(name)] == []


ARCHITECTURE = ROOT / "docs/ARCHITECTURE.md"
CODE = r"[A-Za-z]+_\w+"


def places() -> Iterator[tuple[str, list[str]]]:
    """Yield each name with an underscore that a row, an item or a paragraph of the map has next to files."""
    text = re.sub(r"```.*?```", "", ARCHITECTURE.read_text(), flags=re.S)
    for part in re.split(r"\n(?=\||\d+\. |- |\n)", text):
        spans = re.findall(r"`([^`\s]+)`", part)
        files = [span for span in spans if re.fullmatch(r"shmjet/[\w/]+\.(?:py|c|h)", span)]
        for span in spans:
            if files and re.fullmatch(CODE, span):
                yield span, files


def test_what_the_map_names_next_to_a_file_is_in_it() -> None:
    found = list(places())
    assert ("HEARTBEAT_S", ["shmjet/cluster/membership/failure_detector.py", "shmjet/net/heartbeat.py"]) in found
    assert [
        (name, files)
        for name, files in found
        if not any(re.search(rf"\b{name}\b", (ROOT / file).read_text()) for file in files)
    ] == []
