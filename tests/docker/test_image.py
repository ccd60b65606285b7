"""What is in the image, and what it says about itself."""

from __future__ import annotations

import json
from typing import Any

import pytest

from leveret.broker.version import VERSION
from tests.docker.daemon import Docker

#: Imports what the programs do, and prints the modules that have no byte code to be read.
_UNCOMPILED = """
import leveret.broker.__main__, leveret.broker.program, leveret.broker.leveretctl.program, os, sys
from importlib.util import cache_from_source
for module in list(sys.modules.values()):
    source = getattr(module, "__file__", None) or ""
    if source.endswith(".py") and not os.path.exists(cache_from_source(source)):
        print(source)
"""


@pytest.fixture(scope="module")
def configuration(client: Docker, image: str) -> dict[str, Any]:
    (document,) = json.loads(client("image", "inspect", image))
    configuration = document["Config"]
    assert isinstance(configuration, dict)
    return configuration


def run(client: Docker, image: str, *command: str) -> str:
    return client("run", "--rm", "--network", "none", image, *command)


def test_conventions(configuration: dict[str, Any]) -> None:
    assert configuration["User"] == "999:999"
    assert set(configuration["ExposedPorts"]) == {f"{port}/tcp" for port in (5671, 5672, 15671, 15672, 15692)}
    assert set(configuration["Volumes"]) == {"/var/lib/leveret"}
    assert configuration["StopSignal"] == "SIGTERM"
    assert configuration["Healthcheck"]["Test"] == ["CMD", "healthcheck.py"]


def test_labels(configuration: dict[str, Any]) -> None:
    labels = {name.removeprefix("org.opencontainers.image."): text for name, text in configuration["Labels"].items()}
    assert labels["version"] == VERSION
    assert labels["licenses"] == "Apache-2.0"
    assert labels["title"]
    assert labels["description"]


def test_programs(client: Docker, image: str) -> None:
    assert run(client, image, "--version").startswith(f"leveret {VERSION} ")
    assert run(client, image, "leveretctl", "version") == VERSION


def test_modules_are_compiled(client: Docker, image: str) -> None:
    """The modules on the path of a message are compiled to machine code."""
    assert "pure Python" not in run(client, image, "--version")


def test_no_compiler(client: Docker, image: str) -> None:
    """Nothing in it builds or installs programs."""
    unwanted = "cc gcc g++ clang tcc cpp ld as make cargo rustc go javac pip pip3"
    found = run(client, image, "sh", "-c", f"for name in {unwanted}; do command -v $name; done; true")
    assert found == ""
    assert "pip" not in run(client, image, "ls", "/opt/leveret/bin").split()


def test_program_is_not_writable_and_compiled(client: Docker, image: str) -> None:
    assert run(client, image, "find", "/opt/leveret", "/etc/leveret", "-writable", "-not", "-type", "l") == ""
    assert run(client, image, "python3", "-c", _UNCOMPILED) == ""
