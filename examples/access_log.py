"""Log analysis: what a web server's access log says, packed files included.

The most wanted pages, the clients that load the most, and how many answers of each kind there were by hour. Lines that
are none of a log are counted, not fatal. `generate` makes a log in the combined format of Apache and nginx.

    python examples/access_log.py [FILE or GLOB...]
"""

from __future__ import annotations

import gzip
import random
import re
import sys
import tempfile
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

from shmjet import JetConfig, Pipeline, aggregate_ops, new_instance, sinks, sources

LINE = re.compile(
    r"(?P<client>\S+) \S+ \S+ \[(?P<time>[^]]+)] "
    r'"(?P<method>[A-Z]+) (?P<path>\S+) [^"]*" (?P<status>\d{3}) (?P<size>\d+|-) '
)
AGENTS = ("Mozilla/5.0 (X11; Linux x86_64)", "curl/8.5.0", "Bot 'friendly'")


class Request(NamedTuple):
    """One line of the log."""

    client: str
    hour: str
    path: str
    status: int
    size: int


class Report(NamedTuple):
    """What the program finds out."""

    pages: list[tuple[str, int]]
    """(path, requests that were answered well), the most wanted first."""
    clients: list[tuple[str, int]]
    """(address, bytes), the greatest first."""
    hours: dict[tuple[str, str], int]
    """(hour, kind of answer such as 5xx) -> answers."""
    unreadable: int
    """Lines that are none of an access log."""


def request_of(line: str) -> Request | str:
    """Return a line's request, or the line if it has none."""
    found = LINE.match(line)
    if found is None:
        return line
    size = found["size"]
    hour = found["time"][:14].replace(":", " ", 1)
    path = found["path"].partition("?")[0]
    return Request(found["client"], hour, path, int(found["status"]), 0 if size == "-" else int(size))


def most(count: int) -> Any:
    """Return the operation that keeps the pairs of the greatest numbers; of equal ones the first by name."""
    return aggregate_ops.bottom_n(count, key=lambda pair: (-pair[1], pair[0]))


def main(paths: Sequence[str], count: int = 10, config: JetConfig | None = None) -> Report:
    """Analyse log files.

    Args:
        paths: files, folders and globs.
        count: how many pages and clients to report.
    """
    names = ("pages", "clients", "hours", "unreadable")
    pages, clients, hours, unreadable = (sinks.collect(f"report-{name}") for name in names)
    p = Pipeline()
    lines = p.read_from(sources.files(paths)).map(request_of).set_name("parse")
    requests = lines.filter(lambda line: isinstance(line, Request))
    (
        requests.filter(lambda request: request.status < 400)
        .grouping_key(lambda request: request.path)
        .aggregate(aggregate_ops.counting())
        .aggregate(most(count))
        .write_to(pages)
    )
    (
        requests.grouping_key(lambda request: request.client)
        .aggregate(aggregate_ops.summing(lambda request: request.size))
        .aggregate(most(count))
        .write_to(clients)
    )
    (
        requests.grouping_key(lambda request: (request.hour, f"{request.status // 100}xx"))
        .aggregate(aggregate_ops.counting())
        .write_to(hours)
    )
    lines.filter(lambda line: isinstance(line, str)).aggregate(aggregate_ops.counting()).write_to(unreadable)
    with new_instance(config or JetConfig()) as jet:
        jet.new_job(p).run()
        return Report(next(iter(pages)), next(iter(clients)), dict(hours), next(iter(unreadable)))


def generate(folder: Path, days: int = 3, requests_per_day: int = 20_000) -> list[str]:
    """Write a log with a file for each day, all but the last one packed; the same lines each time."""
    chance = random.Random(20240229)
    pages = [f"/{section}/{number}" for section in ("news", "shop", "help") for number in range(200)]
    popularity = [1 / (place + 1) for place in range(len(pages))]
    clients = [f"10.{n % 7}.{n % 251}.{n % 13}" for n in range(2000)]
    paths = []
    for day in range(days):
        start = datetime(2024, 2, 28, tzinfo=UTC) + timedelta(days=day)
        text = "".join(_lines(chance, start, requests_per_day, pages, popularity, clients))
        path = folder / f"access.log{'' if day == days - 1 else f'.{days - 1 - day}.gz'}"
        path.write_bytes(text.encode() if day == days - 1 else gzip.compress(text.encode(), mtime=0))
        paths.append(str(path))
    return paths


def _lines(
    chance: random.Random, start: datetime, count: int, pages: list[str], popularity: list[float], clients: list[str]
) -> Iterator[str]:
    wanted = chance.choices(pages, popularity, k=count)
    for number, page in enumerate(wanted):
        time = (start + timedelta(seconds=number * 86_400 / count)).strftime("%d/%b/%Y:%H:%M:%S %z")
        status = chance.choices((200, 304, 404, 500), (90, 5, 4, 1))[0]
        size = "-" if status == 304 else str(int(chance.paretovariate(1.2) * 500))
        query = f"?page={number % 5}" if number % 3 == 0 else ""
        agent = chance.choice(AGENTS)
        yield (
            f'{chance.choice(clients)} - - [{time}] "GET {page}{query} HTTP/1.1" {status} {size} '
            f'"https://example.org/" "{agent}"\n'
        )
        if number % 1000 == 999:
            yield "\x16\x03\x01 no request at all\n"


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as temporary:
        report = main(sys.argv[1:] or generate(Path(temporary)))
    for title, pairs in (("pages", report.pages), ("clients, bytes", report.clients)):
        print(title)
        for name, number in pairs:
            print(f"  {number:12} {name}")
    print("answers by hour")
    for (hour, kind), number in sorted(report.hours.items()):
        print(f"  {hour} {kind} {number}")
    print(f"{report.unreadable} lines could not be read")
