"""Sphinx' settings: `make docs` builds the pages without network, and a warning is an error."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

import shmjet  # noqa: E402  # the checkout's, not one that is installed elsewhere

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
autodoc_mock_imports = [name for name in ("joblib",) if importlib.util.find_spec(name) is None]
napoleon_numpy_docstring = False
napoleon_use_rtype = False
python_maximum_signature_line_length = 88
add_module_names = False

html_theme = "furo"
html_title = f"shmjet {release}"
html_copy_source = False
html_show_sphinx = False
html_theme_options = {"source_repository": "", "navigation_with_keys": True}
