"""Each module that unpickles is in the table of `docs/design/0018-access.md`, with the reason why that is safe."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import shmjet

PACKAGE = Path(shmjet.__file__).parent
PAGE = PACKAGE.parent / "docs" / "design" / "0018-access.md"
UNPICKLERS = {"loads", "load", "Unpickler"}
OTHERS = {"json", "tomllib"}
"""Modules whose `loads` makes no objects of classes."""


def unpickles(tree: ast.AST) -> bool:
    """Say whether code calls, subclasses or defines what unpickles."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and node.name == "loads":
            return True
        names = [node.func] if isinstance(node, ast.Call) else node.bases if isinstance(node, ast.ClassDef) else []
        for name in names:
            if isinstance(name, ast.Name) and name.id in UNPICKLERS - {"load"}:
                return True
            if isinstance(name, ast.Attribute) and name.attr in UNPICKLERS:
                owner = name.value.id if isinstance(name.value, ast.Name) else ""
                if owner not in OTHERS and (name.attr != "load" or "pickle" in owner):
                    return True
    return False


def test_the_page_names_every_module_that_unpickles() -> None:
    rows = [line.split("|")[1] for line in PAGE.read_text().splitlines() if line.startswith("| `shmjet/")]
    listed = {name for row in rows for name in re.findall(r"`(shmjet/[\w/]+\.py)`", row)}
    found = {
        str(path.relative_to(PACKAGE.parent))
        for path in PACKAGE.rglob("*.py")
        if re.search("load|Unpickler", text := path.read_text()) and unpickles(ast.parse(text))
    }
    assert found == listed


def test_what_unpickles_is_found() -> None:
    for code in (
        "pickle.loads(x)",
        "loads(x)",
        "cloudpickle.load(x)",
        "class A(pickle.Unpickler): ...",
        "p.Unpickler(x)",
    ):
        assert unpickles(ast.parse(code)), code
    for code in ("json.loads(x)", "tomllib.load(x)", "point.load()", "dumps(x)", "load(x)"):
        assert not unpickles(ast.parse(code)), code
