"""The sweeps of `shapes.py` over sources and sinks: sizes of items and lines, numbers of files and keys, rare items.

Files are in the page cache; the sinks are emptied between runs. A source built of functions is not among them: what one
call of its function brings is sent on at once, because the next call may wait; so it should bring many.
"""

from __future__ import annotations

import pickle
import shutil
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from _shapes import KEPT, SHARES, Lab, bounds
from _sweeps import Point, Sweep

from shmjet import Batch, processors, sinks, sources
from shmjet.pipeline import SourceDef

LINES = (1, 10, 100, 1000, 10_000, 100_000)
FILES = (1, 10, 100, 1000)
SIZES = (8, 64, 512, 4096, 32_768)
KEYS = (10, 1000, 100_000)


def sweeps(lab: Lab) -> Iterator[Sweep]:
    """Yield all sweeps of sources and sinks."""
    yield from generators(lab)
    yield from files(lab)
    yield from csv(lab)
    yield from grid(lab)
    yield from written(lab)


def same(stage: Any) -> Any:
    """Hand the items on."""
    return stage


def generators(lab: Lab) -> Iterator[Sweep]:
    """Yield the sweeps of sources that are handed their items."""
    points = []
    for share in SHARES:
        rare = lambda i, n, bound=bounds[share], items=lab.items: (  # noqa: E731
            x for x in range(i, items, n) if x % KEPT < bound
        )
        points.append(
            Point(f"{share:g}", lab.items, lab.job(same, SourceDef("rare", processors.generate(rare))), kept=share)
        )
    yield Sweep("generate_kept", points, kept_limit=True)
    points = []
    for size in SIZES:
        items = [b"x" * size + b"%d" % x for x in range(min(lab.items, lab.bytes // 2 // size))]
        hand = partial(travelled, items, lab.workers)
        points.append(Point(f"{size:,} B", len(items), lab.job(same, sources.items(items)), hand))
    yield Sweep("items_size", points)


def travelled(items: list[Any], workers: int) -> None:
    """Copy items by hand as they travel with a job: to the member, and to each worker."""
    data = pickle.dumps(items, 5)
    for _ in range(workers):
        pickle.loads(bytes(bytearray(data)))


def text_file(folder: Path, width: int, total: int) -> Path:
    """Write lines of a width."""
    path = folder / f"lines-{width}"
    path.write_text(("x" * (width - 1) + "\n") * (total // width))
    return path


def read_lines(paths: list[Path]) -> None:
    """Read all lines of files by hand."""
    for path in paths:
        with path.open(encoding="utf-8") as file:
            for _ in file:
                pass


def files(lab: Lab) -> Iterator[Sweep]:
    """Yield the sweeps of text files: how long a line is, and how many files there are."""
    total = lab.bytes
    points = []
    for width in LINES:
        size = min(total, 4 * lab.items * width)
        path = text_file(lab.folder, width, size)
        hand = partial(read_lines, [path])
        points.append(Point(f"{width:,} B", size // width, lab.job(same, sources.files(str(path))), hand))
    yield Sweep("lines_width", points, "ns/line")
    points = []
    for many in FILES:
        folder = lab.folder / f"files-{many}"
        folder.mkdir()
        size = total // 2 // many
        for at in range(many):
            (folder / f"{at}").write_text(("x" * 49 + "\n") * (size // 50))
        paths = list(folder.iterdir())
        hand = partial(read_lines, paths)
        points.append(Point(f"{many:,}", size // 50 * many, lab.job(same, sources.files(str(folder))), hand))
    yield Sweep("files_number", points, "ns/line")


def csv(lab: Lab) -> Iterator[Sweep]:
    """Yield the sweeps of CSV files: how many fields are quoted, and how many are empty."""
    lines = lab.items * 2
    for what, odd in (("quoted", '"a, b"'), ("null", ""), ("not_ascii", "à")):
        points = []
        for share in (0.0, 0.001, 0.01, 0.1, 1.0):
            path = lab.folder / f"{what}-{share}.csv"
            with path.open("w") as file:
                file.write("number,text,real\n")
                bound = round(share * KEPT)
                file.writelines(f"{x},{odd if x % KEPT < bound else 'plain'},{x}.25\n" for x in range(lines))
            schema = {"number": "int64", "text": "text", "real": "float64"}
            read = lab.job(same, sources.csv(str(path), schema=schema, as_=Batch))
            points.append(Point(f"{share:g}", lines, read))
        yield Sweep(f"csv_{what}", points, "ns/line")


def grid(lab: Lab) -> Iterator[Sweep]:
    """Yield the sweeps of maps and lists."""

    def emptied(run: Callable[[], float], clear: Callable[[], object]) -> Callable[[], float]:
        def again() -> float:
            clear()
            return run()

        return again

    points, read = [], []
    for size in SIZES:
        items = min(lab.items // 2, lab.bytes // size)
        found = lab.jet.get_list(f"list-{size}")
        job = lab.job(same, lab.repeated(items, b"x" * size), sinks.list(f"list-{size}"))
        path = lab.folder / f"pickles-{size}"
        points.append(Point(f"{size:,} B", items, emptied(job, found.clear), partial(kept_in, path, items, size)))
        reading = lab.job(same, sources.list(f"list-{size}"))
        read.append(Point(f"{size:,} B", items, reading, partial(read_from, path)))
    yield Sweep("write_list_size", points)
    yield Sweep("read_list_size", read)
    points = []
    for keys in KEYS:
        items = lab.items // 2
        job = lab.job(lambda s: s.map(lambda x: (x, x)), lab.random(items, keys), sinks.map(f"map-{keys}"))
        points.append(Point(f"{keys:,}", items, job, partial(filled, items, keys)))
    yield Sweep("write_map_keys", points)


def filled(items: int, keys: int) -> dict[int, int]:
    """Fill a dict by hand."""
    return {x % keys: x for x in range(items)}


def kept_in(path: Path, items: int, size: int) -> None:
    """Keep items in a file by hand, as many at a time as travel at once; they are made of bytes that are there."""
    source = memoryview(bytes(size + 256))
    with path.open("wb") as file:
        for at in range(0, items, 2048):
            pickle.dump([bytes(source[x & 255 : (x & 255) + size]) for x in range(at, min(items, at + 2048))], file, 5)


def read_from(path: Path) -> None:
    """Read all items again by hand."""
    with path.open("rb") as file:
        try:
            while True:
                pickle.load(file)
        except EOFError:
            return


def written(lab: Lab) -> Iterator[Sweep]:
    """Yield the sweep of written files: how long a line is."""
    points = []
    for width in LINES[1:]:
        items = min(lab.items, lab.bytes // 8 // width)
        folder = lab.folder / f"written-{width}"
        write = lab.job(same, lab.repeated(items, "x" * (width - 1)), sinks.files(str(folder)))

        def run(write: Callable[[], float] = write, folder: Path = folder) -> float:
            shutil.rmtree(folder, ignore_errors=True)
            return write()

        def hand(items: int = items, width: int = width) -> None:
            with (lab.folder / "by-hand").open("w") as file:
                file.writelines("x" * (width - 1) + "\n" for _ in range(items))

        points.append(Point(f"{width:,} B", items, run, hand))
    yield Sweep("write_files_width", points, "ns/line")
