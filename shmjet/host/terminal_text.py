"""Text for terminals: what names, errors and logs of others hold must not steer the terminal that shows it.

A job may be named by anyone who may run one, and an error quotes what a function of a user raised. Control characters
in them move the cursor, rename the window or answer in the user's name; marks of direction show words in another order.
Both are shown as Python writes them in a string, `\\x1b` for example. So is half of a surrogate pair, which no terminal
can be sent.
"""

from __future__ import annotations

import re

_UNSAFE = "\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069"
_IN_LINES = re.compile(f"[{_UNSAFE}]")
_IN_ONE_LINE = re.compile(f"[\t\n{_UNSAFE}]")


def clean(text: str) -> str:
    """Return a text of one or more lines that a terminal can be given; line feeds and tabs stay.

    Example:
        >>> print(clean("red \\x1b[31m"))
        red \\x1b[31m
    """
    return _IN_LINES.sub(_shown, text)


def clean_line(text: str) -> str:
    """Return a text that stays in its line, a name for example.

    Example:
        >>> print(clean_line("two\\nlines"))
        two\\nlines
    """
    return _IN_ONE_LINE.sub(_shown, text)


def _shown(found: re.Match[str]) -> str:
    return found[0].encode("unicode_escape").decode("ascii")
