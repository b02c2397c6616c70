"""Where the settings of an instance come from, and what they may be."""

import dataclasses
import os
import pickle
from datetime import timedelta

import pytest

from shmjet.core import ConfigError, JetConfig, MapConfig
from shmjet.core.map_config import config_of, most_backups


@pytest.fixture(autouse=True)
def no_settings_from_outside(monkeypatch):
    for name in [name for name in os.environ if name.startswith("SHMJET_")]:
        monkeypatch.delenv(name)


@pytest.fixture
def toml(tmp_path):
    path = tmp_path / "jet.toml"
    path.write_text('cluster_name = "file"\ncores = 3\npartition_count = 7\nmembers = ["a:1"]\n')
    return path


def test_defaults_are_those_of_the_documentation():
    config = JetConfig()
    assert (config.cluster_name, config.cores, config.bind, config.members, config.discovery) == (
        "dev",
        None,
        None,
        (),
        None,
    )
    assert (config.secret, config.tls, config.partition_count, config.backup_count) == (None, None, 271, 1)
    assert (config.storage, config.flow_control_period, config.scale_up_delay) == ("memory", 0.1, 10.0)
    assert config.work_stealing
    assert config.idle_min <= config.idle_max


def test_argument_beats_environment_beats_file_beats_default(monkeypatch, toml):
    monkeypatch.setenv("SHMJET_CORES", "5")
    monkeypatch.setenv("SHMJET_PARTITION_COUNT", "9")
    config = JetConfig.from_toml(toml, cores=6)
    assert (config.cores, config.partition_count, config.cluster_name, config.backup_count) == (6, 9, "file", 1)
    assert (JetConfig(cores=2).cores, JetConfig().cores) == (2, 5)


@pytest.mark.parametrize(
    ("field", "text", "value"),
    [
        ("cores", "4", 4),
        ("cores", "", None),
        ("cores", "0,2", (0, 2)),
        ("cores", "2,", (2,)),
        ("cores", "0-2,5", (0, 1, 2, 5)),
        ("members", "a:1, b:2", ("a:1", "b:2")),
        ("work_stealing", "off", False),
        ("work_stealing", "True", True),
        ("idle_min", "0", 0.0),
        ("ring_memory", "1048576", 1 << 20),
        ("secret", "s", "s"),
        ("member_secret", "s", "s"),
        ("tls", "cert=/a, key=/b", {"cert": "/a", "key": "/b"}),
        ("storage", "/var/jet", "/var/jet"),
        ("maps", '{"logs-*": {"journal_capacity": 5}}', {"logs-*": MapConfig(journal_capacity=5)}),
    ],
)
def test_the_environment_is_read_as_the_fields_type(monkeypatch, field, text, value):
    monkeypatch.setenv(f"SHMJET_{field.upper()}", text)
    assert getattr(JetConfig(), field) == value


@pytest.mark.parametrize(
    ("field", "text"),
    [
        ("cores", "four"),
        ("cores", "0"),
        ("work_stealing", "maybe"),
        ("idle_max", "fast"),
        ("tls", "x"),
        ("bind", "here"),
        ("maps", "{"),
        ("maps", '{"m": {"max_bytes": 0}}'),
        ("maps", "[1]"),
    ],
)
def test_a_wrong_text_names_field_and_variable(monkeypatch, field, text):
    monkeypatch.setenv(f"SHMJET_{field.upper()}", text)
    with pytest.raises(ConfigError, match=rf"JetConfig.{field} \(from SHMJET_{field.upper()}\)"):
        JetConfig()


