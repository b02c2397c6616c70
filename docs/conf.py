"""Sphinx' settings: `make docs` builds the pages without network, and a warning is an error."""

from __future__ import annotations

import importlib.util
import re
import sys
from pathlib import Path

from sphinx.application import Sphinx

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

import shmjet  # noqa: E402  # the checkout's, not an installed one

project = "shmjet"
author = "the authors of shmjet"
copyright = "the authors of shmjet"  # noqa: A001
version = release = shmjet.__version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx_copybutton", "sphinxcontrib.mermaid"]
exclude_patterns = ["_build"]
nitpicky = False
default_role = "code"

# Headings are link targets, as they are on the code host.
myst_heading_anchors = 3
myst_fence_as_directive = ["mermaid"]

# Prompts and results are left out when a block is copied.
copybutton_prompt_text = r">>> |\.\.\. "
copybutton_prompt_is_regexp = True

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
EXTRAS = ("joblib", "prometheus_client", "starlette", "uvicorn")
autodoc_mock_imports = [name for name in EXTRAS if importlib.util.find_spec(name) is None]
napoleon_numpy_docstring = False
napoleon_use_rtype = False
python_maximum_signature_line_length = 88
add_module_names = False

html_theme = "furo"
html_title = f"shmjet {release}"
html_copy_source = False
html_show_sphinx = False
html_theme_options = {"source_repository": "", "navigation_with_keys": True}

MADE_BY_SHMJET = {
    *("JetInstance", "Cluster", "Member", "Job", "Execution", "Metrics", "IMap", "IList", "Outbox", "FlatMapper"),
    *(
        "BatchStage",
        "KeyedBatchStage",
        "StreamStage",
        "StreamSourceStage",
        "KeyedStreamStage",
        "StageWithWindow",
        "KeyedStageWithWindow",
        "SinkStage",
        "HashJoinBuilder",
        "AggregateBuilder",
        "SourceBuilder",
    ),
    *(
        "SinkBuilder",
        "Console",
        "VertexMetrics",
        "ProcessorMetrics",
        "EdgeMetrics",
        "WorkerMetrics",
        "ProcessorCheck",
        "Tag",
    ),
    *("ItemsByTag", "OperationBuilder", "Results"),
}
"""Classes whose constructors users do not call."""

COLON = "\ue000"
"""Stands for a colon while napoleon reads."""

FOR_THE_ENGINE = re.compile(r"[;:,.] ?for the (engine|instance)\b|^For the engine|; what `\w+\.\w+` calls", re.I | re.M)


def _for_napoleon(app: object, what: str, name: str, obj: object, options: object, lines: list[str]) -> None:
    """Bring a docstring into the form that napoleon reads, before it does.

    An attribute's text would be taken for `type: text` where it has a colon, which is hidden therefore. And of errors
    on one line, as in "TypeError: this. ValueError: that.", each needs a line of its own.
    """
    if what in ("attribute", "data", "property") and lines:
        lines[0] = lines[0].replace(":", COLON)
    for place in reversed(range(len(lines))):
        parts = re.split(r"(?<=\.) (?=\w+(?:Error|, \w+Error): )", lines[place])
        if len(parts) > 1:
            indent = lines[place][: len(lines[place]) - len(lines[place].lstrip())]
            lines[place : place + 1] = [parts[0], *(indent + part for part in parts[1:])]


def _after_napoleon(app: object, what: str, name: str, obj: object, options: object, lines: list[str]) -> None:
    lines[:] = [line.replace(COLON, ":") for line in lines]


def _without_constructor(app: object, what: str, name: str, *rest: object) -> tuple[str, str] | None:
    return ("", "") if what == "class" and name.rpartition(".")[2] in MADE_BY_SHMJET else None


def _is_internal(app: object, what: str, name: str, obj: object, skip: bool, options: object) -> bool | None:
    """Leave out members that say that they are for the engine; None leaves the choice to Sphinx."""
    text = getattr(obj, "__doc__", None)
    return True if what == "class" and isinstance(text, str) and FOR_THE_ENGINE.search(text) else None


def setup(app: Sphinx) -> None:
    """Called by Sphinx."""
    app.connect("autodoc-process-docstring", _for_napoleon, priority=400)
    app.connect("autodoc-process-docstring", _after_napoleon, priority=600)
    app.connect("autodoc-process-signature", _without_constructor)
    app.connect("autodoc-skip-member", _is_internal)
