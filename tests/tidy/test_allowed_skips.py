"""With STRICT_SKIPS=1 a run fails if a test is skipped that is not allowed to be."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TEST = """
import pytest

def test_that_is_skipped():
    pytest.skip("for no good reason")
"""


@pytest.mark.parametrize(("strict", "workers", "status"), [("1", "1", 1), ("", "0", 0)])
def test_any_other_skip_fails_a_strict_run(tmp_path: Path, strict: str, workers: str, status: int) -> None:
    (tmp_path / "test_skipped.py").write_text(TEST)
    options = ["-q", "-p", "tests.conftest", "-p", "no:cacheprovider", "-n", workers, "--rootdir", str(tmp_path)]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options, str(tmp_path)],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT), "STRICT_SKIPS": strict},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == status, done.stdout + done.stderr
    assert ("for no good reason" in done.stdout.partition("does not allow")[2]) == bool(status)
