"""Text that can be sent: names of files, and what users put into errors and logs, may hold half a surrogate pair.

Python reads a byte of a file's name that is not UTF-8 as such a half (`os.fsdecode`). UTF-8 has none, so no message
could carry it.
"""

from __future__ import annotations


def sendable(text: str) -> str:
    """Return a text with each half of a surrogate pair as Python writes it in a string.

    Example:
        >>> print(sendable("caf\\udce9"))
        caf\\udce9
    """
    return text if is_sendable(text) else text.encode("utf-8", "backslashreplace").decode()


def is_sendable(text: str) -> bool:
    """Say whether UTF-8 has all characters of a text.

    Example:
        >>> is_sendable("café"), is_sendable("caf\\udce9")
        (True, False)
    """
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
