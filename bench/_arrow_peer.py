"""PySpark with pyarrow, in a process of its own: the peer `mapInArrow` of `spark.py`.

Nothing of shmjet may need pyarrow or pandas, so they are not installed where it runs: `make bench` puts them into a
folder of their own (`PACKAGES`), which only this process, its JVM and their Python workers have on their path. The
process has a session of its own, warm between runs, and idle while others are measured. It answers lines of JSON:
`{"columns": [...], "rows": n}` with `{"sums": [...], "seconds": s, "cpu": c}`.
"""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from _harness import Options, PeerSkipped, elapsed, parse_options
from _spark import cpu_seconds, local_session

PACKAGES = Path(sys.prefix) / "bench-apart"
"""Where `make bench` installs what must not be importable elsewhere."""


class ArrowPeer:
    """The process, started with the first run.

    Args:
        options: how many cores it uses.
    """

    def __init__(self, options: Options) -> None:
        self._workers = options.workers
        self._process: subprocess.Popen[str] | None = None

    def run(self, columns: list[str], rows: int) -> dict[str, Any]:
        """Return sums of columns, seconds and CPU seconds of one run.

        Raises:
            PeerSkipped: the packages are missing, or the process cannot run; it has said why.
        """
        if not (PACKAGES / "pyarrow").is_dir():
            raise PeerSkipped("pyarrow is not installed apart (make bench does it)")
        if self._process is None:
            paths = [str(PACKAGES), *filter(None, [os.environ.get("PYTHONPATH")])]
            self._process = subprocess.Popen(
                [sys.executable, __file__, "--workers", str(self._workers)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
            )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(json.dumps({"columns": columns, "rows": rows}), file=self._process.stdin, flush=True)
        answer = self._process.stdout.readline()
        if not answer:
            raise PeerSkipped("the process with pyarrow has ended")
        found: dict[str, Any] = json.loads(answer)
        return found

    def close(self) -> None:
        """End the process."""
        if self._process is not None:
            assert self._process.stdin is not None
            self._process.stdin.close()
            self._process.wait(60)


def map_in_arrow(frame: Any, width: int) -> list[Any]:
    """Return the sums of so many columns (of text, its bytes) of each batch, computed with pyarrow in the workers."""

    def sums(batches: Iterator[Any]) -> Iterator[Any]:
        import pyarrow as pa
        import pyarrow.compute as pc

        for batch in batches:
            found = [float(batch.column(i).to_numpy(zero_copy_only=False).sum()) for i in range(min(width, 2))]
            if width > 2:
                found.append(float(pc.sum(pc.binary_length(batch.column(2))).as_py()))
            yield pa.RecordBatch.from_pydict({f"c{i}": [value] for i, value in enumerate(found)})

    collected: list[Any] = frame.mapInArrow(sums, ", ".join(f"c{i} double" for i in range(width))).collect()
    return collected


def answer(frame: Any, parts: list[Any]) -> None:
    """Append what `map_in_arrow` returns for all columns."""
    parts.extend(map_in_arrow(frame, len(frame.columns)))


def main() -> int:
    """Answer until no more questions come."""
    options = parse_options(__doc__, benches=[])
    with local_session(options) as session:
        session.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", 65536)
        for line in sys.stdin:
            asked = json.loads(line)
            frame = session.range(0, asked["rows"], 1, 2 * options.workers).selectExpr(*asked["columns"])
            parts: list[Any] = []
            before = cpu_seconds()
            seconds = elapsed(functools.partial(answer, frame, parts))
            cpu = cpu_seconds() - before
            totals = [sum(column) for column in zip(*parts, strict=True)]
            print(json.dumps({"sums": totals, "seconds": seconds, "cpu": cpu}), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
