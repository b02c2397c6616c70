"""`shmjet console`: shows the running instances of this user in the browser until it is interrupted."""

from __future__ import annotations

import errno
from collections.abc import Sequence
from pathlib import Path

from shmjet.cli.cluster_access import remote_monitor
from shmjet.cli.outcome import CommandError, Outcome
from shmjet.cluster.folder import running_folders


def console(
    *,
    host: str,
    port: int,
    token_file: Path | None,
    private: bool,
    allow_hosts: Sequence[str],
    pid: int | None,
    address: str | None = None,
    config: Path | None = None,
) -> int:
    """Serve until Ctrl-C.

    Args:
        host: address to listen on.
        port: 0 for any that is free.
        token_file: holds the token for changes; made when it is missing.
        private: reading needs the token too.
        allow_hosts: further names that the console answers to.
        pid: of a member, of the process that started it, or of one of its workers; None for all members.
        address: of a cluster's members; None: the members of this host.
        config: settings for that.

    Raises:
        CommandError: it cannot listen there, or the extra is not installed.
        ConfigError: it may not listen there without a token, or the token file is wrong.
    """
    try:
        import prometheus_client  # noqa: F401
        import starlette  # noqa: F401
        import uvicorn  # noqa: F401
    except ModuleNotFoundError as error:
        raise CommandError(f"the console needs {error.name}: pip install prometheus-client starlette uvicorn") from None
    from shmjet.console.access import make_access, read_token
    from shmjet.console.member_finder import Found, local_members, remote_members
    from shmjet.console.server import ConsoleServer

    try:
        token = read_token(token_file) if token_file is not None else None
    except OSError as error:
        raise CommandError(f"cannot read {token_file}: {error.strerror}") from None
    access = make_access(host, token=token, private=private, allow=tuple(allow_hosts))

    def announce() -> None:
        _announce(server.url, token_file, access.private)

    cluster = None if address is None and config is None else remote_monitor(address, config)

    def find() -> Found:
        return local_members(running_folders()) if cluster is None else remote_members(cluster)

    try:
        server = ConsoleServer(find, access, host, port, pid=pid, on_up=announce)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise CommandError(f"port {port} is in use; choose another with --port (0: any that is free)") from None
        raise CommandError(f"cannot listen on {host}: {error.strerror}") from None
    try:
        server.run()
    finally:
        if cluster is not None:
            cluster.close()
    return Outcome.OK


def _announce(url: str, token_file: Path | None, private: bool) -> None:
    print(f"shmjet console: {url}", flush=True)
    if token_file is None:
        print("It only shows; with --token-file FILE it can cancel and suspend jobs too.", flush=True)
    elif private:
        print(f"It asks for the token in {token_file}.", flush=True)
    else:
        print(f"For changes it asks for the token in {token_file}.", flush=True)
