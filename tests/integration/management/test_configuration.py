"""What the API says of the configuration."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from leveret.broker.config.options import OPTIONS
from tests.integration.program import running
from tests.support.management import Management


def test_the_configuration_in_force(tmp_path: Path) -> None:
    arguments = ("--set", "default_pass=hidden", "--set", "heartbeat=17", "--set", "storage.sync=interval(100)")
    with running(tmp_path, *arguments) as program:
        url = program.http_url.replace("guest:guest", "guest:hidden")
        shown = Management(url).request("GET", "config", "effective")
    assert set(shown) == set(OPTIONS)
    assert (shown["heartbeat"], shown["storage.sync"]) == (17, "interval(100)")
    assert shown["tcp_listen_options.nodelay"] is True
    assert "hidden" not in shown.values()


def test_definitions_in_the_configuration_are_secret(tmp_path: Path) -> None:
    file = tmp_path / "leveret.yaml"
    user = {"name": "somebody", "password": "hidden", "tags": "administrator"}
    file.write_text(json.dumps({"definitions": {"users": [user]}}))
    with running(tmp_path, "--config", str(file)) as program:
        url = program.http_url.replace("guest:guest", "somebody:hidden")
        assert Management(url).request("GET", "config", "effective")["definitions"] == "********"
    command = [sys.executable, "-m", "leveret", "check-config", "--print", "--config", str(file)]
    printed = subprocess.run(
        [*command, "--data-dir", str(tmp_path / "data")], capture_output=True, text=True, timeout=60, check=True
    )
    assert "definitions:" in printed.stdout
    assert "hidden" not in printed.stdout


@pytest.mark.parametrize(
    "text",
    [
        'definitions: {users: ["hidden"]}',
        "definitions: hidden",
        'default_pass: "hidden',
        "default_pass: [hidden]",
        "ssl_options: {password: [hidden]}",
        "definitions:\n  users: [{name: a, password: hidden, tags: 1}]",
    ],
)
def test_what_is_wrong_with_it_is_said_without_secrets(tmp_path: Path, text: str) -> None:
    file = tmp_path / "leveret.yaml"
    file.write_text(text)
    command = [sys.executable, "-m", "leveret", "check-config", "--config", str(file)]
    done = subprocess.run(
        [*command, "--data-dir", str(tmp_path / "data")], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 1
    assert "hidden" not in done.stdout + done.stderr
