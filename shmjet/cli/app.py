"""The commands of `shmjet`, for typer: what they are called, what they take, what their help says.

What a command does is in a module of its own, which is imported when it is done. A function here only parses: it
returns what is to be done, so that it is done outside of typer, which has its own ideas of what to print at Ctrl-C.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Any

import typer

from shmjet.cli import lifecycle_commands
from shmjet.cli.arguments import RUN_JOBS, SEE, SET_UP, Address, ConfigFile, RunningJob, Task, later
from shmjet.cli.completion import VARIABLE, shells
from shmjet.cli.outcome import CommandError, Outcome, complain

_HELP = ["-h", "--help"]

app = typer.Typer(
    name="shmjet",
    help="Hazelcast Jet's engine in Python: a DAG of processors over shared-memory rings, on every core of one host.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": _HELP},
    epilog="Exit status: 0 fine, 1 the job failed, 2 wrong usage, 130 interrupted.",
)

_PASS_ON = {"allow_extra_args": True, "ignore_unknown_options": True, "allow_interspersed_args": False}


def _show_version(wanted: bool) -> None:
    if wanted:
        from shmjet import __version__  # read from the metadata of the package, which takes longer than parsing

        print(f"shmjet {__version__}")
        raise typer.Exit


@app.callback()
def _common(
    _version: Annotated[
        bool, typer.Option("--version", "-V", callback=_show_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    pass


@app.command(rich_help_panel=RUN_JOBS)
def wordcount(
    paths: Annotated[list[str], typer.Argument(metavar="PATH...", help="Files, folders (with all in them) and globs.")],
    top: Annotated[int, typer.Option(min=0, metavar="N", help="How many of the most frequent words to print.")] = 20,
    cores: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Workers to use.", show_default="one per core of a NUMA node")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    output: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write all words to FILE as word, tab, count.")
    ] = None,
    columns: Annotated[
        bool, typer.Option("--columns/--objects", help="Count in native code, or by Python functions on lines.")
    ] = True,
    progress: Annotated[
        bool, typer.Option("--progress/--no-progress", help="Show how far it is, if standard error is a terminal.")
    ] = True,
) -> Task:
    """Count the words of text files. A word is what line.lower().split() gives; binary files are skipped."""
    options = {"top": top, "cores": cores, "as_json": as_json, "output": output, "columns": columns}
    return later("wordcount", "wordcount", paths, **options, progress=progress)


@app.command(context_settings=_PASS_ON, rich_help_panel=RUN_JOBS)
def run(
    context: typer.Context,
    script: Annotated[Path, typer.Argument(metavar="SCRIPT [ARGS]...", help="A Python script and its arguments.")],
    progress: Annotated[
        bool, typer.Option("--progress", help="Show what each job does while it runs, if standard error is a terminal.")
    ] = False,
) -> Task:
    """Run a script as Python would; a job that fails is reported without the engine's own frames.

    Options for shmjet come before the script, everything behind it is the script's.
    """
    return later("script", "run_script", script, context.args, progress=progress)


@app.command(context_settings=_PASS_ON, rich_help_panel=RUN_JOBS)
def submit(
    context: typer.Context,
    script: Annotated[
        Path | None, typer.Argument(metavar="SCRIPT [ARGS]...", help="A Python script and its arguments.")
    ] = None,
    address: Address = None,
    config: ConfigFile = None,
    progress: Annotated[
        bool, typer.Option("--progress", help="Show what each job does while it runs, if standard error is a terminal.")
    ] = False,
    named: Annotated[
        str | None, typer.Option("--named", metavar="NAME", help="Instead of a script: a job that the members know.")
    ] = None,
) -> Task:
    """Run a script whose `shmjet.new_instance()` is a client of a running cluster: its jobs run there.

    Members that take no code run the jobs of their own configuration: --named NAME.
    """
    if (script is None) == (named is None):
        raise CommandError("submit takes either a SCRIPT or --named NAME")
    if named is not None:
        return later("remote", "submit_named", named, address, config, progress=progress)
    return later("remote", "submit_script", script, context.args, address, config, progress=progress)


@app.command(context_settings=_PASS_ON, rich_help_panel=RUN_JOBS)
def dag(
    context: typer.Context,
    script: Annotated[Path, typer.Argument(metavar="SCRIPT [ARGS]...", help="A Python script and its arguments.")],
    output: Annotated[
        Path | None, typer.Option("-o", "--output", metavar="FILE", help="FILE.svg or FILE.dot; else DOT is printed.")
    ] = None,
) -> Task:
    """Draw the DAG of the first job that a script submits, without running the job."""
    arguments, destination = _split_output(context.args, output)
    return later("dag", "draw", script, arguments, destination)


_PID = Annotated[
    int | None,
    typer.Option(
        "--pid", metavar="PID", help="Of the member, of the process that started it or of a worker; else all."
    ),
]


@app.command(rich_help_panel=SEE)
def top(
    pid: _PID = None,
    once: Annotated[bool, typer.Option("--once", help="Print one snapshot; the default without a terminal.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one snapshot as a JSON list.")] = False,
    interval: Annotated[float, typer.Option(min=0.05, metavar="S", help="Seconds between two snapshots.")] = 1.0,
    address: Address = None,
    config: ConfigFile = None,
) -> Task:
    """Watch your running members on this host, or with an address those of a cluster: workers, jobs, the full edge.

    On this host it reads shared memory only and takes no time from the jobs. Ctrl-C ends it.
    """
    options = {"pid": pid, "once": once, "as_json": as_json, "interval": interval}
    return later("top", "top", **options, address=address, config=config)


@app.command(rich_help_panel=SEE)
def jobs(
    everything: Annotated[bool, typer.Option("-a", "--all", help="List ended jobs, too.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print a JSON list.")] = False,
    address: Address = None,
    config: ConfigFile = None,
) -> Task:
    """List the jobs of your running members on this host, or with an address those of a cluster."""
    if address is None and config is None:
        return later("members", "show_jobs", everything=everything, as_json=as_json)
    return later("remote", "list_jobs", address, config, everything=everything, as_json=as_json)


@app.command(rich_help_panel=SEE)
def cancel(
    job: RunningJob,
    as_json: Annotated[bool, typer.Option("--json", help="Print a JSON object.")] = False,
    address: Address = None,
    config: ConfigFile = None,
) -> Task:
    """Cancel a running job of one of your members on this host, or with an address of a cluster."""
    if address is None and config is None:
        return later("members", "cancel_job", job, as_json=as_json)
    return later("remote", "cancel_job", job, address, config, as_json=as_json)


lifecycle_commands.add_to(app)


@app.command(rich_help_panel=SEE)
def cluster(
    as_json: Annotated[bool, typer.Option("--json", help="Print a JSON list.")] = False,
    address: Address = None,
    config: ConfigFile = None,
) -> Task:
    """List your running members on this host, or with an address those of a cluster, the coordinator first."""
    if address is None and config is None:
        return later("members", "show_cluster", as_json=as_json)
    return later("remote", "show_cluster", address, config, as_json=as_json)


@app.command(rich_help_panel=SEE)
def dump(
    pid: _PID = None,
    output: Annotated[Path | None, typer.Option("-o", "--output", metavar="FILE", help="Write to FILE.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Write one JSON object.")] = False,
    address: Address = None,
    config: ConfigFile = None,
) -> Task:
    """Write what an engineer needs for a report: versions, machine, settings, plans, states, rings, Python stacks.

    Of your running members on this host, or with an address of those of a cluster.

    No data of yours is in it and no secret; names of vertices and of files of code are.
    """
    return later("dump", "dump", pid=pid, output=output, as_json=as_json, address=address, config=config)


@app.command(rich_help_panel=SEE)
def console(
    host: Annotated[str, typer.Option(metavar="ADDRESS", help="Listen here; others than this host need the token.")] = (
        "127.0.0.1"
    ),
    port: Annotated[int, typer.Option(min=0, max=65535, metavar="N", help="0: any that is free.")] = 8080,
    token_file: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Holds the token that changes need; made if it is missing.")
    ] = None,
    private: Annotated[bool, typer.Option("--private", help="Ask for the token before showing anything.")] = False,
    allow_host: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="Answer to this name too (a proxy's). May be repeated.")
    ] = None,
    pid: _PID = None,
    address: Address = None,
    config: ConfigFile = None,
) -> Task:
    """Show running members in the browser: jobs, where they are held up, workers; and /metrics for Prometheus.

    Those of this user on this host, or with an address all members of a cluster.
    """
    return later(
        "console",
        "console",
        host=host,
        port=port,
        token_file=token_file,
        private=private,
        allow_hosts=allow_host or [],
        pid=pid,
        address=address,
        config=config,
    )


@app.command(rich_help_panel=SET_UP)
def member(
    config: ConfigFile = None,
    bind: Annotated[
        str | None, typer.Option(metavar="HOST:PORT", help="Where to listen (0.0.0.0:5701 where there is a secret).")
    ] = None,
    join: Annotated[list[str] | None, typer.Option(metavar="HOST:PORT", help="A member to join (repeatable).")] = None,
    cores: Annotated[int | None, typer.Option(min=1, metavar="N", help="Workers to use.")] = None,
    supervise: Annotated[bool, typer.Option("--supervise", help="Start it again when its process has died.")] = False,
) -> Task:
    """Be a member of a cluster until SIGTERM or Ctrl-C. Secrets come from the file or SHMJET_[MEMBER_]SECRET[_FILE]."""
    return later("member", "run_member", config, bind, join, cores, supervise=supervise)


@app.command(rich_help_panel=SET_UP)
def doctor(as_json: Annotated[bool, typer.Option("--json", help="Print a JSON list.")] = False) -> Task:
    """Check this machine: cores, NUMA, limits, /dev/shm, Java, Spark; report each problem and how to fix it."""
    return later("doctor", "examine", as_json=as_json)


@app.command(rich_help_panel=SET_UP)
def completion(
    shell: Annotated[
        str,
        typer.Argument(metavar="SHELL", help="bash, zsh or fish; by default the one you use.", autocompletion=shells),
    ] = "",
) -> Task:
    """Print what makes your shell complete commands and options.

    Put `eval "$(shmjet completion bash)"` into ~/.bashrc (zsh: ~/.zshrc), or for fish
    `shmjet completion fish > ~/.config/fish/completions/shmjet.fish`.
    """
    return later("completion", "show", shell)


@app.command(rich_help_panel=SET_UP)
def secret(
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", metavar="FILE", help="Make FILE, for its owner alone; else it is printed."),
    ] = None,
) -> Task:
    """Make a secret of 256 bits, for SHMJET_SECRET[_FILE] of members and clients, or SHMJET_MEMBER_SECRET[_FILE]."""
    return later("wire", "make_secret", output)


@app.command("wire-dump", rich_help_panel=SET_UP)
def wire_dump(
    capture: Annotated[
        str, typer.Argument(metavar="FILE", help="What tcpdump or wireshark has captured; - for standard input.")
    ],
) -> Task:
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
    if VARIABLE in os.environ:
        from typer import completion

        vars(completion)["completion_init"]()  # or its scripts would get the answers of another protocol
    command = typer.main.get_command(app)
    _show_flags_plainly(command)
    try:
        asked = command.main(args=arguments, prog_name="shmjet", standalone_mode=False)
    except typer.Abort:
        raise KeyboardInterrupt from None
    except typer.Exit as request:
        return request.exit_code
    except Exception as error:
        if not hasattr(error, "show") or not hasattr(error, "exit_code"):
            raise
        _explain(error)
        return int(error.exit_code)
    if callable(asked):
        return int(asked())
    if asked == Outcome.INTERRUPTED:  # what newer versions of typer make of Ctrl-C
        raise KeyboardInterrupt
    return asked if isinstance(asked, int) else Outcome.OK


def _show_flags_plainly(command: Any) -> None:
    """Have help say `--json`, not `--json <bool>`, as newer versions of typer do."""
    for each in (command, *getattr(command, "commands", {}).values()):
        for option in (*each.params, each.get_help_option(typer.Context(each, help_option_names=_HELP))):
            if getattr(option, "is_flag", False) and option.metavar is None:
                option.metavar = ""


def _explain(error: Any) -> None:
    """Say what is wrong with a command line in one line, and where to read on; without any arguments, show the help."""
    if type(error).__name__ == "NoArgsIsHelpError" or not hasattr(error, "format_message"):
        error.show()
        return
    path = getattr(getattr(error, "ctx", None), "command_path", "shmjet")
    text = " ".join(error.format_message().split()).rstrip(".")
    complain(f"{text[:1].lower()}{text[1:]}; see `{path} --help`")
