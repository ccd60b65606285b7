"""Programs in processes of their own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from tests.integration.waiting import wait_until

_ROOT: Final = Path(__file__).parents[3]
_END: Final = 60.0


class Program:
    """A program of this environment, in a process group of its own; a context manager that ends it."""

    def __init__(
        self, arguments: Sequence[str], variables: Mapping[str, str], log: Path, *, ready: str, gentle: bool = True
    ) -> None:
        self._log, self._ready, self._gentle = log, ready, gentle
        with log.open("wb") as output:
            self._process = subprocess.Popen(
                [sys.executable, "-u", "-m", *arguments],
                cwd=_ROOT,
                env={**os.environ, **variables},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )

    def __enter__(self) -> Program:
        try:
            wait_until(self._is_ready, f"the program says {self._ready!r}")
        except AssertionError as error:
            self.kill()
            raise AssertionError(f"{error}\n{self.log()}") from None
        return self

    def _is_ready(self) -> bool:
        assert self._process.poll() is None, f"ended with status {self._process.returncode}"
        return self._ready in self.log()

    def __exit__(self, *error: object) -> None:
        try:
            if self._gentle:
                self.stop()
        finally:
            self.kill()
            # Shown with a failure.
            sys.stdout.write(self.log())

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    @property
    def running(self) -> bool:
        """Whether it has not ended."""
        return self._process.poll() is None

    def log(self) -> str:
        """What it has printed so far."""
        return self._log.read_text(errors="replace")

    def stop(self) -> None:
        """Ask it to end, and wait for that; kill it if it does not."""
        if self.running:
            self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(_END)
        except subprocess.TimeoutExpired:
            self.kill()

    def kill(self) -> None:
        """Kill it with all processes that it has started."""
        try:
            os.killpg(self._process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self._process.wait(_END)
