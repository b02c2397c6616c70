"""`shmjet dump`: everything that an engineer needs for a report about a running member, as text or JSON."""

from __future__ import annotations

import json
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

from shmjet.cli.cluster_access import remote_monitor
from shmjet.cli.doctor import findings
from shmjet.cli.members import members
from shmjet.cli.outcome import CommandError, Outcome, complain
from shmjet.cluster.monitor.dump import inspect, versions
from shmjet.core import MemberLostError
from shmjet.host.terminal_text import clean


def dump(
    *, pid: int | None, output: Path | None, as_json: bool, address: str | None = None, config: Path | None = None
) -> int:
    """Look at all running members of this user, one, or those of a cluster, and write the report.

    Args:
        pid: of the member, of its client or of a worker; None: all of this user's.
        output: the file; None: standard output.
        as_json: as one JSON object.
        address: of a cluster's members; None: those of this host.
        config: settings for that.
    """
    report = gather(pid, address, config)
    text = json.dumps(report, indent=2, default=str) + "\n" if as_json else as_text(report)
    if output is None:
        print(text, end="")
    else:
        try:
            output.write_text(text, encoding="utf-8")
        except OSError as error:
            raise CommandError(f"cannot write {output}: {error.strerror}") from None
        print(f"wrote {output}")
    if not report["members"]:
        complain("no member of yours is running on this host; the report has the machine only")
    return Outcome.OK


def gather(pid: int | None = None, address: str | None = None, config: Path | None = None) -> dict[str, Any]:
    """Return the report as plain dicts and lists; of a cluster, with all members, even those without an answer."""
    found: list[dict[str, Any]] = []
    if address is not None or config is not None:
        cluster = remote_monitor(address, config)
        try:
            found = [dump for dump in cluster.dumps().values() if pid is None or dump.get("pid") == pid]
        finally:
            cluster.close()
        return _report(found)
    with members(pid) as attached:
        for member in attached:
            try:
                found.append(inspect(member))
            except MemberLostError as error:
                found.append({"pid": member.pid, "gone": str(error)})
    return _report(found)


def _report(found: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "at": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        "versions": versions(),
        "machine": [asdict(finding) for finding in findings()],
        "members": found,
    }


def as_text(report: dict[str, Any]) -> str:
    """Return a report for people: sections, one fact a line. A terminal can be given it."""
    lines = [f"shmjet dump of {report['at']}", "", "versions"]
    lines += [f"  {name}: {version}" for name, version in report["versions"].items()]
    lines += ["", "machine"]
    lines += [f"  {fact['state']:<8}{fact['name']}: {fact['text']}" for fact in report["machine"]]
    for member in report["members"]:
        lines += ["", f"member {member.get('pid') or member.get('address')}"]
        if "gone" in member:
            lines.append(f"  {member['gone']}")
            continue
        lines += _member_lines(member)
    return clean("\n".join(lines) + "\n")


def _member_lines(member: dict[str, Any]) -> list[str]:
    plain = ("address", "uuid", "version", "client_pid", "up_s", "folder")
    lines = [f"  {name}: {member[name]}" for name in plain]
    lines.append("  settings: " + _pairs(member["settings"]))
    lines.append("  environment: " + (_pairs(member["environment"]) or "nothing of interest"))
    lines += ["", "  workers"]
    lines += [f"    {_pairs(worker)}" for worker in member["workers"]]
    for execution in member["executions"]:
        lines += ["", *_execution_lines(execution)]
    lines += ["", "  processes"]
    for process in member["processes"]:
        facts = {name: value for name, value in process.items() if name != "stacks"}
        lines.append(f"    {_pairs(facts)}")
        lines += [f"      {line}" for line in process.get("stacks", "").splitlines()]
    return lines


def _execution_lines(execution: dict[str, Any]) -> list[str]:
    head = {
        name: value for name, value in execution.items() if not isinstance(value, dict | list) and value is not None
    }
    lines = [f"  execution {_pairs(head)}"]
    vertices = execution.get("vertices")
    if not isinstance(vertices, dict):
        return lines
    for name, vertex in vertices.items():
        lines.append(f"    vertex {name!r}")
        lines += [f"      {_pairs(_short(processor))}" for processor in vertex["processors"]]
    lines += [f"    edge {_pairs(_short(edge))}" for edge in execution["edges"]]
    rings = execution.get("rings", [])
    if isinstance(rings, str):
        return [*lines, f"    rings: {rings}"]
    used = [ring for ring in rings if ring["bytes_ever"]]
    lines += [f"    ring {_pairs(ring)}" for ring in used]
    if len(used) < len(rings):
        lines.append(f"    {len(rings) - len(used)} rings have never been used")
    plan = execution.get("plan")
    if plan is not None:
        places = {vertex["name"]: vertex["endpoints"] for vertex in plan["vertices"]}
        lines.append(f"    plan: {plan['worker_count']} workers, {plan['carrier_count']} carriers, placed {places}")
    return lines


def _short(facts: dict[str, Any]) -> dict[str, Any]:
    """Leave out what is nought, except for what identifies."""
    kept = ("index", "worker", "received_count", "emitted_count", "source", "destination", "queues_size")
    return {name: value for name, value in facts.items() if name in kept or value not in (0, None, "")}


def _pairs(facts: dict[str, Any]) -> str:
    return ", ".join(f"{name} {value}" for name, value in facts.items())
