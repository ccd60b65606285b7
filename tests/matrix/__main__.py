"""The command of `make matrix`: makes the environments, runs the programs' tests, prints what works."""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from tests.matrix.environments import Environment
from tests.matrix.runs import Run, Target, run
from tests.matrix.suite import PROGRAMS, ROOT
from tests.matrix.table import table
from tests.support.leveret_process import LeveretProcess

_RESULT = ROOT / "build" / "matrix" / "table.md"


def main() -> int:
    """Run the command; return its exit status: 1 if anything has failed."""
    options = _options()
    programs = [each for each in PROGRAMS if not options.only or each.name in options.only]
    environments = sorted({each.environment for each in programs})
    if options.take_newest:
        for name in environments:
            Environment(name).take_newest()
        return 0
    if not _made(environments):
        return 1
    runs = {target.name: run(programs, target, options.jobs, _tell) for target in _targets(options)}
    found = table(runs)
    _RESULT.write_text(found)
    print(f"\n{found}")
    return 0 if all(each.succeeded for brokers in runs.values() for each in brokers) else 1


def _tell(run: Run) -> None:
    passed = sum(outcome.passed for outcome in run.outcomes)
    print(f"{run.program.name}: {passed} of {len(run.outcomes)}", flush=True)
    if not run.succeeded:
        print(run.output, flush=True)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.matrix", description=__doc__)
    parser.add_argument("--url", help="AMQP URL of another broker, for a second column")
    parser.add_argument("--management-url", help="base URL of its HTTP API (default: port 15672 of its host)")
    parser.add_argument("--name", default="RabbitMQ", help="its name (default: %(default)s)")
    names = [each.name for each in PROGRAMS]
    parser.add_argument("--only", action="append", choices=names, help="one program; may be given several times")
    parser.add_argument("--jobs", type=int, default=2, help="programs that are tried at a time (default: %(default)s)")
    parser.add_argument("--take-newest", action="store_true", help="update the environments' constraints, run nothing")
    return parser.parse_args()


def _made(environments: list[str]) -> bool:
    """Make environments; return whether all are there."""
    with ThreadPoolExecutor(2) as pool:
        futures = {name: pool.submit(Environment(name).make) for name in environments}
    complete = True
    for name, future in futures.items():
        if isinstance(error := future.exception(), subprocess.CalledProcessError):
            print(f"the environment {name} cannot be made: {error}", file=sys.stderr)
            complete = False
        elif error is not None:
            raise error
    return complete


def _targets(options: argparse.Namespace) -> Iterator[Target]:
    """A Leveret with its defaults, as long as it is used, then the broker that was given."""
    with _leveret() as target:
        yield target
    if options.url:
        host = options.url.rpartition("@")[2].partition("/")[0].partition(":")[0]
        yield Target(options.name, options.url, options.management_url or f"http://guest:guest@{host}:15672")


@contextmanager
def _leveret() -> Iterator[Target]:
    with tempfile.TemporaryDirectory(prefix="matrix-") as directory, LeveretProcess(Path(directory)) as process:
        yield Target("Leveret", process.url, process.http_url)


if __name__ == "__main__":
    sys.exit(main())