@pytest.mark.parametrize(
    ("field", "value", "text"),
    [
        ("cluster_name", "", "non-empty text"),
        ("storage", "/data/caf\udce9", "characters that UTF-8 has not"),
        ("cores", 0, "must be at least 1, got 0"),
        ("cores", True, "must be an integer"),
        ("cores", "4", "must be an integer, got '4'"),
        ("cores", 8193, "must be at most 8192, got 8193"),
        ("cores", [], "at least one core number"),
        ("cores", [1, 1], "none twice"),
        ("cores", [-1], "a core number must be at least 0"),
        ("bind", "nowhere", "must be an address such as"),
        ("bind", "host:99999", "must be an address"),
        ("members", "a:1", "must be a list of addresses"),
        ("members", ["a"], "must be an address"),
        ("discovery", 3, "non-empty text"),
        ("secret", 7, "must be a non-empty text or bytes, got one of type int"),
        ("tls", True, "must be a mapping"),
        ("partition_count", 0, "must be at least 1"),
        ("partition_count", 65536, "must be at most 65535"),
        ("backup_count", 7, "must be at most 6"),
        ("storage", None, "non-empty text"),
        ("storage", "a\0b", "a character that no path may have"),
        ("maps", [1], "must be a mapping of names or patterns"),
        ("maps", {"": MapConfig()}, "non-empty texts"),
        ("maps", {"m": 5}, r"\['m'\] must be a MapConfig, got 5"),
        ("maps", {"m": {"evict": "lru"}}, r"\['m'\]: MapConfig: there is no setting 'evict'"),
        ("maps", {"m": {"eviction": "fifo"}}, r"\['m'\]: MapConfig.eviction must be 'none' or 'lru'"),
        ("flow_control_period", 0, "seconds above 0"),
        ("idle_min", -1, "seconds of at least 0"),
        ("idle_max", "1", "seconds above 0"),
        ("work_stealing", 1, "must be True or False"),
        ("scale_up_delay", float("inf"), "seconds of at least 0"),
        ("ring_memory", 4096, "must be at least 1048576"),
    ],
)
def test_a_wrong_value_names_its_field(field, value, text):
    with pytest.raises(ConfigError, match=f"JetConfig.{field}.*{text}"):
        JetConfig(**{field: value})


def test_durations_are_seconds_or_a_timedelta():
    config = JetConfig(
        scale_up_delay=timedelta(minutes=1), storage_sync=timedelta(0), idle_min=timedelta(microseconds=7)
    )
    assert (config.scale_up_delay, config.storage_sync, config.idle_min) == (60.0, 0.0, 7e-6)
    with pytest.raises(ConfigError, match=r"flow_control_period must be .* above 0, got datetime.timedelta\(0\)"):
        JetConfig(flow_control_period=timedelta(0))


def test_fields_that_contradict_each_other_are_refused():
    with pytest.raises(ConfigError, match=r"idle_max .* must not be below idle_min"):
        JetConfig(idle_min=1.0, idle_max=0.5)
    with pytest.raises(ConfigError, match="bind is 'h:1', but no secret is set"):
        JetConfig(bind="h:1")
    assert JetConfig(bind="h:1", secret=b"s").secret == b"s"


def test_a_member_that_takes_no_code_needs_a_member_secret_that_clients_do_not_know():
    with pytest.raises(ConfigError, match=r"allow_code is False, but no member_secret is set.*SHMJET_MEMBER_SECRET"):
        JetConfig(bind="h:1", secret="s", allow_code=False)
    with pytest.raises(ConfigError, match="member_secret must differ from secret"):
        JetConfig(bind="h:1", secret="s", member_secret="s")
    assert JetConfig(bind="h:1", secret="s", member_secret="m", allow_code=False).member_secret == "m"
    assert JetConfig(bind="h:1", secret="s", member_secret="m").allow_code
    assert JetConfig(allow_code=False).bind is None, "without a network no secret is needed"


def test_a_wrong_file_is_named(toml, tmp_path):
    toml.write_text("corse = 3")
    with pytest.raises(ConfigError, match=r"jet.toml': there is no setting 'corse'; did you mean 'cores'\?"):
        JetConfig.from_toml(toml)
    toml.write_text("cores = 'x'")
    with pytest.raises(ConfigError, match=r"cores in '.*jet.toml' must be an integer"):
        JetConfig.from_toml(toml)
    toml.write_text("cores = ")
    with pytest.raises(ConfigError, match="is not valid TOML"):
        JetConfig.from_toml(toml)
    with pytest.raises(ConfigError, match=r"cannot read .*: No such file"):
        JetConfig.from_toml(tmp_path / "missing.toml")


