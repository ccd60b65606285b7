"""What `make run` says while it installs, which takes minutes on a slow machine."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def fake_environment(directory: Path, pip_status: int) -> Path:
    """An environment whose Python does nothing, and whose broker says that it runs."""
    programs = directory / "venv" / "bin"
    programs.mkdir(parents=True)
    (programs / "python").write_text(f'#!/bin/sh\ncase "$*" in *requirement*) exit {pip_status};; esac\n')
    (programs / "leveret").write_text("#!/bin/sh\necho runs\n")
    for each in programs.iterdir():
        each.chmod(0o755)
    (directory / "venv" / "created").touch()
    return directory / "venv"


@pytest.mark.parametrize(("pip_status", "runs"), [(0, True), (1, False)])
def test_steps_are_told_with_their_seconds(tmp_path: Path, pip_status: int, runs: bool) -> None:
    command = ["make", "run", f"VENV={fake_environment(tmp_path, pip_status)}"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
    assert (done.stdout == "runs\n", done.returncode == 0) == (runs, runs), done.stderr
    said = [re.sub(r"\d+ s$", "N s", line) for line in done.stderr.splitlines() if line.startswith("make: 2/3")]
    assert said == ["make: 2/3 installing what the broker needs", *(["make: 2/3 done in N s"] if runs else [])]
    assert re.search(r"^make: 3/3 done in \d+ s$", done.stderr, re.MULTILINE)
