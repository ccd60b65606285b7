from __future__ import annotations

import os
from pathlib import Path

import pytest

from leveret.broker.config.config_errors import ConfigError, UsageError
from leveret.broker.config.declaration import RawSetting
from leveret.broker.config.load import load, read
from leveret.broker.config.options import Settings


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "leveret.yaml"


def refusal(file: Path | None, environ: dict[str, str] | None = None, *arguments: RawSetting) -> str:
    with pytest.raises(ConfigError) as caught:
        load(file, environ or {}, arguments)
    text = str(caught.value)
    assert "\n" not in text
    return text


def test_nothing_given_is_all_defaults() -> None:
    assert load(None, {}) == Settings()


def test_the_command_line_comes_before_the_environment_before_the_file(file: Path) -> None:
    file.write_text("{port: 1, heartbeat: 1, channel_max: 1}")
    environ = {"LEVERET_PORT": "2", "LEVERET_HEARTBEAT": "2"}
    settings = load(file, environ, [RawSetting("port", "3", "--port")])
    assert (settings.port, settings.heartbeat, settings.channel_max, settings.frame_max) == (3, 2, 1, 131072)


def test_a_later_argument_replaces_an_earlier_one() -> None:
    settings = load(None, {}, [RawSetting("port", "1", "--port"), RawSetting("port", "2", "--set")])
    assert settings.port == 2


def test_nested_and_dotted_names_are_the_same(file: Path) -> None:
    file.write_text(
        "vm_memory_high_watermark:\n"
        "  absolute: 2GB\n"
        "vm_memory_high_watermark.relative: 0.5\n"
        "tcp_listen_options: {nodelay: false}\n"
        "default_permissions:\n"
    )
    settings = load(file, {})
    assert settings.vm_memory_high_watermark.absolute == 2_000_000_000
    assert settings.vm_memory_high_watermark.relative == 0.5
    assert settings.tcp_listen_options.nodelay is False
    assert settings.default_permissions.read == ".*"


def test_definitions_and_policies_are_handed_on_as_they_are(file: Path) -> None:
    file.write_text('definitions: {users: [{name: "a.b", tags: []}]}\npolicies: [{name: p, pattern: "^q"}]\n')
    settings = load(file, {})
    assert settings.definitions == {"users": [{"name": "a.b", "tags": []}]}
    assert settings.policies == ({"name": "p", "pattern": "^q"},)


@pytest.mark.parametrize("content", ["", "# nothing\n", "---\n"])
def test_an_empty_file_is_all_defaults(file: Path, content: str) -> None:
    file.write_text(content)
    assert load(file, {}) == Settings()


@pytest.mark.parametrize(
    ("content", "parts"),
    [
        ("prot: 1", ["unknown option 'prot'", "did you mean 'port'?"]),
        ("nodelay: true", ["unknown option 'nodelay'", "did you mean 'tcp_listen_options.nodelay'?"]),
        ("tcp_listen_options: {nodelai: true}", ["'tcp_listen_options.nodelai'", "'tcp_listen_options.nodelay'?"]),
        ("tcp_listen_options.nodelai: true", ["'tcp_listen_options.nodelai'", "'tcp_listen_options.nodelay'?"]),
        ("zzzzzz: 1", ["unknown option 'zzzzzz'", "reference"]),
        ("1: 1", ["unknown option '1'"]),
        ("port: 70000", ["port: 70000", "a whole number 0..65535"]),
        ("port: true", ["port: True (bool)", "a whole number 0..65535"]),
        ("port: {a: 1}", ["port: {'a': 1}"]),
        ("default_vhost: 010", ["default_vhost: 8 (int)", "a string"]),
        ("vm_memory_high_watermark: 0.4", ["is a group", "vm_memory_high_watermark.relative"]),
        ("max_message_size: 1GiB", ["max_message_size: '1GiB'", "1..536870912 bytes"]),
        ("frame_max: 4095", ["frame_max: 4095", "4096.."]),
        ("auth_mechanisms: [GSSAPI]", ["auth_mechanisms: ['GSSAPI']", "PLAIN, AMQPLAIN, EXTERNAL"]),
        ("compat: {advertise: RabbitMQ}", ["compat.advertise: 'RabbitMQ'", "like RabbitMQ 3.10.8"]),
        ("{compat.advertise: R 1, compat: {advertise: R 2}}", ["compat.advertise is given twice"]),
        ("[1, 2]", ["must be a mapping"]),
        ("a: [", ["is not YAML", "line 1"]),
        ("port: 2001-99-99", ["is not YAML"]),
    ],
)
def test_what_a_file_may_not_hold(file: Path, content: str, parts: list[str]) -> None:
    file.write_text(content)
    text = refusal(file)
    assert text.startswith((f"{file}:1: ", f"{file}: must be a mapping"))
    for part in parts:
        assert part in text


def test_a_file_that_is_not_text(file: Path) -> None:
    file.write_bytes(b"\xff\xfe\x00\x00\x80")
    assert f"{file}: is not YAML" in refusal(file)


def test_a_file_that_is_not_there(file: Path) -> None:
    assert refusal(file) == f"{file}: cannot be read: No such file or directory"