def test_an_unknown_override_is_named(toml):
    with pytest.raises(ConfigError, match="did you mean 'cores'"):
        JetConfig.from_toml(toml, core=1)


def test_an_unknown_setting_is_named():
    with pytest.raises(ConfigError, match=r"JetConfig: there is no setting 'core'; did you mean 'cores'\?"):
        JetConfig(core=1)
    assert dataclasses.replace(JetConfig(cores=2), idle_min=0).cores == 2


def test_a_config_is_frozen_and_survives_pickling(monkeypatch):
    config = JetConfig(cores=[0, 1], members=["a:1"])
    monkeypatch.setenv("SHMJET_BACKUP_COUNT", "3")
    assert pickle.loads(pickle.dumps(config)) == config
    with pytest.raises(AttributeError):
        config.cores = 2


def test_the_secret_is_never_shown():
    assert repr(JetConfig(secret="hidden", cores=1)) == "JetConfig(cores=1, secret=***)"
    assert repr(JetConfig(member_secret="hidden", cores=1)) == "JetConfig(cores=1, member_secret=***)"


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"backup_count": 7}, "backup_count must be at most 6"),
        ({"backup_count": True}, "backup_count must be an integer"),
        ({"min_backups": 7}, "min_backups must be at most 6"),
        ({"journal_capacity": -1}, "journal_capacity must be at least 0"),
        ({"journal_capacity": 1.5}, "journal_capacity must be an integer"),
        ({"max_bytes": 0}, "max_bytes must be at least 1"),
        ({"max_bytes": "1"}, "max_bytes must be an integer"),
        ({"eviction": "lru"}, "eviction is 'lru', but max_bytes is not set"),
        ({"eviction": None}, "eviction must be 'none' or 'lru'"),
        ({"max_byte": 1}, "did you mean 'max_bytes'"),
    ],
)
def test_a_wrong_setting_of_a_map_names_its_field(settings, text):
    with pytest.raises(ConfigError, match=text):
        MapConfig(**settings)


def test_a_map_has_the_settings_of_its_name_or_of_the_first_pattern_that_fits(tmp_path):
    path = tmp_path / "jet.toml"
    path.write_text(
        '[maps."logs-*"]\njournal_capacity = 1\n[maps."logs-a"]\njournal_capacity = 2\n[maps."*"]\nmax_bytes = 3\n'
    )
    maps = JetConfig.from_toml(path).maps
    assert config_of("logs-a", maps).journal_capacity == 2
    assert config_of("logs-b", maps).journal_capacity == 1
    assert config_of("Logs-b", maps).max_bytes == 3
    assert config_of("Logs-b", {}) == MapConfig()


def test_settings_of_maps_that_need_what_is_not_built_are_refused():
    backups = {"m": MapConfig(backup_count=2, min_backups=2)}
    assert most_backups(1, JetConfig(maps=backups, bind="h:1", secret="s").maps) == 2
    assert most_backups(1, {"m": MapConfig(backup_count=0)}) == 1
    assert most_backups(JetConfig(backup_count=0).backup_count, {}) == 0
    with pytest.raises(ConfigError, match=r"maps\['m'\].min_backups is 2, but without bind there are no other members"):
        JetConfig(maps=backups)
    with pytest.raises(ConfigError, match=r"maps\['m'\].min_backups is 2, but backup_count is 1"):
        JetConfig(maps={"m": MapConfig(min_backups=2)}, bind="h:1", secret="s")
    with pytest.raises(ConfigError, match="storage_sync"):
        JetConfig(storage="/var/jet", storage_sync=-1)
