from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from leveret.analytics.arguments import SUMMARIES
from leveret.analytics.command import JOBS

ROOT = Path(__file__).parents[4]


@pytest.mark.parametrize(
    ("job", "package", "how"),
    [
        (
            "backlog",
            "pyspark",
            "install what the jobs need: pip install 'leveret[analytics]' (leveret-analytics archive needs "
            "'leveret[arrow]' only)",
        ),
        ("archive", "pyarrow", "install what it needs: pip install 'leveret[arrow]'"),
        ("iceberg", "fsspec", "install what it needs: pip install 'leveret[iceberg]'"),
    ],
)
def test_without_libraries_it_says_how_to_get_them(tmp_path: Path, job: str, package: str, how: str) -> None:
    missing = f"raise ModuleNotFoundError(\"No module named '{package}'\", name='{package}')\n"
    (tmp_path / f"{package}.py").write_text(missing)
    done = subprocess.run(
        [sys.executable, "-m", "leveret.analytics.program", job, "--data-dir", str(tmp_path)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": f"{tmp_path}:{ROOT}"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == f"leveret-analytics: the Python package {package} is missing; {how}\n"


@pytest.fixture
def bare(tmp_path: Path) -> dict[str, str]:
    """The environment of a Python that has nothing but the standard library's packages and the project."""
    for package in ("fsspec", "numpy", "plotly", "py4j", "pyarrow", "pyspark"):
        (tmp_path / f"{package}.py").write_text(f"raise ModuleNotFoundError('no', name='{package}')\n")
    return {**os.environ, "PYTHONPATH": f"{tmp_path}:{ROOT}", "COLUMNS": "200"}


def help_of(words: list[str], environment: dict[str, str]) -> str:
    command = [sys.executable, "-m", "leveret.analytics.program", *words]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def test_help_needs_no_libraries(bare: dict[str, str]) -> None:
    text = help_of(["--help"], bare)
    jobs, _, others = text.partition("without Spark (pip install 'leveret[arrow]'):")
    assert "jobs (pip install 'leveret[analytics]'):" in jobs
    for job, summary in SUMMARIES.items():
        assert f"  {job:<12} {summary}" in jobs
    assert "  archive          copies messages, events and audit log to Parquet" in others
    assert SUMMARIES.keys() == JOBS.keys()


@pytest.mark.parametrize(
    ("words", "there", "missing"),
    [
        (["capacity", "--help"], ["--max-length", "hours of history to replay", "--fail-if"], ["--query", "--reader"]),
        (["export", "-h"], ["--fail-on-data-loss", "--reader", "'leveret[analytics]'"], ["--fail-if", "--hours HOURS"]),
        (["--data-dir", "x", "sql", "--help"], ["--bodies", "--query"], ["job sql: the query", "--max-length"]),
        (["archive", "--help"], ["--interval", "--keep", "Spark is not needed"], ["--master"]),
    ],
)
def test_each_job_has_help(bare: dict[str, str], words: list[str], there: list[str], missing: list[str]) -> None:
    text = help_of(words, bare)
    assert [each for each in there if each not in text] == []
    assert [each for each in missing if each in text] == []
