"""The server's configuration: four sources in order, names in two spellings, and every mistake told with its place."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.model.config import MIB, BrokerConfig, TopicConfig
from penstock.model.errors import InvalidArgument
from penstock.server.config import ConfigError, Loaded, ServerConfig, load_config
from penstock.server.settings.table import FOREIGN, SETTINGS, Setting, camel
from penstock.server.settings.values import read
from penstock.server.settings.writing import field_texts, write_example, write_value

ROOT = Path(__file__).parent.parent.parent
ALL = pytest.mark.parametrize("setting", SETTINGS.values(), ids=SETTINGS)

GOQUEUE = """\
broker:
  nodeId: "node-1"
  dataDir: "/var/lib/goqueue"
  
  listeners:
    http: ":8080"
    grpc: ":9000"
    
defaults:
  topic:
    partitions: 6
    replicationFactor: 2
    retention:
      hours: 168          # 7 days
      bytes: 10737418240  # 10GB
      
  delivery:
    visibilityTimeout: 30s
    maxRetries: 3
    dlqEnabled: true
    
  delay:
    enabled: true
    maxDelay: 168h        # 7 days max delay
    
  priority:
    lanes: 3              # high, normal, low
"""  # noqa: W293 - as it stands in that project's README


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def load(text: str, environment: dict[str, str] | None = None, **flags: object) -> Loaded:
    """The configuration with this text as its file."""
    file = Path("penstock.yaml")
    file.write_text(text)
    return load_config(file, environment or {}, flags)


def problems(text: str | None, environment: dict[str, str] | None = None, **flags: object) -> list[str]:
    with pytest.raises(ConfigError) as refused:
        if text is None:
            load_config(None, environment or {}, flags)
        else:
            load(text, environment, **flags)
    assert isinstance(refused.value, InvalidArgument)
    told = [str(problem) for problem in refused.value.problems]
    assert str(refused.value) == ";\n".join(told)
    return told


def topic(text: str) -> TopicConfig:
    return load(text).config.broker.topic_defaults


# Sources.


def test_without_any_source_all_is_default() -> None:
    loaded = load_config(None, {}, {})
    assert loaded.config == ServerConfig() == ServerConfig.parse({})
    assert set(loaded.origins.values()) == {"default"}
    assert loaded.notices == []


def test_the_defaults_are_safe() -> None:
    config = ServerConfig()
    assert (config.host, config.native_port, config.broker.sync) == ("127.0.0.1", 9000, "always")
    assert config.max_frame_bytes > config.broker.max_batch_bytes


def test_a_file_is_read() -> None:
    loaded = load(
        "server: {host: 0.0.0.0, native_port: 0, data_dir: ./data, log_level: debug}\n"
        "broker: {sync: interval, max_value_bytes: 1MiB}\n"
        "topic_defaults:\n"
        "  partitions: 4\n"
        "  retention_age: 7d\n"
        "  retention_bytes: 10GB\n"
        "  protect_unacked: true\n"
        "  lane_weights: {high: 5, 200: 2}\n"
        "  archive: 2026-01-01\n"
    )
    config = loaded.config
    assert (config.host, config.native_port, config.data_dir, config.log_level) == ("0.0.0.0", 0, "./data", "debug")
    assert config.broker == BrokerConfig(
        sync="interval",
        max_value_bytes=MIB,
        topic_defaults=TopicConfig(
            partitions=4,
            retention_age=604800.0,
            retention_bytes=10**10,
            protect_unacked=True,
            lane_weights=((64, 5), (200, 2)),
            archive="2026-01-01",
        ),
    )
    assert loaded.origins["topic_defaults.partitions"] == "penstock.yaml:4"


def test_flags_go_before_the_environment_before_the_file_before_the_defaults() -> None:
    file = "server: {native_port: 1, host: a, log_level: debug}"
    variables = {"PENSTOCK_NATIVE_PORT": "2", "PENSTOCK_HOST": "b"}
    loaded = load(file, variables, native_port="3", log_level=None)
    config = loaded.config
    assert (config.native_port, config.host, config.log_level, config.log_format) == (3, "b", "debug", "auto")
    origins = [loaded.origins[f"server.{name}"] for name in ("native_port", "host", "log_level", "log_format")]
    assert origins == ["--native-port", "PENSTOCK_HOST", "penstock.yaml:1", "default"]


def test_the_environment_may_name_the_file_and_an_argument_goes_before_it() -> None:
    Path("one.yaml").write_text("server: {native_port: 1}")
    Path("two.yaml").write_text("server: {native_port: 2}")
    variables = {"PENSTOCK_CONFIG": "one.yaml"}
    assert load_config(None, variables, {}).config.native_port == 1
    assert load_config(Path("two.yaml"), variables, {}).config.native_port == 2


def test_variables_of_others_are_left_alone() -> None:
    others = (
        *("PENSTOCK_SERVER", "PENSTOCK_TOKEN", "PENSTOCK_TLS", "PENSTOCK_CA", "PENSTOCK_CERT", "PENSTOCK_KEY"),
        *("PENSTOCK_DIR", "PENSTOCK_OUTPUT", "PENSTOCK_SEED", "PATH"),
    )
    assert load_config(None, dict.fromkeys(others, "x"), {}).config == ServerConfig()


def test_what_kubernetes_adds_for_a_service_called_penstock_is_left_alone() -> None:
    added = {
        "PENSTOCK_SERVICE_HOST": "10.0.0.11",
        "PENSTOCK_SERVICE_PORT": "9000",
        "PENSTOCK_SERVICE_PORT_NATIVE": "9000",
        "PENSTOCK_PORT": "tcp://10.0.0.11:9000",
        "PENSTOCK_PORT_9000_TCP": "tcp://10.0.0.11:9000",
        "PENSTOCK_PORT_9000_TCP_PROTO": "tcp",
        "PENSTOCK_PORT_9000_TCP_PORT": "9000",
        "PENSTOCK_PORT_9000_TCP_ADDR": "10.0.0.11",
        "PENSTOCK_NATIVE_SERVICE_HOST": "10.0.0.12",
        "PENSTOCK_NATIVE_PORT": "tcp://10.0.0.12:9000",
    }
    assert load_config(None, added, {}).config == ServerConfig()
    (problem,) = problems(None, {"PENSTOCK_PORT": "9000"})
    assert problem.startswith("PENSTOCK_PORT: there is no such option, did you mean PENSTOCK_")


@ALL
def test_every_option_can_be_given_in_every_source_and_spelling(setting: Setting) -> None:
    written = write_value(setting.name, setting.default)
    camelled = f"{camel(setting.section)}: {{{camel(setting.name)}: {written}}}"
    assert load(f"{setting.section}: {{{setting.name}: {written}}}").origins[setting.key] == "penstock.yaml:1"
    assert load(camelled).origins[setting.key] == "penstock.yaml:1"
    flag = f"--{setting.flat.replace('_', '-')}"
    plain = "" if written in ("{}", '""', "''") else written
    for variables, flags, origin in (
        ({setting.variable: plain}, {}, setting.variable),
        ({}, {setting.flat: plain}, flag),
        ({}, {setting.flat: setting.default}, "default" if setting.default is None else flag),
    ):
        loaded = load_config(None, variables, flags)
        assert loaded.config == ServerConfig()
        assert loaded.origins[setting.key] == origin


def test_values_of_the_environment_are_read_as_in_a_file() -> None:
    variables = {
        "PENSTOCK_IDLE_TIMEOUT": "2.5",
        "PENSTOCK_MAX_BUFFERED_BYTES": "1GB",
        "PENSTOCK_BROKER_MAX_PRODUCERS": "1_000",
        "PENSTOCK_TOPIC_PROTECT_UNACKED": "True",
        "PENSTOCK_TOPIC_RETENTION_AGE": "none",
        "PENSTOCK_TOPIC_LANE_WEIGHTS": "high=5, 200=2",
    }
    config = load_config(None, variables, {}).config
    assert (config.idle_timeout, config.max_buffered_bytes, config.broker.max_producers) == (2.5, 10**9, 1000)
    defaults = config.broker.topic_defaults
    assert (defaults.protect_unacked, defaults.retention_age) == (True, None)
    assert defaults.lane_weights == ((64, 5), (200, 2))


# GoQueue's file.


def test_the_file_of_goqueue_works_unchanged() -> None:
    loaded = load(GOQUEUE)
    assert loaded.config == ServerConfig(
        data_dir="/var/lib/goqueue",
        broker=BrokerConfig(
            topic_defaults=TopicConfig(
                partitions=6,
                retention_age=168 * 3600.0,
                retention_bytes=10737418240,
                visibility_timeout=30.0,
                max_deliveries=3,
                max_delay=168 * 3600.0,
            )
        ),
    )
    assert loaded.origins["server.http_port"] == "penstock.yaml:6"
    assert loaded.origins["server.native_port"] == "penstock.yaml:7"
    assert loaded.origins["server.host"] == "default"
    notices = {notice.message.split(":")[0]: str(notice) for notice in loaded.notices}
    assert list(notices) == [
        "broker.nodeId",
        "broker.listeners.grpc",
        "defaults.topic.replicationFactor",
        "defaults.delivery.maxRetries",
        "defaults.priority.lanes",
    ]
    assert notices["broker.nodeId"].startswith("penstock.yaml:2:3: ")
    assert "fsync" in notices["defaults.topic.replicationFactor"]
    assert "no copies on other machines" in notices["defaults.topic.replicationFactor"]
    assert "256 lanes" in notices["defaults.priority.lanes"]


def test_its_names_and_ours_can_be_mixed() -> None:
    loaded = load(
        "broker: {dataDir: /data, sync: never}\ntopicDefaults: {partitions: 2}\ndefaults: {delay: {max_delay: 1h}}"
    )
    assert (loaded.config.data_dir, loaded.config.broker.sync) == ("/data", "never")
    assert loaded.config.broker.topic_defaults == TopicConfig(partitions=2, max_delay=3600.0)
    assert loaded.notices == []


def test_the_same_option_under_both_names_is_a_problem() -> None:
    text = "topic_defaults:\n  partitions: 2\ndefaults:\n  topic:\n    partitions: 2\n"
    assert problems(text) == [
        "penstock.yaml:5:5: defaults.topic.partitions sets topic_defaults.partitions, which penstock.yaml:2 sets too"
    ]


@pytest.mark.parametrize(
    ("address", "host", "port"),
    [
        (":9", "127.0.0.1", 9),
        ("0.0.0.0:9", "0.0.0.0", 9),
        ("[::1]:9", "::1", 9),
        ("queue.example:0", "queue.example", 0),
    ],
)
def test_its_listener_is_a_host_and_a_port(address: str, host: str, port: int) -> None:
    config = load(f"broker: {{listeners: {{grpc: '{address}'}}}}").config
    assert (config.host, config.native_port) == (host, port)


def test_its_listeners_have_one_host() -> None:
    config = load("broker: {listeners: {http: '[::1]:8', grpc: '[::1]:9'}}").config
    assert (config.host, config.http_port, config.native_port) == ("::1", 8, 9)
    (problem,) = problems("broker:\n  listeners:\n    http: '127.0.0.2:8'\n    grpc: '127.0.0.1:9'\n")
    told = "all ports have one host, and penstock.yaml:3 sets '127.0.0.2' already"
    assert problem == f"penstock.yaml:4:5: broker.listeners.grpc: {told}"


@pytest.mark.parametrize(("retries", "deliveries"), [(0, 1), (1, 1), (3, 3), (10, 10)])
def test_its_retries_are_failed_deliveries(retries: int, deliveries: int) -> None:
    assert topic(f"defaults: {{delivery: {{maxRetries: {retries}}}}}").max_deliveries == deliveries


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("broker: {listeners: {grpc: 9000}}", "1:28: broker.listeners.grpc: '9000' is not an address such as ':9000'"),
        ("broker: {listeners: {grpc: ':70000'}}", "1:28: broker.listeners.grpc: 70000 is not a whole number"),
        ("broker: {listeners: {grpc: ':http'}}", "1:28: broker.listeners.grpc: ':http' is not an address"),
        ("broker: {listeners: {grpc: {a: 1}}}", "1:28: broker.listeners.grpc: {'a': 1} is not an address"),
        ("broker: {nodeId: ''}", "1:18: broker.nodeId: '' is not"),
        (
            "defaults: {topic: {retention: {hours: 7d}}}",
            "1:39: defaults.topic.retention.hours: '7d' is not a number of",
        ),
        ("defaults: {topic: {retention: {hours: -1}}}", "1:39: defaults.topic.retention.hours: -1 is not a duration"),
        ("defaults: {topic: {replicationFactor: 0}}", "1:39: defaults.topic.replicationFactor: 0 is not a whole"),
        ("defaults: {delivery: {dlqEnabled: false}}", "1:35: defaults.delivery.dlqEnabled: dead letters cannot be"),
        ("defaults: {delivery: {maxRetries: -1}}", "1:35: defaults.delivery.maxRetries: -1 is not a whole number"),
        ("defaults: {delay: {enabled: false}}", "1:29: defaults.delay.enabled: delays cannot be switched off"),
        ("defaults: {priority: {lanes: many}}", "1:30: defaults.priority.lanes: 'many' is not a whole number"),
    ],
)
def test_what_cannot_be_meant_there_is_a_problem_here(text: str, problem: str) -> None:
    (told,) = problems(text)
    assert told.startswith(f"penstock.yaml:{problem}")


def test_one_copy_is_what_one_machine_keeps() -> None:
    assert load("defaults: {topic: {replicationFactor: 1}}").notices == []


# Mistakes.


def test_every_problem_of_every_source_is_told_at_once_with_its_place() -> None:
    text = """\
