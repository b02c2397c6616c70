"""Finding the DAG of a script without running its job, for `shmjet dag`.

While the script runs, `shmjet.new_instance` and `shmjet.new_client` give a stand-in. The first job submitted to it ends
the script, and its DAG is the one. A script that submits nothing may have left a DAG in a global.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace, TracebackType
from typing import Any

import shmjet
from shmjet import DAG
from shmjet.cli.outcome import CommandError, Outcome
from shmjet.cli.script import execute, print_from_script


class Captured(BaseException):
    """Ends the script at its first submission; a `BaseException`, so that `except Exception` does not hold it back."""

    def __init__(self, description: object) -> None:
        super().__init__()
        self.description = description


class CapturingInstance:
    """Stands in for a `JetInstance`: maps are dicts, lists are lists, and submitting a job ends the script."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        self.config = arguments[0] if arguments else options.get("config", shmjet.JetConfig())
        self.cluster = SimpleNamespace(members=())
        self._maps: defaultdict[str, dict[Any, Any]] = defaultdict(dict)
        self._lists: defaultdict[str, list[Any]] = defaultdict(list)

    def __enter__(self) -> CapturingInstance:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.shutdown()

    def new_job(self, description: object, *_arguments: Any, **_options: Any) -> None:
        raise Captured(description)

    def jobs(self) -> list[Any]:
        return []

    def job(self, **_options: Any) -> None:
        return None

    def get_map(self, name: str) -> dict[Any, Any]:
        return self._maps[name]

    def get_list(self, name: str) -> list[Any]:
        return self._lists[name]

    def shutdown(self) -> None:
        """There is nothing to end."""


def dag_of_script(path: Path, arguments: Sequence[str]) -> DAG:
    """Run the script until it submits a job and return that job's DAG; else one found in its globals.

    Raises `CommandError` when the script fails before, or when there is no DAG.
    """
    try:
        with _captured_submissions():
            names = execute(path, arguments)
    except Captured as found:
        return _as_dag(found.description, "what the script submits")
    except SystemExit:
        raise CommandError(f"{path} ended by itself before it submitted a job") from None
    except (KeyboardInterrupt, CommandError):
        raise
    except BaseException as error:
        print_from_script(error, path)
        raise CommandError(f"{path} failed before it submitted a job", Outcome.FAILED) from None
    for name, value in names.items():
        if isinstance(value, DAG) or (hasattr(value, "to_dag") and not isinstance(value, type)):
            return _as_dag(value, f"the global {name!r}")
    raise CommandError(f"no DAG in {path}: it submits no job and has no DAG among its globals")


def _as_dag(description: Any, where: str) -> DAG:
    found = description.to_dag() if hasattr(description, "to_dag") else description
    if not isinstance(found, DAG):
        raise CommandError(f"{where} is not a DAG: {type(found).__name__}")
    return found


@contextmanager
def _captured_submissions() -> Iterator[None]:
    # Put into the package's namespace, not read from it: drawing a DAG needs no engine, and loads none.
    namespace: dict[str, Any] = vars(shmjet)
    names: list[str] = [name for name in ("new_instance", "new_client") if name in shmjet.__all__]
    before = {name: namespace[name] for name in names if name in namespace}
    namespace.update(dict.fromkeys(names, CapturingInstance))
    try:
        yield
    finally:
        for name in names:
            del namespace[name]
        namespace.update(before)
