"""The folder under build/ in which mutmut works, and what it leaves there.

mutmut takes the project from the current folder, changes a copy of it there, and names a module after its path.
Modules are `leveret.storage…` to the tests, so the folder has the links of the folder `leveret`, and paths go through
them.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from mutmut.configuration import reset_config
from mutmut.mutation.diff_apply import get_diff_for_mutant
from mutmut.stats import status_by_exit_code

from tests.mutants.scope import ROOT, Scope

#: Lines that are left as they are: what a log record says is for people.
_NOT_CHANGED: Final = [r"\b_LOG\."]
#: A mutant that runs endlessly is ended after this many times the seconds that its tests take, and those more.
_TIMES: Final = 3.0
_SECONDS_MORE: Final = 10.0


class MutmutFailedError(Exception):
    """mutmut ended without a result; the text says where to look."""


class Workspace:
    """A folder under build/mutants, made by `prepare`."""

    def __init__(self, scope: Scope) -> None:
        self._scope = scope
        self.folder = ROOT / "build" / "mutants" / scope.name.removesuffix(".py").replace("/", "-")
        self.log = self.folder / "mutmut.log"

    def prepare(self) -> None:
        """Make the folder; one that an earlier run left is removed."""
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(parents=True)
        for name in ("leveret", "tests"):
            (self.folder / name).symlink_to(ROOT / name)
        shutil.copytree(ROOT / "leveret", self.folder / "mutants" / "leveret")
        settings = {
            # Each mutant in a process that has run no tests before: some notice that they run a second time.
            "process_isolation": "forkserver",
            "source_paths": [_path(module) for module in self._scope.modules],
            "pytest_add_cli_args": ["-p", "no:cacheprovider"],
            "pytest_add_cli_args_test_selection": list(self._scope.tests),
            "do_not_mutate_patterns": _NOT_CHANGED,
            "timeout_multiplier": _TIMES,
            "timeout_constant": _SECONDS_MORE,
            "use_git_change_detection": False,
        }
        # Of lists, texts, numbers and booleans, JSON is TOML.
        lines = [f"{name} = {json.dumps(value)}\n" for name, value in settings.items()]
        project = (ROOT / "pyproject.toml").read_text()
        (self.folder / "pyproject.toml").write_text(f"{project}\n[tool.mutmut]\n{''.join(lines)}")

    def mutants(self, workers: int) -> Mapping[str, Sequence[str]]:
        """Make the mutants; return their names, by module."""
        # `mutmut run` makes them too, but not without running tests. It keeps those that are newer than their module.
        self._call([sys.executable, "-c", f"from mutmut.__main__ import create_mutants; create_mutants({workers})"])
        return {module: list(self.outcomes(module)) for module in self._scope.modules}

    def run(self, mutants: Sequence[str], workers: int) -> None:
        """Run the tests on mutants."""
        mutmut = str(Path(sys.executable).with_name("mutmut"))
        self._call([mutmut, "run", "--max-children", str(workers), *mutants])

    def _call(self, command: Sequence[str]) -> None:
        environment = os.environ | {"LEVERET_COMPILE": "0"}
        with self.log.open("ab") as log:
            process = subprocess.Popen(command, cwd=self.folder, env=environment, stdout=log, stderr=log)
        try:
            status = process.wait()
        except KeyboardInterrupt:
            # The terminal has told mutmut, too. It stops, and keeps what it has found.
            status = process.wait()
        if status:
            raise MutmutFailedError(
                f"mutmut ended with status {status}; its log is {self.log}. "
                f"Do the tests pass without it? LEVERET_COMPILE=0 python -m pytest {' '.join(self._scope.tests)}"
            )

    def outcomes(self, module: str) -> dict[str, str]:
        """Return what became of a module's mutants, by name: "killed", "survived", "no tests", "timeout" …"""
        file = self.folder / "mutants" / f"{_path(module)}.meta"
        if not file.exists():
            return {}
        return {
            name: status_by_exit_code[code] for name, code in json.loads(file.read_text())["exit_code_by_key"].items()
        }

    def diff(self, module: str, mutant: str) -> str:
        """Return how a mutant differs from its module."""
        with self._entered():
            return get_diff_for_mutant(mutant, path=_path(module))

    @contextlib.contextmanager
    def _entered(self) -> Iterator[None]:
        """Let mutmut's functions find the folder: they take it, and their configuration, from the current folder."""
        with contextlib.chdir(self.folder):
            reset_config()
            yield


def _path(module: str) -> str:
    return f"leveret/{module}"
