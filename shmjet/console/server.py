"""Serving the console over HTTP: in a thread of the user's process (`serve`), or as all that a process does."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable
from types import TracebackType

import uvicorn

from shmjet.cluster.client.instance import JetInstance
from shmjet.console.access import Access, make_access
from shmjet.console.connections import connections
from shmjet.console.member_finder import Found, local_members
from shmjet.console.watcher import Watch
from shmjet.console.web import make_app
from shmjet.core import ShmjetError

_CLOSING_S = 1
"""How long pages that are open may take to notice the end."""
_START_S = 30.0


class _Server(uvicorn.Server):
    """A server that says when it is up, and ends its streams before it waits for them."""

    def __init__(self, config: uvicorn.Config, watch: Watch, on_up: Callable[[], None]) -> None:
        super().__init__(config)
        self._watch = watch
        self._on_up = on_up

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if not self.should_exit:
            self._on_up()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._watch.stop()
        await super().shutdown(sockets)


class ConsoleServer:
    """A console that listens, and serves when `run` is called.

    Args:
        find: returns the members that it shows.
        access: who may do what.
        host: address to listen on.
        port: 0 for any that is free.
        pid: show only the member that has to do with this process; None for all.
        on_up: called when it serves, in the thread of `run`.

    Raises:
        OSError: it cannot listen there.
    """

    def __init__(
        self,
        find: Callable[[], Found],
        access: Access,
        host: str,
        port: int,
        *,
        pid: int | None = None,
        on_up: Callable[[], None] = lambda: None,
    ) -> None:
        self._socket = _listen(host, port)
        self.url = _url(host, self._socket)
        """Where it is, for a browser on this host."""
        self._find = find
        self._pid = pid
        self._access = access
        self._on_up = on_up
        self._server: _Server | None = None
        self._ending = False

    def run(self) -> None:
        """Serve until `stop`, or, in the main thread, until SIGINT or SIGTERM."""
        with self._socket:
            asyncio.run(self._serve())

    async def _serve(self) -> None:
        watch = Watch(self._find, changes=self._access.token is not None, pid=self._pid)
        config = uvicorn.Config(
            make_app(watch, self._access),
            log_config=None,
            access_log=False,
            lifespan="on",
            http=connections(),
            ws="none",
            server_header=False,
            timeout_graceful_shutdown=_CLOSING_S,
        )
        self._server = _Server(config, watch, self._on_up)
        self._server.should_exit = self._ending
        await self._server.serve([self._socket])

    def stop(self) -> None:
        """End `run`; may be called from any thread."""
        self._ending = True
        if self._server is not None:
            self._server.should_exit = True


class Console:
    """A console in a thread of this process, made by `serve`; a context manager that ends it.

    Attributes:
        url: where it is.
    """

    def __init__(self, server: ConsoleServer, thread: threading.Thread) -> None:
        self._server = server
        self._thread = thread
        self.url = server.url

    def close(self) -> None:
        """End it, which takes a moment; may be called twice. The instance goes on."""
        self._server.stop()
        self._thread.join()

    def __enter__(self) -> Console:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Console {self.url}{'' if self._thread.is_alive() else ' closed'}>"


def serve(
    jet: JetInstance,
    *,
    host: str = "127.0.0.1",
    port: int = 0,
    token: str | None = None,
    private: bool = False,
    allow_hosts: tuple[str, ...] = (),
) -> Console:
    """Show an instance in the browser, from a thread of this process.

    Args:
        jet: the instance; the console sees its end, and stays until it is closed.
        host: address to listen on; any but a loopback one needs a token, for reading too.
        port: 0 for any that is free.
        token: what the page asks for before it offers changes; at least 16 characters. None: it only shows.
        private: reading needs the token on loopback too, where other users of this host can connect.
        allow_hosts: further names under which it is reached, through a proxy for example.

    Returns:
        the console; its `url` is the place.

    Raises:
        ConfigError: the token is missing or too short.
        OSError: it cannot listen there.

    Example:
        >>> with shmjet.new_instance() as jet, shmjet.console.serve(jet) as console:   # doctest: +SKIP
        ...     print(console.url)
        ...     jet.new_job(dag).run()
    """
    access = make_access(host, token=token, private=private, allow=allow_hosts)
    folder = jet.folder
    up = threading.Event()
    server = ConsoleServer(lambda: local_members([folder]), access, host, port, on_up=up.set)
    thread = threading.Thread(target=_run, args=(server, up), name="shmjet-console", daemon=True)
    thread.start()
    console = Console(server, thread)
    if not up.wait(_START_S) or not thread.is_alive():
        console.close()
        raise ShmjetError("the console did not start; its messages are in the log")
    return console


def _run(server: ConsoleServer, up: threading.Event) -> None:
    try:
        server.run()
    finally:
        up.set()


def _listen(host: str, port: int) -> socket.socket:
    family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    listener = socket.socket(family, kind, protocol)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(128)
    except BaseException:
        listener.close()
        raise
    return listener


def _url(host: str, listener: socket.socket) -> str:
    name = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    return f"http://{f'[{name}]' if ':' in name else name}:{listener.getsockname()[1]}/"
