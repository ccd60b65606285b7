"""Finding the configuration of a broker that runs."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from leveret.broker.config.config_errors import ConfigError
from leveret.broker.config.listening import amqp_address, management_address, running_settings
from leveret.broker.config.load import load


def process(directory: Path, number: int, *arguments: str, environment: Mapping[str, str] | None = None) -> None:
    """Show a process as Linux does."""
    shown = directory / str(number)
    shown.mkdir()
    (shown / "cmdline").write_bytes(b"".join(word.encode() + b"\0" for word in arguments))
    pairs = (f"{name}={value}".encode() + b"\0" for name, value in (environment or {}).items())
    (shown / "environ").write_bytes(b"".join(pairs))


BROKER = ("/opt/leveret/bin/python3", "/opt/leveret/bin/leveret")


def test_no_broker(tmp_path: Path) -> None:
    process(tmp_path, 1, "/bin/sh", "-c", "leveret")
    process(tmp_path, 2)
    process(tmp_path, 3, *BROKER, "check-config")
    (tmp_path / "self").mkdir()
    (tmp_path / "7").mkdir()
    assert running_settings(tmp_path) is None


def test_command_line_environment_and_file(tmp_path: Path) -> None:
    file = tmp_path / "leveret.yaml"
    file.write_text("heartbeat: 7\nprometheus_port: 9999\n")
    environment = {"LEVERET_CONFIG_FILE": str(file), "LEVERET_PORT": "1111", "LEVERET_MANAGEMENT_PORT": "2222"}
    processes = tmp_path / "proc"
    processes.mkdir()
    process(processes, 1, "/sbin/init", "--", "leveret")
    process(processes, 12, *BROKER, "--port", "3333", environment=environment)
    process(processes, 100, *BROKER, "--port", "4444")
    settings = running_settings(processes)
    assert settings is not None
    assert (settings.heartbeat, settings.prometheus_port, settings.port, settings.management_port) == (
        7,
        9999,
        3333,
        2222,
    )


def test_file_that_has_become_unusable(tmp_path: Path) -> None:
    process(tmp_path, 1, *BROKER, environment={"LEVERET_CONFIG_FILE": str(tmp_path / "gone.yaml")})
    with pytest.raises(ConfigError, match=r"gone\.yaml"):
        running_settings(tmp_path)


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({}, ("127.0.0.1", 5672)),
        ({"LEVERET_HOST": "::", "LEVERET_PORT": "1"}, ("::1", 1)),
        ({"LEVERET_HOST": "192.0.2.1,192.0.2.2"}, ("192.0.2.1", 5672)),
        ({"LEVERET_LISTENERS_TCP": "[::1]:7, 192.0.2.1:8"}, ("::1", 7)),
        ({"LEVERET_LISTENERS_TCP": "9"}, ("127.0.0.1", 9)),
        ({"LEVERET_LISTENERS_TCP": "none"}, None),
    ],
)
def test_amqp_address(environment: dict[str, str], expected: tuple[str, int] | None) -> None:
    assert amqp_address(load(None, environment)) == expected


def test_management_address() -> None:
    assert management_address(load(None, {"LEVERET_MANAGEMENT_PORT": "7"})) == ("127.0.0.1", 7)
