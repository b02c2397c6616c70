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
EQUALS = {"marshal", "shelve", "dill"}
"""Modules that unpickle, or do what is as bad."""


def unpickles(tree: ast.AST) -> bool:
    """Say whether code names what unpickles, be it to call it, to pass it on, to import or to define it."""
    return any(_names_it(node) for node in ast.walk(tree))


def _names_it(node: ast.AST) -> bool:
    match node:
        case ast.FunctionDef(name="loads"):
            return True
        case ast.ImportFrom(module=str(module)):
            unpicklers = {alias.name for alias in node.names} & UNPICKLERS
            return bool(unpicklers) and ("pickl" in module or module in EQUALS)
        case ast.Import():
            return any(alias.name.partition(".")[0] in EQUALS for alias in node.names)
        case ast.Name(id="loads" | "Unpickler"):
            return True
        case ast.Attribute(attr=name, value=owner) if name in UNPICKLERS:
            text = ast.unparse(owner)
            return text not in OTHERS and (name != "load" or "pickle" in text)
        case ast.keyword(arg="allow_pickle", value=ast.Constant(value=False)):
            return False
        case ast.keyword(arg="allow_pickle") | ast.Attribute(attr="read_pickle"):
            return True
    return False


def test_the_page_names_every_module_that_unpickles() -> None:
    rows = [line.split("|")[1] for line in PAGE.read_text().splitlines() if line.startswith("| `shmjet/")]
    listed = {name for row in rows for name in re.findall(r"`(shmjet/[\w/]+\.py)`", row)}
    found = {
        str(path.relative_to(PACKAGE.parent))
        for path in PACKAGE.rglob("*.py")
        if re.search("load|[Pp]ickle|marshal|shelve|dill", text := path.read_text()) and unpickles(ast.parse(text))
    }
    assert found == listed


def test_what_unpickles_is_found() -> None:
    for code in (
        "pickle.loads(x)",
        "loads(x)",
        "cloudpickle.load(x)",
        "class A(pickle.Unpickler): ...",
        "p.Unpickler(x)",
        "from pickle import loads as read",
        "from shmjet.ring.pickling import loads",
        "partial(pickle.loads, x)",
        "decode = pickling.loads",
        "kinds.append(loads)",
        "np.load(x, allow_pickle=True)",
        "np.load(x, allow_pickle=kind)",
        "pandas.read_pickle(x)",
        "import marshal",
        "self.pickle.load(x)",
    ):
        assert unpickles(ast.parse(code)), code
    for code in (
        "json.loads(x)",
        "tomllib.load(x)",
        "point.load()",
        "dumps(x)",
        "load(x)",
        "np.load(x, allow_pickle=False)",
    ):
        assert not unpickles(ast.parse(code)), code
