"""Writes down what members and clients send one another, so that a change which another version cannot read is seen.

`python -m tests.cluster.wire_messages` adds to `wire_messages.txt` what is new, and refuses what the last version could
not read. Where `shmjet.net.handshake.OLDEST` leaves that version behind, the file is deleted first.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, Final

import msgspec.inspect as inspection

from shmjet.cluster.jobs.run_records import RunRecord
from shmjet.cluster.membership.peer_messages import PeerMessage
from shmjet.cluster.protocol import Reply, Request
from shmjet.grid.change_log import Change
from shmjet.grid.operations import Operation
from shmjet.net.handshake import Challenge, Hello, Proof, Refused, Welcome

PAGE: Final = Path(__file__).with_name("wire_messages.txt")
ROOTS: Final = (PeerMessage, Request, Reply, Operation, Change, RunRecord, Hello, Challenge, Proof, Welcome, Refused)
"""What is decoded from bytes of another member or client, or from a file that another version may have written."""


def structures() -> dict[str, list[str]]:
    """Return the fields of every structure in these messages, in their order, by its room, name and tag.

    A field is its name and type; `?` behind them says that it may be missing.
    """
    found: dict[str, list[str]] = {}
    classes: dict[str, type] = {}
    waiting: list[Any] = list(inspection.multi_type_info(ROOTS))
    while waiting:
        kind = waiting.pop()
        if isinstance(kind, inspection.StructType):
            room = kind.cls.__module__.split(".")[1]
            name = f"{room} {kind.cls.__qualname__} {kind.tag or '-'} {'array' if kind.array_like else 'map'}"
            assert classes.setdefault(name, kind.cls) is kind.cls, f"two messages are called {name}"
            if name not in found:
                found[name] = [
                    f"{field.encode_name}: {_text(field.type)}{'' if field.required else '?'}" for field in kind.fields
                ]
                waiting += [field.type for field in kind.fields]
        else:
            waiting += _within(kind)
    return dict(sorted(found.items()))


def _within(kind: Any) -> list[Any]:
    """Return the types that a type is made of."""
    parts = [getattr(kind, name, None) for name in ("item_type", "key_type", "value_type")]
    return [part for part in parts if part is not None] + list(getattr(kind, "item_types", getattr(kind, "types", ())))


def _text(kind: Any) -> str:
    if isinstance(kind, inspection.StructType):
        return kind.cls.__qualname__
    if isinstance(kind, inspection.EnumType):
        return f"{kind.cls.__qualname__}({', '.join(repr(member.value) for member in kind.cls)})"
    name = type(kind).__name__.removesuffix("Type").lower()
    parts = ", ".join(map(_text, _within(kind)))
    return f"{name}[{parts}]" if parts else name


def page(found: dict[str, list[str]]) -> str:
    """Return the structures as a text, one after the other."""
    return "\n".join("\n".join([name, *(f"    {field}" for field in fields)]) for name, fields in found.items()) + "\n"


def written() -> dict[str, list[str]]:
    """Return the structures of the text; none where there is no text."""
    found: dict[str, list[str]] = {}
    if not PAGE.exists():
        return found
    fields: list[str] = []
    for line in PAGE.read_text().splitlines():
        if line.startswith(" "):
            fields.append(line.strip())
        else:
            fields = found[line] = []
    return found


def unreadable(before: dict[str, list[str]], now: dict[str, list[str]]) -> list[str]:
    """Return what one of two versions sends and the other cannot read: only fields that may be missing can be new."""
    found = []
    for name, fields in before.items():
        if name not in now:
            found.append(f"{name} is gone, and the last version sends it")
        elif now[name][: len(fields)] != fields:
            found.append(f"{name} had the fields {fields}, and has {now[name]}")
        elif needed := [field for field in now[name][len(fields) :] if not field.endswith("?")]:
            found.append(f"{name} needs {needed}, which the last version does not send")
    return found


def main() -> int:
    now = structures()
    if found := unreadable(written(), now):
        print("\n".join(found), file=sys.stderr)
        return 1
    PAGE.write_text(page(now))
    return 0


if __name__ == "__main__":
    sys.exit(main())
