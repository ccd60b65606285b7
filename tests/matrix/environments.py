"""Makes the virtual environments that the programs run in."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

from tests.matrix.suite import ROOT

_HERE: Final = Path(__file__).parent / "environments"
_MADE: Final = ROOT / "build" / "matrix" / "environments"


class Environment:
    """A virtual environment, made when it is first needed and whenever what it shall have changes."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._needs = _HERE / f"{name}.txt"
        self._constraints = _HERE / f"{name}.constraints.txt"
        self._directory = _MADE / name

    @property
    def python(self) -> Path:
        """Its interpreter."""
        return self._directory / "bin" / "python"

    def make(self) -> None:
        """Make it, unless it is there as it shall be."""
        stamp, wanted = self._directory / "made-from", self._fingerprint()
        if stamp.exists() and stamp.read_text() == wanted:
            return
        self._install("--constraint", str(self._constraints))
        stamp.write_text(wanted)

    def take_newest(self) -> None:
        """Make it again with the newest versions of all packages, and write those to its constraints."""
        self._install()
        frozen = subprocess.run([self.python, "-m", "pip", "freeze"], capture_output=True, text=True, check=True)
        self._constraints.write_text(frozen.stdout)
        (self._directory / "made-from").write_text(self._fingerprint())

    def _install(self, *options: str) -> None:
        shutil.rmtree(self._directory, ignore_errors=True)
        subprocess.run([sys.executable, "-m", "venv", self._directory], check=True)
        command = [str(self.python), "-m", "pip", "install", "--quiet", *options, "--requirement", str(self._needs)]
        subprocess.run(command, check=True, env={**os.environ, "PIP_DISABLE_PIP_VERSION_CHECK": "1"})

    def _fingerprint(self) -> str:
        parts = (sys.version, str(ROOT), self._needs.read_text(), self._constraints.read_text())
        return hashlib.sha256("\0".join(parts).encode()).hexdigest()
