"""`python -m tests.bench.flame_graph SHAPE` runs a scenario on Leveret and leaves a flame graph of the broker."""

from __future__ import annotations

import argparse
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from leveret import compilation
from tests.bench.brokers import fresh_leveret
from tests.bench.in_flight import BenchError
from tests.bench.measurement import Extent, measure
from tests.bench.scenarios import SCENARIOS, SIZES

_SAMPLES_PER_SECOND: Final = 250
#: Seconds that the profiler has to write the graph.
_PATIENCE: Final = 120


def main(argv: Sequence[str] | None = None) -> int:
    """Profile a scenario."""
    shapes = {scenario.name: scenario for scenario in SCENARIOS}
    parser = argparse.ArgumentParser(prog="make profile", description="Leave a flame graph of the broker.")
    parser.add_argument("shape", choices=shapes, help="a scenario of `make bench`")
    parser.add_argument("--results", type=Path, default=Path("bench-results"), help="folder of the graph")
    parser.add_argument("--size", choices=SIZES, default="normal", help="how long the run takes")
    options = parser.parse_args(argv)
    options.results.mkdir(parents=True, exist_ok=True)
    graph = options.results / f"profile-{options.shape}.svg"
    try:
        with fresh_leveret(tls=shapes[options.shape].tls) as broker:
            assert broker.account is not None
            with _profiled(broker.account.pid, graph):
                run = measure(shapes[options.shape], broker, Extent(SIZES[options.size]))
    except (BenchError, OSError) as error:
        sys.stderr.write(f"profile: {error}\n")
        return 1
    cpu = run.measures.server_cpu_us
    sys.stdout.write(f"{run.messages} messages, {cpu:.2f} µs of CPU each, {compilation.form()}: {graph}\n")
    return 0


@contextmanager
def _profiled(pid: int, graph: Path) -> Iterator[None]:
    """Take samples of a process while the block runs, then write the graph."""
    command = [str(Path(sys.executable).with_name("py-spy")), "record", "--pid", str(pid), "--output", str(graph)]
    command += ["--rate", str(_SAMPLES_PER_SECOND)]
    if compilation.form() == "compiled":
        # Compiled functions are seen as functions of C.
        command.append("--native")
    with (
        tempfile.TemporaryFile("w+") as errors,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True) as profiler,
    ):
        assert profiler.stdout is not None
        # It prints a line when it has begun. A signal before would end it without a graph.
        if profiler.stdout.readline():
            try:
                yield
            finally:
                profiler.send_signal(signal.SIGINT)
                profiler.communicate(timeout=_PATIENCE)
        if not graph.is_file():
            errors.seek(0)
            raise BenchError(f"py-spy wrote no graph: {errors.read().strip()}")


if __name__ == "__main__":
    sys.exit(main())
