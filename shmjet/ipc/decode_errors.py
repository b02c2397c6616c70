"""What msgspec raises for bytes that are not what they should be."""

from __future__ import annotations

from typing import Final

import msgspec

UNREADABLE: Final = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
"""No msgpack, or of another type; text that is not UTF-8; containers within containers without end."""
