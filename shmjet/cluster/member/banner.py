"""The lines that a member prints when it is up: its addresses, and the access that each of them gives."""

from __future__ import annotations

from pathlib import Path

from shmjet.cluster.settings import SOCKET_NAME, MemberSettings


def banner(settings: MemberSettings, folder: Path, uuid: str, address: str) -> list[str]:
    """Return the lines.

    Args:
        settings: of the member; no secret is among them.
        folder: of the instance.
        uuid: the member's identity.
        address: where others reach it, "local" without a network.
    """
    lines = [
        f"shmjet member {uuid[:8]} of cluster {settings.cluster_name!r}: {len(settings.cores)} workers",
        f"  listens on {folder / SOCKET_NAME} (this user and root only)",
    ]
    if settings.bind is None:
        lines.append("  opens no port: it has no network")
        return lines
    if settings.tls is None:
        cover = "in the clear: who can read the network can read what jobs send over it"
    elif settings.tls.get("mutual"):
        cover = "TLS, and others have to show a certificate"
    else:
        cover = "TLS"
    lines.append(f"  listens on tcp {settings.bind}, and is reached at {address}; {cover}")
    if settings.tells_members_apart:
        lines.append("  open to clients that prove the secret, and to members that prove the member secret as well")
    else:
        lines.append("  open only to members and clients that prove that they know the secret")
    named = ", ".join(sorted(settings.jobs)) or "none"
    if settings.allow_code:
        lines.append("  clients may run any code here")
    else:
        lines.append(f"  clients may bring no code (allow_code is off); jobs of its own configuration: {named}")
    return lines
