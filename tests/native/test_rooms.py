"""The C sources: rooms stand on each other in one order, headers include no circle, lines end at 120 columns."""

from __future__ import annotations

import re
from pathlib import Path

from tests.native.programs import NATIVE

FLOORS = ["codec", "items", "ring", "link"]
"""From below; what lies in no room is either below all of them or, with `module.c`, above."""
INCLUDED = re.compile(r'^#include "(.+)"', re.MULTILINE)


def includes() -> dict[str, list[str]]:
    """What each file includes of the other files; all by their paths in `_native`."""
    files = [*NATIVE.rglob("*.c"), *NATIVE.rglob("*.h")]
    return {str(file.relative_to(NATIVE)): INCLUDED.findall(file.read_text()) for file in files}


def test_files_are_included_by_their_paths() -> None:
    found = includes()
    assert len(found) > 50
    assert [(file, name) for file, names in found.items() for name in names if name not in found] == []


def test_a_room_includes_only_rooms_below_it() -> None:
    allowed = {room: {room, "", *FLOORS[:floor]} for floor, room in enumerate(FLOORS)}
    allowed["columns"] = {"columns", "codec"}
    allowed["arrow"] = {"arrow"}
    allowed[""] = {""}

    def room(path: str) -> str:
        return path.rpartition("/")[0]

    wrong = [
        f"{file} includes {name}"
        for file, names in includes().items()
        for name in names
        if file != "module.c" and room(name) not in allowed[room(file)]
    ]
    assert wrong == []


def test_no_header_includes_itself_by_a_detour() -> None:
    left = includes()
    while done := [file for file, names in left.items() if not any(name in left for name in names)]:
        for file in done:
            del left[file]
    assert left == {}


def test_no_line_is_longer_than_120_columns() -> None:
    files = [file for place in (NATIVE, Path(__file__).parent) for file in place.rglob("*.[ch]")]
    long = [
        f"{file}:{number}"
        for file in files
        for number, line in enumerate(file.read_text().splitlines(), 1)
        if len(line) > 120
    ]
    assert long == [], "git clang-format breaks them as .clang-format says"
