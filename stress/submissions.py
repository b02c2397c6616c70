"""The coordinator is lost while a client submits a job: the job runs, once, and the client hears of its end.

Each round has three members of this host. A client submits one job, and around that moment the coordinator's process is
killed (-9), or halted and then killed or let go on; it may be the member that the client is connected to. The client
must never hear that the outcome is unknown. When the members have found together, the job is let end: there is one
result, it is exact, no second run of the job has reached its end, and none is left. A job that does not follow the
cluster and has no guarantee may fail for the loss, once it has a record on another member; a job with an attached file
may fail with the statement that it has not run. `--only KIND` limits what is
submitted.

Usage: stress/submissions.py [--count N] [--seed S] [--ci] [--only KIND] [--verbose]     (--ci: half a minute)
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path

from _stress import (
    HANG_S,
    ROOT,
    Options,
    Tally,
    all_gone,
    mark_processes,
    marked,
    name_of,
    parse_options,
    private_shm,
    wait_until,
    watch,
)
from survivors import SECRET, Members, Wrong, own

sys.path.insert(0, str(ROOT))

import shmjet
from shmjet import (
    ClientConfig,
    Execution,
    JetInstance,
    Job,
    JobConfig,
    JobStatus,
    MemberLostError,
    ProcessingGuarantee,
    ShmjetError,
)
from shmjet.core import Outbox, ProcessorContext
from tests.cluster.counting import SHARDS, Result, Shards, counting, exact

KINDS = ("saved", "anew", "fixed", "attached", "again", "joins", "protected")
FAULTS = ("kill", "kill", "stop", "stop and kill")
COUNT = 100
AROUND_S = 0.06
"""A submission takes some milliseconds; the fault comes at most so long after its beginning, or a third before."""


class Once(Result):
    """Writes a line for each end that it sees."""

    def complete(self) -> bool:
        has_result = bool(self._got)
        is_complete = super().complete()
        if has_result:
            with self._file.with_suffix(".ends").open("a") as ends:
                ends.write("end\n")
        return is_complete


class WithFile(Shards):
    """Needs the file that is attached to the job."""

    def init(self, outbox: Outbox, context: ProcessorContext) -> None:
        super().init(outbox, context)
        if context.attached_file("attached").stat().st_size != 3 << 20:
            raise ValueError("the attached file is not whole")


class Round:
    """One submission.

    Args:
        members: of the cluster.
        folder: for results.
        rng: chooses.
        kind: of the job.
    """

    def __init__(self, members: Members, folder: Path, rng: random.Random, kind: str) -> None:
        self.members, self.folder, self.rng, self.kind = members, folder, rng, kind
        self.fault = rng.choice(FAULTS)
        self.delay = rng.uniform(-AROUND_S / 3, AROUND_S)
        self.embedded = rng.random() < 0.4
        self.file, self.gate = folder / "result.json", folder / "gate"
        self.outcome = ""

    def __str__(self) -> str:
        client = "a member" if self.embedded else "a client"
        return f"{self.kind} by {client}, {self.fault} at {1000 * self.delay:.0f} ms"

    def run(self) -> None:
        self.members.fill(3)
        victim = self.members.pick(self.rng, coordinator=True)
        with contextlib.ExitStack() as stack:
            if self.embedded:
                jet = self.members.pick(self.rng, coordinator=False)
            else:
                addresses = [own(member).address for member in self.members.all]
                self.rng.shuffle(addresses)
                jet = stack.enter_context(shmjet.new_client(addresses, ClientConfig(secret=SECRET)))
            self._submit(jet, victim)

    def _submit(self, jet: JetInstance, victim: JetInstance) -> None:
        job = self._made(jet)
        if self.kind == "again":
            self.gate.touch()
            job.run(HANG_S)
            self.gate.unlink()
            self.file.with_suffix(".ends").unlink()
        pids = self._pids(victim)
        begins = threading.Event()
        fails = threading.Thread(target=self._fail, args=(begins, pids), daemon=True)
        fails.start()
        if self.delay < 0:
            begins.set()
            time.sleep(-self.delay)
        begins.set()
        try:
            execution = job.execute()
            self._judge(jet, job, execution)
        finally:
            fails.join()
            for pid in pids:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGCONT)
            if self.fault == "stop":
                self.members.settle()
            else:
                self.members.lost(victim)

    def _made(self, jet: JetInstance) -> Job:
        config = JobConfig(name=f"job {self.folder.name}")
        source = Shards
        match self.kind:
            case "saved":
                config.processing_guarantee, config.snapshot_interval = ProcessingGuarantee.EXACTLY_ONCE, 0.05
            case "fixed":
                config.auto_scaling = False
            case "attached":
                attached, source = self.folder / "attached", WithFile
                attached.write_bytes(bytes(3 << 20))
                config.attach_file(attached)
            case "protected":
                config.split_brain_protection = True
        dag = counting(self.file, COUNT, gate=self.gate, sources=1, counts=1, spreads=True, source=source, result=Once)
        return jet.new_job_if_absent(dag, config) if self.kind == "joins" else jet.new_job(dag, config)

    def _pids(self, victim: JetInstance) -> list[int]:
        """Return what is halted or killed: the member alone, or with its link, its fork server and workers."""
        member = own(victim).pid
        if self.rng.random() < 0.5:
            return [member]
        return [member, *own(victim).workers]

    def _fail(self, begins: threading.Event, pids: list[int]) -> None:
        begins.wait()
        time.sleep(max(0.0, self.delay))
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL if self.fault == "kill" else signal.SIGSTOP)
        if self.fault == "stop and kill":
            time.sleep(1.0)
            for pid in pids:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)

    def _judge(self, jet: JetInstance, job: Job, execution: Execution) -> None:
        def is_settled() -> bool:
            return execution.done() or (job.status is JobStatus.RUNNING and len(jet.cluster.members) == 2)

        if not wait_until(is_settled, HANG_S, 0.01):
            rows = [(other.name, other.status.name) for other in jet.jobs()]
            raise Wrong(f"HANG: execution {execution.id} is {execution.status.name}, jobs are {rows}")
        self.gate.touch()
        try:
            execution.result(HANG_S)
            self.outcome = "ended well"
        except MemberLostError as error:
            text = str(error)
            has_not_run = self.kind == "attached" and "it has not run" in text
            if not (has_not_run or self.kind == "fixed") or "unknown" in text or "not known" in text:
                raise
            self.outcome = "failed, as said"
            return
        if (found := json.loads(self.file.read_text())) != exact(COUNT, SHARDS):
            raise Wrong(f"counts are {found}")
        left = [other for other in jet.jobs() if not other.status.is_terminal]
        if not wait_until(lambda: all(other.status.is_terminal for other in left), 5.0, 0.01):
            raise Wrong(f"left: {left}")
        if (ends := self.file.with_suffix(".ends").read_text()) != "end\n":
            raise Wrong(f"it has run more than once: {ends!r}")


def main() -> int:
    options: Options = parse_options(__doc__, count=100, ci=6, parts=KINDS)
    private_shm()
    tally = Tally("submissions", options)
    mark = mark_processes()
    members = Members()
    outcomes: Counter[str] = Counter()
    for number in range(options.count):
        seed = options.seed + number
        watch(4 * HANG_S)
        rng = random.Random(seed)
        with tempfile.TemporaryDirectory() as folder:
            story = Round(members, Path(folder), rng, rng.choice([kind for kind in KINDS if options.wants(kind)]))
            try:
                story.run()
            except (ShmjetError, Wrong, TimeoutError, OSError) as error:
                tally.complain(f"seed {seed}, {story}: {error!r}")
                members.close()
        outcomes[story.outcome or "wrong"] += 1
        options.say(f"seed {seed}: {story}: {story.outcome}")
        tally.done += 1
    members.close()
    tally.notes += [f"{count} {outcome}" for outcome, count in outcomes.items()]
    if not all_gone(mark):
        tally.complain(f"left behind: {', '.join(name_of(pid) for pid in marked(mark))}")
    return tally.finish()


if __name__ == "__main__":
    sys.exit(main())
