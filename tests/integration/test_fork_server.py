"""A broker of the process that forks them is a program of its own, like any other."""

from __future__ import annotations

import os
import signal
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from tests.support.leveret_process import LeveretProcess
from tests.support.wire import Connection

#: Run by each new interpreter that finds it.
_SITE = "import sys; sys.stderr.write('a new interpreter\\n')"


def _open_files(pid: int) -> dict[str, str]:
    """Return the files of a process by number; it may open and close others meanwhile."""
    files: dict[str, str] = {}
    for each in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(FileNotFoundError):
            files[each.name] = os.readlink(each)
    return files


def test_each_has_its_own_process_and_files(tmp_path: Path) -> None:
    folders = [tmp_path / name for name in "ab"]
    for each in folders:
        each.mkdir()
    with LeveretProcess(folders[0]) as first, LeveretProcess(folders[1]) as second:
        assert len({first.pid, second.pid, os.getpid()}) == 3
        assert first.url != second.url
        files = _open_files(second.pid)
        assert files["0"] == os.devnull
        assert files["2"] == str(second.log)
        assert not [each for each in files.values() if str(folders[0]) in each]
        first.kill()
        with Connection(second.url) as connection:
            connection.channel().queue_declare("q")


def test_its_end_is_reported(tmp_path: Path) -> None:
    process = LeveretProcess(tmp_path)
    assert process.stop() == 0
    assert process.stop() == 0
    process.start()
    os.kill(process.pid, signal.SIGKILL)
    assert process.stop() == -signal.SIGKILL
    process.restart()
    process.kill()
    assert process.stop() == -signal.SIGKILL


def test_a_start_that_fails_says_why(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match=r"ended with status 2\n.*no-such-option"):
        LeveretProcess(tmp_path, arguments=("--no-such-option",))


def test_what_python_reads_at_its_start_is_read_by_a_new_interpreter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "sitecustomize.py").write_text(_SITE)
    with LeveretProcess(tmp_path) as process:
        assert "a new interpreter" not in process.log_text()
        monkeypatch.setenv("PYTHONPATH", str(tmp_path))
        process.restart()
        assert "a new interpreter" in process.log_text()
        assert os.readlink(f"/proc/{process.pid}/exe") == os.path.realpath(sys.executable)
