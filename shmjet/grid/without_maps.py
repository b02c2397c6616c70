"""The maps and lists of a member with a storage, which holds no maps in this version."""

from __future__ import annotations

from typing import Any

from shmjet.data.errors import ConfigError
from shmjet.grid.imap import IMap
from shmjet.grid.store import Grid


class GridWithoutMaps(Grid):
    """Lists, and a refusal of maps: they would end with the member, though other state does not."""

    def get_map(self, name: str) -> IMap[Any, Any]:
        """Refuse.

        Raises:
            ConfigError: always.
        """
        raise ConfigError(
            f"map {name!r} cannot be used: JetConfig.storage is set, and it holds no maps in this version"
        )
