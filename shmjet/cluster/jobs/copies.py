"""Which members keep copies of the chunk files of a snapshot. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple


class Keeper(NamedTuple):
    """A member, as far as copies are concerned: its identity, and the host that it shares with others."""

    uuid: str
    host: str


def holders_of(files: Iterable[str], held: Mapping[str, Collection[str]]) -> dict[str, list[str]]:
    """Return by file which members have it.

    Args:
        files: all that are asked for.
        held: by member, the files that it has.

    Example:
        >>> holders_of(["f", "g"], {"a": ["f"], "b": ["f", "h"]})
        {'f': ['a', 'b'], 'g': []}
    """
    return {file: [member for member, theirs in held.items() if file in theirs] for file in files}


def copies_wanted(
    holders: Mapping[str, Sequence[str]], members: Sequence[Keeper], backups: int
) -> dict[str, dict[str, list[str]]]:
    """Return which files each member has to fetch, with their holders, so that each has so many copies.

    Hosts that have none come first, then the members that follow the first holder, so that a file's copies stay where
    they are while the members stay the same.

    Args:
        holders: by file, its holders, its maker first. Holders that are not members do not count.
        members: all of them, in an order that all know.
        backups: how many copies a file has in addition to the first, as far as there are members.

    Example:
        >>> copies_wanted({"f": ["a"]}, [Keeper("a", "x"), Keeper("b", "x"), Keeper("c", "y")], 1)
        {'c': {'f': ['a']}}
    """
    places = {member.uuid: place for place, member in enumerate(members)}
    wanted: dict[str, dict[str, list[str]]] = {}
    for file, theirs in sorted(holders.items()):
        have = [uuid for uuid in theirs if uuid in places]
        if not have:
            continue
        first = places[have[0]]
        hosts = {members[places[uuid]].host for uuid in have}
        others = [member for member in (*members[first:], *members[:first]) if member.uuid not in have]
        for _ in range(min(backups + 1 - len(have), len(others))):
            chosen = next((member for member in others if member.host not in hosts), others[0])
            others.remove(chosen)
            hosts.add(chosen.host)
            wanted.setdefault(chosen.uuid, {})[file] = list(have)
    return wanted
