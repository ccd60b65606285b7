"""Where there is no Docker, the tests of the image say so, and why."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def attempt(**environment: str) -> tuple[int, str]:
    """Exit status of the search for Docker, and its reason."""
    inherited = {name: value for name, value in os.environ.items() if name != "DOCKER_HOST"}
    done = subprocess.run(
        [sys.executable, "-m", "tests.docker.daemon"],
        cwd=ROOT,
        env=inherited | environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    return done.returncode, done.stderr


def test_not_installed(tmp_path: Path) -> None:
    status, reason = attempt(PATH=str(tmp_path))
    assert status == 1
    assert "dockerd" in reason
    assert "not found; `sh tests/system-needs.sh docker` installs Docker" in reason


def test_cannot_start(tmp_path: Path) -> None:
    """A daemon that ends at once; its last words are passed on."""
    for name in ("docker", "containerd", "runc", "setpriv", "dockerd"):
        (tmp_path / name).write_text("#!/bin/sh\nexit 1\n")
        (tmp_path / name).chmod(0o755)
    (tmp_path / "unshare").write_text("#!/bin/sh\necho some line >&2\necho Devices cgroup is not mounted >&2\nexit 3\n")
    (tmp_path / "unshare").chmod(0o755)
    if os.geteuid() == 0:
        expected = "dockerd ended with status 3; its last word: Devices cgroup is not mounted\n"
    else:
        expected = "dockerd can only be started by root; set DOCKER_HOST to use one that runs\n"
    assert attempt(PATH=f"{tmp_path}:/usr/bin:/bin") == (1, expected)


@pytest.mark.skipif(shutil.which("docker") is None, reason="no Docker client on this machine")
def test_named_one_does_not_answer(tmp_path: Path) -> None:
    status, reason = attempt(DOCKER_HOST=f"unix://{tmp_path}/docker.sock")
    assert status == 1
    assert reason.startswith(f"DOCKER_HOST is unix://{tmp_path}/docker.sock, but: ")
