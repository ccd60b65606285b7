"""A process that is killed again and again: nothing that was confirmed is lost, nothing acknowledged comes back."""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path

import pytest

from leveret.storage.engine import StorageEngine
from tests.crash.ledger_writer import body_of

ROOT = Path(__file__).parents[2]


def run_until_killed(path: Path, seed: int, lines: int) -> list[str]:
    """Start the writer, kill it after this many lines; return all lines that it wrote."""
    command = [sys.executable, "-m", "tests.crash.ledger_writer", str(path), str(seed)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        said = [process.stdout.readline() for _ in range(lines)]
        process.kill()
        # The last line may be cut: then it was never said.
        said += [line for line in process.stdout if line.endswith("\n")]
    assert all(said), "the writer ended by itself"
    return said


@pytest.mark.parametrize("seed", [1, 2])
def test_what_was_confirmed_survives_and_what_was_acknowledged_does_not_return(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    settled: set[int] = set()
    acked: set[int] = set()
    first = 1
    for _ in range(4):
        said = run_until_killed(tmp_path, rng.randrange(1 << 30), rng.randrange(50, 800))
        confirmed = 0
        for line in said:
            what, *numbers = line.split()
            if what == "confirmed":
                confirmed = max(confirmed, int(numbers[0]))
            else:
                (settled if what == "settled" else acked).update(map(int, numbers))
        engine = StorageEngine(str(tmp_path))
        report = engine.report
        assert (report.lost_messages, report.damaged_spans, report.failures) == (0, 0, [])
        store = engine.store(next(iter(engine.queues.values())))
        entries = store.take(1 << 30, 1 << 40)[0]
        assert all(entry[1].body == body_of(entry[0]) and entry[2] for entry in entries)
        found = {entry[0] for entry in entries}
        assert not found & acked
        assert set(range(first, confirmed + 1)) - found <= settled
        # All that is left goes, so that the next round begins with nothing.
        store.settle(entries)
        engine.flush()
        first = store.next_seq
        assert engine.close()
