"""The archiver as a process of its own, which can be killed and started again."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Final

_ROOT: Final = Path(__file__).parents[2]


class ArchiverProcess:
    """`leveret-analytics archive` on a data directory; it runs from the start on."""

    def __init__(self, data_dir: Path, archive: Path, interval: float = 1) -> None:
        options = ["--data-dir", str(data_dir), "--to", str(archive), "--interval", str(interval), "--broker", "one"]
        self._command = [sys.executable, "-m", "leveret.analytics.program", "archive", *options]
        self._path = archive.parent / "archiver.log"
        self._log = self._path.open("wb")
        self.kills = 0
        self.start()

    @property
    def pid(self) -> int:
        """Number of the process."""
        return self._process.pid

    def start(self) -> None:
        """Start it, after kill()."""
        environment = {**os.environ, "PYTHONPATH": str(_ROOT)}
        self._process = subprocess.Popen(self._command, cwd=_ROOT, env=environment, stderr=self._log)

    def kill(self) -> None:
        """End it at any moment."""
        assert self._process.poll() is None, self._path.read_text()
        self._process.kill()
        self._process.wait()
        self.kills += 1

    def close(self) -> None:
        """End it for good."""
        self._process.kill()
        self._process.wait()
        self._log.close()
