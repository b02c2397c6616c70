"""Floor 8: a console in the browser, and `/metrics`; `shmjet console` starts it as a command, `serve` inside a program.

It watches members from outside (`shmjet.cluster.monitor.local`) and must not know how they run jobs. It needs the extra
`console` (starlette, uvicorn, prometheus-client). `docs/design/0017-console.md` says how it is built and what it
promises.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from shmjet.console.server import Console, serve

__all__ = ["Console", "serve"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'shmjet.console' has no attribute {name!r}")
    try:
        from shmjet.console import server
    except ModuleNotFoundError as error:
        if error.name is not None and error.name.partition(".")[0] in ("starlette", "uvicorn", "prometheus_client"):
            raise ModuleNotFoundError(
                f"the console needs the package {error.name!r}: pip install prometheus-client starlette uvicorn",
                name=error.name,
            ) from None
        raise
    return getattr(server, name)
