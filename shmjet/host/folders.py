"""Removing a folder with all that is in it.

`shutil` loads compressors and archive formats, which takes longer than most modules here. Every member loads
modules that remove folders, and few members remove one before they are up.
"""

from __future__ import annotations

from pathlib import Path


def remove_folder(folder: Path) -> None:
    """Remove a folder with all that is in it, as far as that is possible; it need not be there."""
    import shutil

    shutil.rmtree(folder, ignore_errors=True)
