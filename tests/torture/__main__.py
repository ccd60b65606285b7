"""Run brokers under load through histories that are made by lot; see tests/torture/__init__.py.

python -m tests.torture --seconds 3600 --seed 7
python -m tests.torture --seed 7 --history full-disk/power/at-once/123,none/kill/killed/4
"""

from __future__ import annotations

import argparse
import math
import random
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.torture import failovers
from tests.torture.episode import Episode, FailedStep
from tests.torture.history import Step, make_history, parse_history, shorter
from tests.torture.preloaded_disk import NoCompilerError, build

_ROUNDS = 12
#: How often a shorter history is tried: when a broker is killed in what it does differs from time to time.
_TRIES = 2


class Torture:
    """Runs histories."""

    def __init__(self, directory: Path, keep: Path, settings: Mapping[str, str]) -> None:
        self._directory = directory
        self._keep = keep
        self._settings = settings
        self._number = 0
        self.counts: Counter[str] = Counter()
        try:
            self.library: Path | None = build(directory)
        except NoCompilerError as error:
            print(f"{error}: no loss of power, and no failing calls")
            self.library = None

    def run(self, seed: int, history: Sequence[Step], deadline: float = math.inf) -> FailedStep | None:
        """Run a history from an empty directory until a time of time.monotonic(); return what was wrong."""
        self._number += 1
        directory = self._directory / f"broker-{self._number}"
        directory.mkdir()
        episode = Episode(directory, self.library, seed, self._settings)
        found: FailedStep | None = None
        try:
            episode.run(history, deadline)
        except FailedStep as failed:
            found = failed
        finally:
            episode.close()
            self.counts += episode.counts
        if found is not None:
            kept = self._keep / f"seed-{seed}-{len(found.history)}-steps"
            shutil.rmtree(kept, ignore_errors=True)
            shutil.copytree(directory, kept)
        shutil.rmtree(directory)
        return found

    def shortest(self, seed: int, failed: FailedStep) -> FailedStep:
        """Return the shortest end of a history that fails again; the history itself if none does."""
        for history in shorter(failed.history):
            for _ in range(_TRIES):
                if (again := self.run(seed, history)) is not None:
                    return again
        return failed


def main(arguments: Sequence[str] | None = None) -> int:
    """Run brokers, and print what has happened; return 1 if a promise was broken."""
    parser = argparse.ArgumentParser(prog="tests.torture", description=(__doc__ or "").partition(";")[0] + ".")
    parser.add_argument("--seconds", type=float, default=60, help="how long; default: 60")
    parser.add_argument("--seed", type=int, default=1, help="of all that is decided by lot; default: 1")
    parser.add_argument(
        "--nodes", type=int, default=1, help="more than one for a cluster with etcd (tests/torture/failovers.py)"
    )
    parser.add_argument("--history", help="the steps of one history, as a failure prints them, instead of others")
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="an option of the broker")
    parser.add_argument(
        "--keep", type=Path, default=Path("build/torture"), help="where a directory that failed is left"
    )
    given = parser.parse_args(arguments)
    if given.nodes > 1:
        return failovers.run(given.seconds, given.seed, given.nodes, given.keep)
    try:
        history = None if given.history is None else parse_history(given.history)
        settings = dict(_setting(each) for each in given.set)
    except ValueError as error:
        parser.error(str(error))
    with tempfile.TemporaryDirectory(prefix="leveret-torture-") as temporary:
        torture = Torture(Path(temporary), given.keep, settings)
        failed = _run(torture, given.seed, given.seconds) if history is None else torture.run(given.seed, history)
        if failed is not None and history is None:
            failed = torture.shortest(given.seed, failed)
    _print_counts(torture.counts)
    if failed is None:
        return 0
    again = ["--seed", str(given.seed), "--history", ",".join(map(str, failed.history))]
    again += [f"--set {each}" for each in given.set]
    print(f"\n{failed.log}\n{failed}\nAgain: python -m tests.torture {' '.join(again)}")
    return 1


def _setting(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals:
        raise ValueError(f"{text!r} is not NAME=VALUE")
    return name, value


def _run(torture: Torture, seed: int, seconds: float) -> FailedStep | None:
    """Run histories until the time is over."""
    rng, started = random.Random(seed), time.monotonic()
    while time.monotonic() < (deadline := started + seconds):
        history = make_history(rng, _ROUNDS, can_fail=torture.library is not None)
        if (failed := torture.run(seed, history, deadline)) is not None:
            return failed
        rounds, confirmed = (torture.counts[name] for name in ("rounds", "confirmed"))
        took = time.monotonic() - started
        print(f"seed {seed}, {took:.0f} s: {rounds} rounds, {confirmed} messages confirmed, 0 lost", flush=True)
    return None


def _print_counts(counts: Counter[str]) -> None:
    for name, count in sorted(counts.items()):
        print(f"{count:10}  {name}")


if __name__ == "__main__":
    sys.exit(main())
