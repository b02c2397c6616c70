"""`shmjet secret` and `shmjet wire-dump`: what members prove to each other, and what they say."""

from __future__ import annotations

from pathlib import Path

from shmjet.cli.outcome import CommandError, Outcome
from shmjet.core.secret import new_secret, write_secret
from shmjet.data.errors import ConfigError
from shmjet.host.terminal_text import clean_line
from shmjet.net.capture_dump import dump_capture
from shmjet.net.captures import is_capture
from shmjet.net.wire_dump import dump


def make_secret(output: Path | None) -> int:
    """Print a new secret, or write it to a file that only its owner may read."""
    if output is None:
        print(new_secret())
        return Outcome.OK
    try:
        write_secret(output)
    except ConfigError as error:
        raise CommandError(str(error)) from error
    return Outcome.OK


def dump_wire(capture: str) -> int:
    """Print what a capture holds; a reader that goes away (`| head`) is none of our business."""
    try:
        with open(0 if capture == "-" else capture, "rb", closefd=capture != "-") as file:
            for line in dump_capture(file) if is_capture(file.peek(4)) else dump(file):
                print(clean_line(line))
    except OSError as error:
        if isinstance(error, BrokenPipeError):
            raise
        raise CommandError(f"cannot read {capture!r}: {error.strerror}") from error
    return Outcome.OK