server:
  host: ""
  native_port: 70000
  nativePort: 3
broker:
  maxValueByte: 1
  sync: [always]
topic_defaults:
  partitions: 0
  archive:
  order: topic
native_port: 3
"""
    variables = {"PENSTOCK_NATIV_PORT": "3", "PENSTOCK_TOPIC_PARTITIONS": "x"}
    assert problems(text, variables, native_port="much", native_prt=1) == [
        "penstock.yaml:2:9: server.host: '' is not a host name or an address such as '127.0.0.1'",
        "penstock.yaml:3:16: server.native_port: 70000 is not a whole number from 0 to 65535",
        "penstock.yaml:4:3: server.nativePort is given twice, first at penstock.yaml:3:3",
        "penstock.yaml:6:3: broker.maxValueByte: unknown key, did you mean maxValueBytes?",
        "penstock.yaml:7:9: broker.sync: a list cannot be a value here: give text or a number",
        "penstock.yaml:9:15: topic_defaults.partitions: 0 is not a whole number from 1 to 65536",
        "penstock.yaml:10:11: topic_defaults.archive: there is no value: give one, or null where nothing is meant",
        "penstock.yaml:11:10: topic_defaults.order: 'topic' is not one of lane, key",
        "penstock.yaml:12:1: native_port: unknown key, did you mean server.native_port?",
        "PENSTOCK_NATIV_PORT: there is no such option, did you mean PENSTOCK_NATIVE_PORT?",
        "PENSTOCK_TOPIC_PARTITIONS: 'x' is not a whole number from 1 to 65536",
        "--native-port: 'much' is not a whole number from 0 to 65535",
        "--native-prt: there is no such option, did you mean --native-port?",
    ]


@pytest.mark.parametrize(
    ("text", "place", "words"),
    [
        ("server: [1", "1:11", "this is not YAML: while parsing a flow sequence, expected ',' or ']'"),
        ("server:\n  host: a: b", "2:10", "this is not YAML: mapping values are not allowed here"),
        ("\tserver: {}", "1:1", "this is not YAML: while scanning for the next token, found character '\\t'"),
        ("server: {}\n---\nbroker: {}", "2:1", "expected a single document"),
        ("server: *nobody", "1:9", "found undefined alias"),
        ("server:\n  host: a\x01", "2:10", "a file of text has no character like '\\x01'"),
        ("- server", "1:1", "the file holds keys"),
        ("just text", "1:1", "the file holds keys"),
        ("server: 7", "1:9", "server holds keys"),
        ("server: !!python/object:os.system {}", "1:9", "server holds keys"),
        ("server: {host: !!python/name:os.system x}", "1:16", "this cannot be a value here"),
        ("server: {host: {a: {b: c}}}", "1:16", "this cannot be a value here"),
        ("topic_defaults: {lane_weights: {1: 2, 1: 3}}", "1:32", "a key is given twice"),
        ("server: {host: null}", "1:16", "None is not a host name"),
        ("server: {native_port: 80:80}", "1:23", "'80:80' is not a whole number"),
        ("server: {}\nserver: {}", "2:1", "server is given twice, first at penstock.yaml:1:1"),
        ("server: {sync: never}", "1:10", "server.sync: unknown key, did you mean broker.sync?"),
        ("broker: {topicDefaults: {}}", "1:10", "did you mean topic_defaults?"),
        ("brokers: {}", "1:1", "brokers: unknown key, did you mean broker?"),
        ("? [a]\n: b", "1:3", "unknown key"),
        ("zzz: 1", "1:1", "zzz: unknown key"),
    ],
)
def test_a_problem_has_line_and_column(text: str, place: str, words: str) -> None:
    (told,) = problems(text)
    assert told.startswith(f"penstock.yaml:{place}: "), told
    assert words in told


@pytest.mark.parametrize("text", ["", "# nothing\n", "~", "server:\nbroker:\n", "\ufeffserver: {}", "--- {}"])
def test_a_file_may_be_empty(text: str) -> None:
    assert load(text).config == ServerConfig()


def test_a_file_that_cannot_be_read_is_a_problem() -> None:
    Path("latin.yaml").write_bytes("# fine\nserver: {host: größe}".encode("latin-1"))
    Path("deep.yaml").write_text("[" * 100_000)
    for name, words in (
        ("nowhere.yaml", "nowhere.yaml: there is no such file"),
        (".", ".: the file cannot be read: Is a directory"),
        ("latin.yaml", "latin.yaml:2:18: this is not UTF-8 text"),
        ("deep.yaml", "deep.yaml: the file is nested too deeply"),
    ):
        assert problems(None, {"PENSTOCK_CONFIG": name}) == [words]


@given(st.one_of(st.binary(), st.text().map(str.encode), st.recursive(st.text(), st.lists).map(str).map(str.encode)))
def test_no_file_is_so_broken_that_it_is_not_told(content: bytes) -> None:
    file = Path("broken.yaml")
    file.write_bytes(content)
    try:
        load_config(file, {}, {})
    except ConfigError as error:
        assert all(problem.place.startswith("broken.yaml") for problem in error.problems)


def test_options_that_do_not_fit_together_are_told_with_the_places_of_those_that_were_given() -> None:
    variables = {"PENSTOCK_MAX_FRAME_BYTES": "1GiB", "PENSTOCK_BROKER_MAX_UNSETTLED_BYTES": "1GiB"}
    broker, server = problems("broker: {journal_file_bytes: 512MiB, sync: never}", variables)
    assert broker.startswith("penstock.yaml:1:30, PENSTOCK_BROKER_MAX_UNSETTLED_BYTES: broker options: max_unsettled")
    assert server.startswith("PENSTOCK_MAX_FRAME_BYTES: server options: max_buffered_bytes (512 MiB) is less than one")


def test_a_mistake_that_another_source_overrides_stays_a_mistake() -> None:
    assert len(problems("server: {native_port: x}", {"PENSTOCK_NATIVE_PORT": "1"})) == 1


# In code.


def test_a_configuration_can_be_made_in_code() -> None:
    config = ServerConfig.parse({"native_port": 0, "idle_timeout": "1m", "broker": {"sync": "never"}})
    assert (config.native_port, config.idle_timeout, config.broker.sync) == (0, 60.0, "never")
    assert ServerConfig.parse({"broker": config.broker}).broker == config.broker
    with pytest.raises(InvalidArgument, match="server options: broker: 7 is not a mapping of broker options"):
        ServerConfig.parse({"broker": 7})
    with pytest.raises(InvalidArgument, match="natve_port: unknown option, did you mean native_port"):
        ServerConfig.parse({"natve_port": 7})


# Writing.


def test_the_example_has_every_option_with_its_default_and_its_meaning() -> None:
    text = write_example()
    loaded = load(text)
    assert loaded.config == ServerConfig()
    assert "default" not in loaded.origins.values()
    words = " ".join(text.replace("#", " ").split())
    for config in (ServerConfig, BrokerConfig, TopicConfig):
        for name, meaning in field_texts(config).items():
            assert meaning and (meaning in words or name in ("broker", "topic_defaults")), name


@ALL
def test_every_option_has_a_text(setting: Setting) -> None:
    texts = field_texts(ServerConfig) | field_texts(BrokerConfig) | field_texts(TopicConfig)
    assert texts[setting.name].endswith(".")


@given(
    st.one_of(
        st.tuples(st.just("server.shutdown_grace"), st.floats(0, 1e11)),
        st.tuples(st.just("server.max_buffered_bytes"), st.integers(1 << 16, 1 << 50)),
        st.tuples(st.just("server.data_dir"), st.text(min_size=1)),
        st.tuples(st.just("topic_defaults.max_backlog"), st.none() | st.integers(1, 1 << 60)),
        st.tuples(st.just("topic_defaults.dead_letter_lapsed"), st.booleans()),
        st.tuples(
            st.just("topic_defaults.lane_weights"),
            st.dictionaries(st.integers(0, 255), st.integers(1, 99)).map(
                lambda weights: tuple(sorted(weights.items()))
            ),
        ),
    )
)
def test_a_written_value_reads_back_as_itself(given: tuple[str, Any]) -> None:
    key, value = given
    setting = SETTINGS[key]
    written = write_value(setting.name, value)
    if key not in ("topic_defaults.lane_weights", "server.data_dir"):
        assert read(setting.parse, written) == value
    loaded = load(
        f"{setting.section}:\n  {setting.name}: {written}  # as written\n", {"PENSTOCK_MAX_FRAME_BYTES": "64KiB"}
    )
    assert setting.of(loaded.config) == value


# Documentation, and what it costs.


def test_the_reference_page_has_every_option_with_its_default_and_meaning() -> None:
    page = (ROOT / "docs/reference/server-configuration.md").read_text()
    section = page.split("## Server")[1].split("\n## ")[0]
    rows = re.findall(r"^\| `(\w+)` \| `([^`]+)` \| (.*) \|$", section, re.MULTILINE)
    texts = field_texts(ServerConfig)
    settings = [setting for setting in SETTINGS.values() if setting.section == "server"]
    assert rows == [(item.name, write_value(item.name, item.default), texts[item.name]) for item in settings]


def test_the_reference_page_has_every_key_of_goqueue() -> None:
    page = (ROOT / "docs/reference/server-configuration.md").read_text()
    section = page.split("## GoQueue")[1].split("\n## ")[0]
    keys = [".".join(camel(part) for part in key.split(".")) for key in FOREIGN]
    assert re.findall(r"^\| `([\w.]+)` \|", section, re.MULTILINE) == keys


def test_reading_a_configuration_loads_no_arrow_and_no_command_line() -> None:
    code = """
import sys
from penstock.server.config import load_config
load_config(None, {}, {})
print([name for name in ("pyarrow", "numpy", "typer", "rich") if name in sys.modules])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (0, "[]\n"), done.stderr
