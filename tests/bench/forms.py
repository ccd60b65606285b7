"""`python -m tests.bench.forms`: what a message costs without sockets, with compiled modules and in pure Python."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Final

from leveret import compilation
from tests.bench.__main__ import execute, positive_int
from tests.bench.history import ROOT
from tests.bench.in_flight import BenchError
from tests.bench.in_process import SHAPES
from tests.bench.measurement import Measures, Run
from tests.bench.report import Result, add_output_options, present
from tests.bench.scenarios import Scenario

#: Value of LEVERET_COMPILE by the name of the form in results.
_FORMS: Final = {"Leveret, compiled": "1", "pure Python": "0"}
_EPILOG: Final = """A round of one form follows a round of the other, in processes of their own. CPU time is that of
connections, channels and queues for a message that is published and delivered. The ratio is that of compiled modules to
pure Python."""


class FormProcess:
    """A process that measures one form; a context manager that ends it."""

    def __init__(self, variable: str) -> None:
        command = [sys.executable, "-m", "tests.bench.in_process"]
        environment = os.environ | {"LEVERET_COMPILE": variable}
        self._process = subprocess.Popen(
            command, cwd=ROOT, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        #: `compiled` or `pure Python`.
        self.form = self._line()

    def __enter__(self) -> FormProcess:
        return self

    def __exit__(self, *error: object) -> None:
        self._process.kill()
        self._process.communicate()

    def _line(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline().strip()
        if not line:
            raise BenchError(f"a process ended with status {self._process.wait()}")
        return line

    def cpu_of_message(self, shape: Scenario, count: int) -> float:
        """Return the CPU time of a message in microseconds."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{shape.name} {count}\n")
        self._process.stdin.flush()
        return float(self._line())


class Forms:
    """Processes of all forms that there are; a context manager that ends them."""

    def __init__(self) -> None:
        self._stack = ExitStack()
        self._processes: dict[str, FormProcess] = {}

    def __enter__(self) -> Forms:
        with self._stack:
            for name, variable in _FORMS.items():
                if variable == "0" or compilation.form() == "compiled":
                    self._processes[name] = self._stack.enter_context(FormProcess(variable))
            self._stack = self._stack.pop_all()
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()

    def measure(self, shape: Scenario, rounds: int, count: int) -> Result:
        """Measure a shape in each form in turn, and again."""
        found: dict[str, list[Run]] = {name: [] for name in self._processes}
        for _ in range(rounds):
            for name, process in self._processes.items():
                cpu = process.cpu_of_message(shape, count)
                found[name].append(Run(count, 0, Measures(1_000_000 / cpu, cpu, None, None, None, None)))
        return Result(shape, found)


def main(argv: Sequence[str] | None = None) -> int:
    """Measure the shapes."""
    shapes = {shape.name: shape for shape in SHAPES}
    parser = argparse.ArgumentParser(prog="python -m tests.bench.forms", description=__doc__, epilog=_EPILOG)
    parser.add_argument("--scenario", action="append", choices=shapes, help="only this scenario; may be repeated")
    parser.add_argument("--runs", type=positive_int, default=15, metavar="N", help="rounds of each form (default: 15)")
    parser.add_argument(
        "--messages", type=positive_int, default=20_000, metavar="N", help="of a round (default: 20000)"
    )
    add_output_options(parser)
    options = parser.parse_args(argv)
    try:
        with Forms() as forms:
            names = options.scenario or shapes
            results = [forms.measure(shapes[name], options.runs, options.messages) for name in names]
    except (BenchError, OSError) as error:
        print(f"bench: {error}", file=sys.stderr)
        return 1
    present(results, as_json=options.json, directory=options.results)
    return 0


if __name__ == "__main__":
    execute(main)
