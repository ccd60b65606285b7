"""The systemd unit."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from leveret.broker.config.load import CONFIG_FILE_VARIABLE
from leveret.broker.config.options import OPTIONS, Settings

UNIT = Path(__file__).parents[2] / "docker/leveret.service"


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd on this machine")
def test_systemd_has_no_complaints() -> None:
    done = subprocess.run(
        ["systemd-analyze", "verify", str(UNIT)], capture_output=True, text=True, timeout=120, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_names_options_that_exist() -> None:
    text = UNIT.read_text("utf-8")
    named = set(re.findall(r"LEVERET_[A-Z_]+(?==)", text))
    assert named == {"LEVERET_DATA_DIR", CONFIG_FILE_VARIABLE}
    assert named - {CONFIG_FILE_VARIABLE} <= {option.environment for option in OPTIONS.values()}


def test_a_clean_stop_is_not_cut_short() -> None:
    (seconds,) = re.findall(r"^TimeoutStopSec=(\d+)$", UNIT.read_text("utf-8"), re.MULTILINE)
    assert int(seconds) * 1000 > Settings().shutdown_timeout
