"""What a member is told of a job in plain data, for it does not unpickle the config."""

from __future__ import annotations

from dataclasses import fields

from shmjet import DAG, JobConfig, ProcessingGuarantee, processors
from shmjet.cluster.client.submission import submission_of
from shmjet.cluster.lifecycle_messages import RunSettings


def settings_of(config: JobConfig) -> RunSettings:
    dag = DAG()
    dag.new_vertex("items", processors.read_items(range(3)))
    return submission_of(dag, config, "0" * 16, {}).settings


def test_the_coordinator_reads_the_settings_of_a_job_in_plain_data() -> None:
    config = JobConfig(
        processing_guarantee=ProcessingGuarantee.EXACTLY_ONCE,
        suspend_on_failure=True,
        initial_snapshot_name="before",
        allow_dropped_state=True,
        max_state_bytes=1 << 20,
    )
    assert settings_of(config) == RunSettings("exactly_once", 10.0, True, "before", True, 1 << 20)


def test_the_defaults_are_those_of_a_config() -> None:
    assert settings_of(JobConfig()) == RunSettings()
    assert {"allow_dropped_state", "max_state_bytes"} < {field.name for field in fields(JobConfig)}