def test_a_password_is_not_repeated() -> None:
    text = refusal(None, {}, RawSetting("default_pass", 83, "--set"))
    assert "83" not in text
    assert "default_pass" in text


def test_an_environment_variable_is_named() -> None:
    text = refusal(None, {"LEVERET_PORT": "http"})
    assert text == "LEVERET_PORT: port: 'http' is not allowed; give a whole number 0..65535"


def test_what_is_not_utf_8_is_refused() -> None:
    text = refusal(None, {"LEVERET_DEFAULT_USER": os.fsdecode(b"\xff")})
    assert text == "LEVERET_DEFAULT_USER: default_user: the value is not UTF-8"


def test_lists_and_mappings_in_the_environment() -> None:
    settings = load(None, {"LEVERET_LOOPBACK_USERS": "none", "LEVERET_DEFINITIONS": '{"users": []}'})
    assert settings.loopback_users == ()
    assert settings.definitions == {"users": []}


def test_an_empty_variable_is_not_set() -> None:
    assert load(None, {"LEVERET_PORT": "", "LEVERET_DEFAULT_PASS": ""}) == Settings()


def test_variables_of_other_programs_are_passed_over() -> None:
    environ = {
        "LEVERET_URL": "http://localhost:15672",
        "LEVERET_CONFIG_FILE": "x",
        "PORT": "1",
        # What Kubernetes sets for a service called leveret.
        "LEVERET_PORT": "tcp://10.0.0.1:5672",
        "LEVERET_SERVICE_HOST": "10.0.0.1",
        "LEVERET_SERVICE_PORT": "5672",
        "LEVERET_PORT_5672_TCP": "tcp://10.0.0.1:5672",
        "LEVERET_PORT_5672_TCP_ADDR": "10.0.0.1",
        "LEVERET_PORT_5672_TCP_PORT": "5672",
        # And for leveret-archive.
        "LEVERET_ARCHIVE_PORT": "tcp://10.0.0.2:80",
        "LEVERET_ARCHIVE_SERVICE_PORT_HTTP": "80",
    }
    assert load(None, environ) == Settings()


@pytest.mark.parametrize(
    ("variable", "meant"),
    [
        ("LEVERET_PORTT", "LEVERET_PORT"),
        ("LEVERET_PROT", "LEVERET_PORT"),
        ("LEVERET_CONFIGFILE", "LEVERET_CONFIG_FILE"),
        ("LEVERET_MANAGEMENT_PROT", "LEVERET_MANAGEMENT_PORT"),
    ],
)
def test_a_misspelt_variable_is_refused(variable: str, meant: str) -> None:
    text = refusal(None, {variable: "1"})
    assert text.startswith(f"{variable}: unknown environment variable; did you mean {meant}?")


def test_a_variable_that_is_like_none_is_refused() -> None:
    text = refusal(None, {"LEVERET_XYZZY": "1"})
    assert text == "LEVERET_XYZZY: unknown environment variable; unset it, or see the option reference"


def test_a_fault_of_the_command_line_is_a_usage_error() -> None:
    with pytest.raises(UsageError, match="--set: unknown option 'prot'; did you mean 'port'"):
        load(None, {}, [RawSetting("prot", "1", "--set", UsageError)])


def test_all_that_is_wrong_with_its_line(file: Path) -> None:
    file.write_text(
        "# two lines\n\n"
        "prot: 1\n"
        "tcp_listen_options:\n"
        "  backlog: 0\n"
        "  nodelay: true\n"
        "compat: 1\n"
        "heartbeat: 5\n"
        "heartbeat: 6\n"
        "channel_max: 2001-99-99\n"
    )
    environ = {"LEVERET_PORTT": "1", "LEVERET_FRAME_MAX": "1"}
    reading = read(file, environ, [RawSetting("heartbaet", "1", "--set", UsageError)])
    assert [str(problem).split(";")[0] for problem in reading.problems] == [
        f"{file}:3: unknown option 'prot'",
        f"{file}:5: tcp_listen_options.backlog: 0 (int) is not allowed",
        f"{file}:7: compat is a group",
        f"{file}:9: heartbeat is given twice, first in line 8",
        f"{file}:10: channel_max: is not YAML: month must be in 1..12",
        "LEVERET_PORTT: unknown environment variable",
        "LEVERET_FRAME_MAX: frame_max: '1' is not allowed",
        "--set: unknown option 'heartbaet'",
    ]
    assert reading.values == {"tcp_listen_options.nodelay": True, "heartbeat": 5}
    assert reading.origins == {"tcp_listen_options.nodelay": f"{file}:6", "heartbeat": f"{file}:8"}


def test_anchors_and_merged_mappings(file: Path) -> None:
    file.write_text("tcp_listen_options: &o {backlog: 7}\ndefault_pass: &p secret\ncluster_name: *p\n")
    settings = load(file, {})
    assert (settings.tcp_listen_options.backlog, settings.cluster_name) == (7, "secret")
    file.write_text("tcp_listen_options: {<<: {backlog: 9}, nodelay: false}\n")
    assert load(file, {}).tcp_listen_options.backlog == 9


def test_a_file_that_is_nested_too_deeply(file: Path) -> None:
    file.write_text("definitions: " + "[" * 1500)
    assert refusal(file) == f"{file}: is nested too deeply"
