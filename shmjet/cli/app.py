"""The commands of `shmjet`, for click: what they are called, what they take, what their help says.

What a command does is in a module of its own, which is imported when it is done. A function here only parses: it
returns what is to be done, so that it is done outside of click, which has its own ideas of what to print at Ctrl-C.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from shmjet.cli import lifecycle_commands
from shmjet.cli.arguments import (
    FILE,
    RUN_JOBS,
    SEE,
    SET_UP,
    Function,
    Task,
    as_json,
    config_file,
    later,
    of_a_cluster,
    running_job,
)
from shmjet.cli.completion import shells
from shmjet.cli.help import HELP_NAMES, WIDTH, Argument, Group
from shmjet.cli.outcome import CommandError, Outcome, complain

_PASS_ON = {"allow_extra_args": True, "ignore_unknown_options": True, "allow_interspersed_args": False}
_AT_LEAST_ONE = click.IntRange(min=1)
_LIST, _OBJECT = "Print a JSON list.", "Print a JSON object."
_PROGRESS = "Show what each job does while it runs, if standard error is a terminal."


def _show_version(_context: click.Context, _parameter: click.Parameter, wanted: bool) -> None:
    if wanted:
        from shmjet import __version__  # read from the metadata of the package, which takes longer than parsing

        print(f"shmjet {__version__}")
        raise click.exceptions.Exit


@click.group(
    "shmjet",
    cls=Group,
    help="Hazelcast Jet's engine in Python: a DAG of processors over shared-memory rings, on every core of one host.",
    context_settings={"help_option_names": HELP_NAMES, "max_content_width": WIDTH},
    epilog="Exit status: 0 fine, 1 the job failed, 2 wrong usage, 130 interrupted.",
)
@click.option(
    "--version",
    "-V",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_show_version,
    help="Print the version and exit.",
)
def app() -> None:
    """All commands."""


def _script(required: bool = True) -> Callable[[Function], Function]:
    return click.argument(
        "script",
        cls=Argument,
        type=FILE,
        required=required,
        metavar="SCRIPT [ARGS]..." if required else "[SCRIPT [ARGS]...]",
        text="A Python script and its arguments.",
    )


def _pid(command: Function) -> Function:
    text = "Of the member, of the process that started it or of a worker; else all."
    return click.option("--pid", type=int, metavar="PID", help=text)(command)


@app.command(section=RUN_JOBS)
@click.argument(
    "paths",
    cls=Argument,
    nargs=-1,
    required=True,
    metavar="PATH...",
    text="Files, folders (with all in them) and globs.",
)
@click.option(
    "--top",
    type=click.IntRange(min=0),
    default=20,
    metavar="N",
    help="How many of the most frequent words to print.",
)
@click.option(
    "--cores", type=_AT_LEAST_ONE, metavar="N", help="Workers to use.", show_default="one per core of a NUMA node"
)
@as_json(_OBJECT)
@click.option("--output", type=FILE, metavar="FILE", help="Write all words to FILE as word, tab, count.")
@click.option("--columns/--objects", default=True, help="Count in native code, or by Python functions on lines.")
@click.option("--progress/--no-progress", default=True, help="Show how far it is, if standard error is a terminal.")
def wordcount(paths: tuple[str, ...], **options: Any) -> Task:
    """Count the words of text files. A word is what line.lower().split() gives; binary files are skipped."""
    return later("wordcount", "wordcount", list(paths), **options)


@app.command(section=RUN_JOBS, context_settings=_PASS_ON)
@_script()
@click.option("--progress", is_flag=True, help=_PROGRESS)
@click.pass_context
def run(context: click.Context, script: Path, progress: bool) -> Task:
    """Run a script as Python would; a job that fails is reported without the engine's own frames.

    Options for shmjet come before the script, everything behind it is the script's.
    """
    return later("script", "run_script", script, context.args, progress=progress)


@app.command(section=RUN_JOBS, context_settings=_PASS_ON)
@_script(required=False)
@of_a_cluster
@click.option("--progress", is_flag=True, help=_PROGRESS)
@click.option("--named", metavar="NAME", help="Instead of a script: a job that the members know.")
@click.pass_context
def submit(
    context: click.Context,
    script: Path | None,
    address: str | None,
    config: Path | None,
    progress: bool,
    named: str | None,
) -> Task:
    """Run a script whose `shmjet.new_instance()` is a client of a running cluster: its jobs run there.

    Members that take no code run the jobs of their own configuration: --named NAME.
    """
    if (script is None) == (named is None):
        raise CommandError("submit takes either a SCRIPT or --named NAME")
    if named is not None:
        return later("remote", "submit_named", named, address, config, progress=progress)
    return later("remote", "submit_script", script, context.args, address, config, progress=progress)


@app.command(section=RUN_JOBS, context_settings=_PASS_ON)
@_script()
@click.option("-o", "--output", type=FILE, metavar="FILE", help="FILE.svg or FILE.dot; else DOT is printed.")
@click.pass_context
def dag(context: click.Context, script: Path, output: Path | None) -> Task:
    """Draw the DAG of the first job that a script submits, without running the job."""
    arguments, destination = _split_output(context.args, output)
    return later("dag", "draw", script, arguments, destination)


@app.command(section=SEE)
@_pid
@click.option("--once", is_flag=True, help="Print one snapshot; the default without a terminal.")
@as_json("Print one snapshot as a JSON list.")
@click.option(
    "--interval",
    type=click.FloatRange(min=0.05),
    default=1.0,
    metavar="S",
    help="Seconds between two snapshots.",
)
@of_a_cluster
def top(**options: Any) -> Task:
    """Watch your running members on this host, or with an address those of a cluster: workers, jobs, the full edge.

    On this host it reads shared memory only and takes no time from the jobs. Ctrl-C ends it.
    """
    return later("top", "top", **options)


@app.command(section=SEE)
@click.option("-a", "--all", "everything", is_flag=True, help="List ended jobs, too.")
@as_json(_LIST)
@of_a_cluster
def jobs(everything: bool, as_json: bool, address: str | None, config: Path | None) -> Task:
    """List the jobs of your running members on this host, or with an address those of a cluster."""
    if address is None and config is None:
        return later("members", "show_jobs", everything=everything, as_json=as_json)
    return later("remote", "list_jobs", address, config, everything=everything, as_json=as_json)


@app.command(section=SEE)
@running_job
@as_json(_OBJECT)
@of_a_cluster
def cancel(job: str, as_json: bool, address: str | None, config: Path | None) -> Task:
    """Cancel a running job of one of your members on this host, or with an address of a cluster."""
    if address is None and config is None:
        return later("members", "cancel_job", job, as_json=as_json)
    return later("remote", "cancel_job", job, address, config, as_json=as_json)


lifecycle_commands.add_to(app)


@app.command(section=SEE)
@as_json(_LIST)
@of_a_cluster
def cluster(as_json: bool, address: str | None, config: Path | None) -> Task:
    """List your running members on this host, or with an address those of a cluster, the coordinator first."""
    if address is None and config is None:
        return later("members", "show_cluster", as_json=as_json)
    return later("remote", "show_cluster", address, config, as_json=as_json)


@app.command(section=SEE)
@_pid
@click.option("-o", "--output", type=FILE, metavar="FILE", help="Write to FILE.")
@as_json("Write one JSON object.")
@of_a_cluster
def dump(**options: Any) -> Task:
    """Write what an engineer needs for a report: versions, machine, settings, plans, states, rings, Python stacks.

    Of your running members on this host, or with an address of those of a cluster.

    No data of yours is in it and no secret; names of vertices and of files of code are.
    """
    return later("dump", "dump", **options)


@app.command(section=SEE)
@click.option(
    "--host",
    default="127.0.0.1",
    metavar="ADDRESS",
    help="Listen here; others than this host need the token.",
)
@click.option("--port", type=click.IntRange(0, 65535), default=8080, metavar="N", help="0: any that is free.")
@click.option(
    "--token-file", type=FILE, metavar="FILE", help="Holds the token that changes need; made if it is missing."
)
@click.option("--private", is_flag=True, help="Ask for the token before showing anything.")
@click.option(
    "--allow-host", multiple=True, metavar="NAME", help="Answer to this name too (a proxy's). May be repeated."
)
@_pid
@of_a_cluster
def console(allow_host: tuple[str, ...], **options: Any) -> Task:
    """Show running members in the browser: jobs, where they are held up, workers; and /metrics for Prometheus.

    Those of this user on this host, or with an address all members of a cluster.
    """
    return later("console", "console", allow_hosts=list(allow_host), **options)


@app.command(section=SET_UP)
@config_file
@click.option("--bind", metavar="HOST:PORT", help="Where to listen (0.0.0.0:5701 where there is a secret).")
@click.option("--join", multiple=True, metavar="HOST:PORT", help="A member to join (repeatable).")
@click.option("--cores", type=_AT_LEAST_ONE, metavar="N", help="Workers to use.")
@click.option("--supervise", is_flag=True, help="Start it again when its process has died.")
def member(config: Path | None, bind: str | None, join: tuple[str, ...], cores: int | None, supervise: bool) -> Task:
    """Be a member of a cluster until SIGTERM or Ctrl-C. Secrets come from the file or SHMJET_[MEMBER_]SECRET[_FILE]."""
    return later("member", "run_member", config, bind, list(join) or None, cores, supervise=supervise)


@app.command(section=SET_UP)
@as_json(_LIST)
def doctor(as_json: bool) -> Task:
    """Check this machine: cores, NUMA, limits, /dev/shm, Java, Spark; report each problem and how to fix it."""
    return later("doctor", "examine", as_json=as_json)


@app.command(section=SET_UP)
@click.argument(
    "shell",
    cls=Argument,
    default="",
    metavar="[SHELL]",
    text="bash, zsh or fish; by default the one you use.",
    shell_complete=lambda _context, _parameter, incomplete: shells(incomplete),
)
def completion(shell: str) -> Task:
    """Print what makes your shell complete commands and options.

    Put `eval "$(shmjet completion bash)"` into ~/.bashrc (zsh: ~/.zshrc), or for fish
    `shmjet completion fish > ~/.config/fish/completions/shmjet.fish`.
    """
    return later("completion", "show", shell)


@app.command(section=SET_UP)
@click.option("-o", "--output", type=FILE, metavar="FILE", help="Make FILE, for its owner alone; else it is printed.")
def secret(output: Path | None) -> Task:
    """Make a secret of 256 bits, for SHMJET_SECRET[_FILE] of members and clients, or SHMJET_MEMBER_SECRET[_FILE]."""
    return later("wire", "make_secret", output)


@app.command("wire-dump", section=SET_UP)
@click.argument(
    "capture", cls=Argument, metavar="FILE", text="What tcpdump or wireshark has captured; - for standard input."
)
def wire_dump(capture: str) -> Task:
    """Show what two members said to each other, a line for each packet and record.

    FILE is what `tcpdump -i any -w FILE port 5701` writes, in pcap or pcapng, or the bytes of one direction of a
    connection, as wireshark's "follow stream" saves them as raw.
    """
    return later("wire", "dump_wire", capture)


def _split_output(arguments: list[str], output: Path | None) -> tuple[list[str], Path | None]:
    """Find `-o FILE` behind the script too (`shmjet dag script.py -o out.svg`); what is behind `--` is the script's."""
    rest: list[str] = []
    remaining = iter(arguments)
    for argument in remaining:
        if argument == "--":
            rest.extend(remaining)
        elif argument in ("-o", "--output"):
            name = next(remaining, None)
            if name is None:
                raise CommandError(f"{argument} needs the name of a file")
            output = Path(name)
        elif argument.startswith("--output="):
            output = Path(argument.partition("=")[2])
        else:
            rest.append(argument)
    return rest, output


def run_application(arguments: list[str]) -> int:
    """Parse `arguments`, run the command that they name and return its exit status; usage errors are explained."""
    try:
        asked = app.main(args=arguments, prog_name="shmjet", standalone_mode=False)
    except click.Abort:
        raise KeyboardInterrupt from None
    except click.ClickException as error:
        _explain(error, bool(arguments))
        return error.exit_code
    if callable(asked):
        return int(asked())
    return asked if isinstance(asked, int) else Outcome.OK


def _explain(error: click.ClickException, has_arguments: bool) -> None:
    """Say what is wrong with a command line in one line, and where to read on; without any arguments, show the help."""
    context = getattr(error, "ctx", None)
    if context is not None and not has_arguments:
        print(context.get_help(), file=sys.stderr)
        return
    path = "shmjet" if context is None else context.command_path
    text = " ".join(error.format_message().split()).rstrip(".")
    complain(f"{text[:1].lower()}{text[1:]}; see `{path} --help`")
