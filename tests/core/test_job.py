"""Settings and states of jobs."""

import json
import pickle
from datetime import timedelta
from pathlib import Path

import pytest

from shmjet.core import ConfigError, JobConfig, JobStatus, PlanError, ProcessingGuarantee


def test_defaults_are_those_of_the_documentation():
    config = JobConfig()
    assert config.name is None
    assert config.processing_guarantee is ProcessingGuarantee.NONE
    assert config.snapshot_interval == 10.0
    assert config.auto_scaling
    assert not config.suspend_on_failure
    assert not config.split_brain_protection
    assert config.initial_snapshot_name is None
    assert config.intermediate_partitions is None


def test_durations_are_seconds_or_a_timedelta():
    config = JobConfig(snapshot_interval=timedelta(seconds=2), latency_target=timedelta(milliseconds=5))
    assert (config.snapshot_interval, config.latency_target) == (2.0, 0.005)
    with pytest.raises(ConfigError, match=r"JobConfig.snapshot_interval must be a number of seconds above 0"):
        config.snapshot_interval = timedelta(0)
    with pytest.raises(ConfigError, match=r"latency_target must be a number of seconds above 0, got 1.{1,80}$"):
        config.latency_target = 10**400


@pytest.mark.parametrize(
    ("field", "value", "text"),
    [
        ("name", "", "must be a non-empty text or None"),
        ("name", 3, "must be a non-empty text or None"),
        ("name", "caf\udce9", "has characters that UTF-8 has not"),
        ("processing_guarantee", "exactly_once", "must be one of ProcessingGuarantee.NONE"),
        ("snapshot_interval", 0, "must be a number of seconds above 0"),
        ("snapshot_interval", float("nan"), "above 0"),
        ("snapshot_interval", True, "above 0"),
        ("auto_scaling", 1, "must be True or False"),
        ("latency_target", 0, "must be a number of seconds above 0"),
        ("latency_target", "fast", "must be a number of seconds above 0"),
        ("suspend_on_failure", None, "must be True or False"),
        ("split_brain_protection", "no", "must be True or False"),
        ("initial_snapshot_name", "", "non-empty text"),
        ("allow_dropped_state", 1, "must be True or False"),
        ("max_state_bytes", 0, "must be at least 1"),
        ("initial_snapshot_name", "", "must be a non-empty text"),
        ("initial_snapshot_name", "../up", "must not begin with a dot"),
        ("initial_snapshot_name", "a/b", "nor hold a slash"),
        ("initial_snapshot_name", "a\nb", "control characters"),
        ("initial_snapshot_name", "ä" * 101, "at most 200 bytes"),
        ("intermediate_partitions", 0, "must be at least 1"),
        ("intermediate_partitions", 65536, "must be at most 65535"),
        ("intermediate_partitions", 1.5, "must be an integer"),
    ],
)
def test_a_wrong_value_names_its_field_when_made_and_when_set(field, value, text):
    with pytest.raises(ConfigError, match=f"JobConfig.{field} .*{text}"):
        JobConfig(**{field: value})
    with pytest.raises(ConfigError, match=f"JobConfig.{field} .*{text}"):
        setattr(JobConfig(), field, value)


def test_an_unknown_field_is_named():
    with pytest.raises(ConfigError, match=r"no field 'nmae'; fields: .*name"):
        JobConfig().nmae = "x"
    with pytest.raises(ConfigError, match=r"JobConfig: there is no setting 'nmae'; did you mean 'name'\?"):
        JobConfig(nmae="x")
    with pytest.raises(ConfigError, match=r"no setting 'modules'; fields: name, .*suspend_on_failure"):
        JobConfig(modules=())


def test_modules_are_added_once_and_travel_by_name():
    config = JobConfig().add_module(json).add_module(json)
    assert config.modules == (json,)
    copy = pickle.loads(pickle.dumps(config))
    assert copy.modules == ()
    assert copy.module_names == ("json",)
    with pytest.raises(ConfigError, match="takes an imported module, got 'json'"):
        config.add_module("json")


def test_files_are_attached_under_their_name_or_an_id(tmp_path):
    first, second = tmp_path / "a.txt", tmp_path / "b" / "a.txt"
    second.parent.mkdir()
    first.touch()
    second.touch()
    config = JobConfig()
    assert config.attach_file(first) is config
    config.attach_file(str(second), id="other").attach_file(first)
    assert config.attached_files == {"a.txt": first, "other": second}
    with pytest.raises(ConfigError, match=r"id 'a.txt' is taken by"):
        config.attach_file(second)
    with pytest.raises(ConfigError, match="is not a file"):
        config.attach_file(tmp_path)
    with pytest.raises(ConfigError, match="id must be a non-empty text"):
        config.attach_file(first, id="")
    with pytest.raises(ConfigError, match="id has characters that UTF-8 has not"):
        config.attach_file(first, id="caf\udce9")


def test_two_configs_share_nothing(tmp_path):
    file = tmp_path / "f"
    file.touch()
    JobConfig().attach_file(file)
    assert JobConfig().attached_files == {}


def test_a_config_survives_pickling():
    config = JobConfig(name="n", processing_guarantee=ProcessingGuarantee.EXACTLY_ONCE)
    assert pickle.loads(pickle.dumps(config)) == config


def test_failed_and_completed_are_the_end():
    assert {status for status in JobStatus if status.is_terminal} == {JobStatus.FAILED, JobStatus.COMPLETED}


def test_a_partition_count_that_is_wrong_is_wrong_as_a_setting_and_as_a_plan():
    for error in (ConfigError, PlanError):
        with pytest.raises(error, match=r"JobConfig\.intermediate_partitions must be at least 1, got -1"):
            JobConfig(intermediate_partitions=-1)


def test_memory_and_folder_of_a_job_are_checked(tmp_path: Path) -> None:
    config = JobConfig(memory_limit=1 << 30, spill_folder=tmp_path)  # type: ignore[arg-type]
    assert (config.memory_limit, config.spill_folder) == (1 << 30, str(tmp_path))
    for wrong in (0, -1, "1G", 1.5, True):
        with pytest.raises(ConfigError, match=r"JobConfig\.memory_limit must be"):
            JobConfig(memory_limit=wrong)  # type: ignore[arg-type]
    for wrong in ("", 7):
        with pytest.raises(ConfigError, match=r"JobConfig\.spill_folder must be a non-empty text or None"):
            JobConfig(spill_folder=wrong)  # type: ignore[arg-type]
