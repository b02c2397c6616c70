"""What a client does while the members of a cluster are replaced; `upgrade.py` runs it with each version of shmjet.

It counts in a map, and follows a job with a guarantee that counts numbers in windows, until a file says that it is
enough. Its last line says what is wrong, or that nothing is.

Usage: _upgrade_client.py NAME FOLDER SECRET ADDRESS...
"""

from __future__ import annotations

import sys
import threading
import time
from pathlib import Path
from typing import Any

import shmjet
from shmjet import (
    ClientConfig,
    JobConfig,
    JobStatus,
    MemberLostError,
    Pipeline,
    ProcessingGuarantee,
    aggregate_ops,
    sinks,
    sources,
)

SIZE, KEYS, AT_ONCE = 100, 5, 5
"""Numbers in a window, keys, and numbers that come together; each number is a millisecond of event time."""
HANG_S = 120.0
RIGHT = "as it should be"


def counted(name: str, end: Path) -> Pipeline:
    """Return a job that writes how many numbers of each key are in each window to a map."""
    ended = str(end.with_suffix(f".{name}"))
    is_enough = end.exists

    def fill(position: list[int], buffer: Any) -> None:
        if position[0] % SIZE == 0 and is_enough():
            Path(ended).write_text(str(position[0]))
            buffer.close()
            return
        for number in range(position[0], position[0] + AT_ONCE):
            buffer.add(number, timestamp=number)
        position[0] += AT_ONCE
        time.sleep(0.004)

    source = sources.builder("numbers", lambda _: [0]).fill_buffer_fn(fill)
    source = source.create_snapshot_fn(lambda position: position[0])
    source = source.restore_snapshot_fn(lambda position, states: position.__setitem__(0, states[0]))
    made = Pipeline()
    numbers = made.read_from(source.stream()).with_native_timestamps(allowed_lag=0)
    windows = numbers.grouping_key(lambda number: number % KEYS).window(shmjet.tumbling(SIZE / 1000))
    counts = windows.aggregate(aggregate_ops.counting())
    counts.map(lambda window: ((window.end, window.key), window.result)).write_to(sinks.map(f"windows of {name}"))
    return made


def written(values: Any, key: Any, value: int) -> bool:
    """Write an entry; False when it is not known whether that was done."""
    try:
        values[key] = value
    except MemberLostError:
        return False
    return True


def main() -> int:
    name, folder, secret, *addresses = sys.argv[1:]
    end = Path(folder) / "end"
    with shmjet.new_client(addresses, ClientConfig(secret=secret, connect_timeout=HANG_S, timeout=HANG_S)) as jet:
        guaranteed = JobConfig(
            name=f"job of {name}", processing_guarantee=ProcessingGuarantee.EXACTLY_ONCE, snapshot_interval=0.2
        )
        job = jet.new_job(counted(name, end), guaranteed)
        execution = job.execute()
        while job.status is not JobStatus.RUNNING:
            time.sleep(0.01)
        counts, values = jet.get_map("counts"), jet.get_map("values")  # a client without its maps asks once for them
        print("runs", flush=True)
        done = unknown = 0
        while not end.exists():
            try:
                counts.compute(name, lambda count: (count or 0) + 1)
            except MemberLostError:  # all members are gone, and may have done it
                unknown += 1
                continue
            done += 1
            while not written(values, (name, done % 50), done):
                pass
            threading.Event().wait(0.002)
        execution.result(HANG_S)
        wrong = []
        if not done <= counts[name] <= done + unknown:
            wrong.append(f"counted {done} times, {unknown} more perhaps, and the map has {counts[name]}")
        newest = {number % 50: number for number in range(1, done + 1)}
        found = {key[1]: value for key, value in values.items() if key[0] == name}
        if found != newest:
            wrong.append(f"of {done} values there are {found}")
        numbers = int(end.with_suffix(f".{name}").read_text())
        windows = dict(jet.get_map(f"windows of {name}").items())
        right = {(until, key): SIZE // KEYS for until in range(SIZE, numbers + 1, SIZE) for key in range(KEYS)}
        if windows != right:
            odd = sorted(set(windows.items()) ^ set(right.items()))
            wrong.append(f"of {len(right)} windows of {numbers} numbers these differ: {odd[:10]}")
        print("; ".join(wrong) or f"{RIGHT}: {done} operations, {len(right)} windows", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
