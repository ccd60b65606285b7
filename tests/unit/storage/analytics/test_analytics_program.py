from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

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
        ("archive", "pyarrow", "install what archives need: pip install 'leveret[arrow]'"),
    ],
)
def test_without_libraries_it_says_how_to_get_them(tmp_path: Path, job: str, package: str, how: str) -> None:
    missing = f"raise ModuleNotFoundError(\"No module named '{package}'\", name='{package}')\n"
    (tmp_path / f"{package}.py").write_text(missing)
    done = subprocess.run(
        [sys.executable, "-m", "leveret.storage.analytics_program", job, "--data-dir", str(tmp_path)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": f"{tmp_path}:{ROOT}"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == f"leveret-analytics: the Python package {package} is missing; {how}\n"
