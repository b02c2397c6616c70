"""`shmjet dag`: draws the DAG of a script as SVG or DOT."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from shmjet.cli.capture import dag_of_script
from shmjet.cli.outcome import CommandError, Outcome

FORMATS = (".svg", ".dot")


def draw(script: Path, arguments: Sequence[str], output: Path | None) -> int:
    """Run the script up to its first job and write that job's DAG.

    Args:
        script: the script; `arguments` become its `sys.argv[1:]`.
        output: ends in `.svg` or `.dot`; None prints DOT.
    """
    if output is not None and output.suffix not in FORMATS:
        raise CommandError(f"{output}: the name must end in {' or '.join(FORMATS)}")
    dag = dag_of_script(script, arguments)
    text = dag.to_svg() if output is not None and output.suffix == ".svg" else dag.to_dot()
    if output is None:
        sys.stdout.write(text if text.endswith("\n") else text + "\n")
        return Outcome.OK
    try:
        output.write_text(text, encoding="utf-8")
    except OSError as error:
        raise CommandError(f"cannot write {output}: {error.strerror}") from None
    return Outcome.OK
