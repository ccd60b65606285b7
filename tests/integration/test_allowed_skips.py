from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.allowed_skips import ALLOWED, Skip, unexpected

ROOT = Path(__file__).parents[2]
TEST = """
import pytest

def test_that_is_skipped():
    pytest.skip("for no good reason")
"""


@pytest.mark.parametrize("allowed", ALLOWED, ids=lambda each: each.source)
def test_each_row_is_of_use(allowed: tuple[str, str, str]) -> None:
    source, reason, why = allowed
    text = (ROOT / source).read_text("utf-8")
    assert "skip" in text
    assert reason in text
    assert why


def test_the_file_and_the_reason_have_to_fit() -> None:
    first, second = ALLOWED[:2]
    assert unexpected([Skip(f"/somewhere/{first.source}", first.reason)]) == []
    other = Skip(second.source, first.reason)
    assert unexpected([other]) == [other]


@pytest.mark.parametrize(("strict", "workers", "status"), [("1", "0", 1), ("1", "1", 1), ("", "1", 0)])
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
