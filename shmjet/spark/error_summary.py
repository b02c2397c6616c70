"""What Spark says when it fails, shortened to what its user can use: no stacks of the JVM, no frames of PySpark's."""

from __future__ import annotations

import os
from functools import cache
from importlib.util import find_spec

_DETAILS = 1800
"""Characters of Spark's own text that follow the summary."""
_TRACEBACK = "Traceback (most recent call last):"
_PACKAGES = ("pyspark", "shmjet")


def told_by_spark(error: BaseException) -> tuple[str, str]:
    """Return a summary of a few lines, and the rest of what Spark says, "" if that is all.

    Example:
        >>> told_by_spark(ValueError("no such table\\n\\tat org.apache.spark.Foo(Foo.scala:7)"))
        ('Spark: no such table', '')
    """
    text = _text(error).split("Driver stacktrace:")[0]
    lines = [line for line in text.splitlines() if line.strip() and not line.lstrip().startswith(("at ", "..."))]
    if not lines:
        return f"Spark: {type(error).__name__}", ""
    if _TRACEBACK not in text:
        return f"Spark: {lines[0].strip()}", "\n".join(lines[1:])[:_DETAILS]
    begin = max(place for place, line in enumerate(lines) if _TRACEBACK in line)
    block = lines[begin + 1 :]
    stop = next((place for place, line in enumerate(block) if not line.startswith(" ")), len(block) - 1)
    where = [line.strip() for line in block[:stop] if line.lstrip().startswith("File ")]
    own = [line for line in where if not _is_of_a_package(line.split('"')[1])]
    summary = f"Spark: in a Python worker: {' '.join(line.strip() for line in block[stop : stop + 2])}"
    return summary, "\n".join(own)[-_DETAILS:]


def _is_of_a_package(file: str) -> bool:
    """Tell whether a file that a traceback names is PySpark's or the engine's, on whatever host and in whatever folder.

    Spark's workers may have both elsewhere, in a zip file too; so what counts is the place inside the package. A user's
    folder may have the package's name: the file is the user's as long as the package has none there.
    """
    parts = file.split("/")
    return any(
        _has(name, "/".join(parts[place + 1 :]))
        for name in _PACKAGES
        for place, part in enumerate(parts[:-1])
        if part == name
    )


@cache
def _has(package: str, inner: str) -> bool:
    spec = find_spec(package)
    folders = [] if spec is None else spec.submodule_search_locations or []
    return any(os.path.isfile(os.path.join(folder, inner)) for folder in folders)


def _text(error: BaseException) -> str:
    java = getattr(error, "java_exception", None)
    if java is not None:
        try:
            return str(java.getMessage() or java.toString())
        except Exception:  # the JVM is gone
            return str(error)
    return str(error) or repr(error)
