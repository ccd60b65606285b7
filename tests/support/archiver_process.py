"""The archiver as a process of its own, which can be killed and started again."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Final

_ROOT: Final = Path(__file__).parents[2]


class ArchiverProcess:
    """`leveret-analytics archive` on a data directory; it runs from the start on.

    Args:
        broker: Name of the broker in the archive.
        options: Further options.
    """

    def __init__(
        self, data_dir: Path, archive: Path, interval: float = 1, broker: str = "one", options: tuple[str, ...] = ()
    ) -> None:
        self._options = ["--data-dir", str(data_dir), "--to", str(archive), "--broker", broker, *options]
        self._interval = interval
        self._path = archive.parent / f"archiver-{broker}.log"
        self._log = self._path.open("wb")
        self.kills = 0
        self.start()

    @property
    def pid(self) -> int:
        """Number of the process."""
        return self._process.pid

    @property
    def is_running(self) -> bool:
        """Whether it has not ended by itself."""
        return self._process.poll() is None

    def said(self) -> str:
        """What it has said since the first start."""
        return self._path.read_text()

    def start(self) -> None:
        """Start it, after kill()."""
        self._process = self._started("--interval", str(self._interval))

    def kill(self) -> None:
        """End it at any moment."""
        assert self.is_running, self.said()
        self._process.kill()
        self._process.wait()
        self.kills += 1

    def run_once(self) -> None:
        """Copy what is there, after kill()."""
        process = self._started("--once")
        assert process.wait() == 0, self.said()

    def close(self) -> None:
        """End it for good."""
        self._process.kill()
        self._process.wait()
        self._log.close()

    def _started(self, *options: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "leveret.analytics.program", "archive", *self._options, *options]
        environment = {**os.environ, "PYTHONPATH": str(_ROOT)}
        return subprocess.Popen(command, cwd=_ROOT, env=environment, stderr=self._log)
