"""The example of a program that is tested with Leveret: its tests run where Leveret is only installed."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.packaging.distributions import ROOT, clean, dependencies, install

_EXAMPLE = ROOT / "tests/example_project"


@pytest.fixture(scope="module")
def programs(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The programs' folder of an environment with Leveret and what the example needs."""
    names = dict.fromkeys(["pytest", "pika", "celery"])
    for name in ("pytest", "celery", "leveret"):
        names |= dict.fromkeys(dependencies(name, set()))
    return install(wheel, tmp_path_factory.mktemp("environment"), names)


def test_its_tests_pass(programs: Path, tmp_path: Path) -> None:
    project = tmp_path / "project"
    shutil.copytree(_EXAMPLE, project, ignore=shutil.ignore_patterns("__pycache__"))
    command = [str(programs / "python"), "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    done = subprocess.run(command, cwd=project, env=clean(), capture_output=True, text=True, timeout=600, check=False)
    assert (done.returncode, "11 passed" in done.stdout) == (0, True), done.stdout + done.stderr
