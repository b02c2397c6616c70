"""The program that makes a job of a member's configuration: it calls the function and writes the result down.

The module must be installed or lie where `PYTHONPATH` says, on all members; the current folder does not count. What it
returns travels as the jobs of clients do.
"""

from __future__ import annotations

import importlib
import os
import sys
import traceback
from typing import Any

import msgspec

from shmjet.cluster.client.submission import listeners_of, submission_of
from shmjet.cluster.client.unsupported_settings import check_job
from shmjet.cluster.protocol import Submission
from shmjet.cluster.requests.named_jobs import Built, NotBuilt
from shmjet.core import DAG, JobConfig
from shmjet.data.errors import ConfigError
from shmjet.host.child_process import die_with_parent

_MOST_FRAMES = 5


def main() -> None:
    """Answer on a descriptor; the arguments are that, the function, the job's name and id, and the member's pid."""
    answer, function, name, job_id, member = sys.argv[1:]
    die_with_parent(int(member))
    try:
        result: Built | NotBuilt = Built(make(function, name, job_id))
    except BaseException as error:
        frames = traceback.format_exception(type(error), error, error.__traceback__, limit=-_MOST_FRAMES)
        result = NotBuilt("".join(frames).strip())
    with open(int(answer), "wb") as stream:
        stream.write(msgspec.msgpack.encode(result))
        stream.flush()
    sys.stdout.flush()
    os._exit(0)  # whatever the module has started ends here


def make(function: str, name: str, job_id: str) -> Submission:
    """Call "module:function" and return the job that it makes: a DAG or a pipeline, or a pair of one and a `JobConfig`.

    Raises:
        ConfigError: it is not a "module:function", or it returns something else.
    """
    module, _, attribute = function.partition(":")
    found = getattr(importlib.import_module(module), attribute, None)
    if not callable(found):
        raise ConfigError(f"the module {module!r} has no function {attribute!r}")
    given: Any = found()
    graph, config = given if isinstance(given, tuple) and len(given) == 2 else (given, JobConfig())
    if not isinstance(config, JobConfig) or not (isinstance(graph, DAG) or hasattr(graph, "to_dag")):
        raise ConfigError(f"{function}() must return a DAG or a Pipeline, or a pair of one and a JobConfig")
    config.name = name
    check_job(config)
    if config.attached_files:
        raise ConfigError("a job of a configuration attaches no files: read them where they are")
    dag = graph if isinstance(graph, DAG) else graph.to_dag(config)
    if listeners_of(dag):
        raise ConfigError("a job of a configuration has no client that could collect its results; use a sink")
    return submission_of(dag, config, job_id, {})
