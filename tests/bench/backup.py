"""`python -m tests.bench.backup`: measures what backups cost, and what restoring them takes."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import threading
import time
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass
from itertools import cycle
from pathlib import Path
from typing import Final

from pamqp import commands

from leveret.analytics.backup.listing import Listing, Row
from leveret.analytics.backup.repository import Repository
from tests.bench.__main__ import execute
from tests.bench.accounting import ProcessAccount
from tests.bench.frames import CHANNEL
from tests.bench.in_flight import BenchError
from tests.bench.replication import Publisher
from tests.support import content
from tests.support.leveret_process import LeveretProcess
from tests.support.transport import BODY, HEADER, frame, method_frame
from tests.support.wire import Connection

_QUEUES: Final = tuple(f"backlog.{number}" for number in range(10))
#: Sizes of bodies, in bytes: of queues with even numbers, and with odd ones.
_SIZES: Final = (1_000, 10_000)
#: Bytes that are published at once.
_BATCH: Final = 10_000_000
_PATIENCE: Final = 600.0
#: Seconds after which a tick has all that was confirmed: a backup is of the last tick.
_TICK: Final = 3.0
_EPILOG: Final = f"""A new broker gets persistent messages in {len(_QUEUES)} lazy queues, half of the bytes in bodies of
1 kB and half in bodies of 10 kB. Then `leveret backup` runs twice, and in between the hundredth part is consumed and as
much is published. Another client publishes 1 kB and waits for the confirm, again and again: before the first backup,
and during both. At last the second one is read by `leveret verify`, restored, and a broker is started on it. Data are
in the directory for temporary files (TMPDIR), three times the backlog."""


@dataclass(frozen=True)
class Publishing:
    """What one publisher has noticed that waits for each confirm, and what it cost the broker."""

    messages: int
    server_cpu_us: float
    median_ms: float
    p99_ms: float
    longest_ms: float


@dataclass(frozen=True)
class Backup:
    """A backup, and publishing meanwhile; `new_bytes` is what clients had published since the one before."""

    seconds: float
    cpu_seconds: float
    bytes: int
    sent_bytes: int
    new_bytes: int
    publishing: Publishing


@dataclass(frozen=True)
class Figures:
    """All that is measured."""

    messages: int
    fill_seconds: float
    alone: Publishing
    first: Backup
    second: Backup
    verify_seconds: float
    restore_seconds: float
    restore_cpu_seconds: float
    start_seconds: float


class _Steady:
    """A publisher in a thread of its own, which waits for each confirm."""

    def __init__(self, broker: LeveretProcess) -> None:
        self._account = ProcessAccount(broker.pid)
        self._publisher = Publisher(broker.url, 0, 1, [])
        self._waits: list[float] = []
        self._confirmed: list[int] = []
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def count_until(self, time_us: int) -> int:
        """Return how many messages were confirmed until a time, in microseconds since 1970."""
        return bisect_right(self._confirmed, time_us)

    def _run(self) -> None:
        while not self._ends.is_set():
            self._publisher.fill(time.perf_counter())
            while self._publisher.waits:
                self._publisher.take(self._waits)
                self._confirmed += [time.time_ns() // 1000] * (len(self._waits) - len(self._confirmed))

    @contextmanager
    def noting(self, found: list[Publishing]) -> Iterator[None]:
        """Note what it notices meanwhile."""
        cpu, first = self._account.cpu_seconds(), len(self._waits)
        yield
        cpu, waits = self._account.cpu_seconds() - cpu, sorted(self._waits[first:])
        if not waits:
            raise BenchError("nothing was confirmed")
        ms = [waits[int(part * (len(waits) - 1))] * 1000 for part in (0.5, 0.99, 1.0)]
        found.append(Publishing(len(waits), cpu / len(waits) * 1e6, *ms))

    def close(self) -> None:
        """End it."""
        self._ends.set()
        self._thread.join()
        self._publisher.close()


def main(argv: Sequence[str] | None = None) -> int:
    """Run it."""
    options = _parser().parse_args(argv)
    try:
        with tempfile.TemporaryDirectory(prefix="bench-backup-") as name:
            found = measure(Path(name), int(options.gib * (1 << 30)), options.seconds)
    except (BenchError, OSError) as error:
        print(f"bench: {error}", file=sys.stderr)
        return 1
    print(json.dumps(asdict(found), indent=2) if options.json else table(found))
    return 0


def measure(directory: Path, size: int, seconds: float) -> Figures:
    """Run all.

    Args:
        directory: Gets the data, the backups, and what is restored.
        size: Bytes of the bodies of the backlog.
        seconds: How long is measured without a backup.
    """
    publishing: list[Publishing] = []
    repository = Repository(str(directory / "backups"))
    with LeveretProcess(directory) as broker:
        _say(f"publishing {size} bytes")
        began = time.monotonic()
        _fill(broker.url, size)
        fill_seconds = time.monotonic() - began
        with closing(_Steady(broker)) as steady:
            time.sleep(_TICK)
            _say("without a backup")
            with steady.noting(publishing):
                time.sleep(seconds)
            first = _backup(broker, repository, steady, size, 0)
            _say("consuming and publishing 1 %")
            _consume(broker.url, size // 100)
            _fill(broker.url, size // 100)
            time.sleep(_TICK)
            second = _backup(broker, repository, steady, size // 100, repository.backups()[-1].time)
        expected = _counted(broker.url)
    verify_seconds = _timed("verify", "--from", str(directory / "backups"))[0]
    (directory / "restored").mkdir()
    restore_seconds, restore_cpu_seconds = _timed(
        "restore", "--from", str(directory / "backups"), "--data-dir", str(directory / "restored" / "data")
    )
    began = time.monotonic()
    with LeveretProcess(directory / "restored") as broker:
        start_seconds = time.monotonic() - began
        if (there := _counted(broker.url)) != expected:
            raise BenchError(f"{there} messages were restored, not {expected}")
    return Figures(
        expected,
        fill_seconds,
        publishing[0],
        first,
        second,
        verify_seconds,
        restore_seconds,
        restore_cpu_seconds,
        start_seconds,
    )


def _backup(broker: LeveretProcess, repository: Repository, steady: _Steady, new: int, since: int) -> Backup:
    """Take a backup; the bytes are those of the backlog since the backup of a time, or at all."""
    publishing: list[Publishing] = []
    with steady.noting(publishing):
        seconds, cpu = _timed("backup", "--data-dir", str(broker.data_dir), "--to", repository.shown)
    row: Row = Listing(repository).rows(repository.backups())[-1]
    if row.bytes is None or row.sent is None:
        raise BenchError("the manifest of the backup is damaged")
    new += (steady.count_until(row.time) - steady.count_until(since)) * _SIZES[0]
    return Backup(seconds, cpu, row.bytes, row.sent, new, publishing[0])


def _timed(*arguments: str) -> tuple[float, float]:
    """Run a command of Leveret; return how long it took, and its processor time."""
    _say(arguments[0])
    began = time.monotonic()
    process = subprocess.Popen([sys.executable, "-m", "leveret", *arguments], stdout=subprocess.DEVNULL)
    account, cpu = ProcessAccount(process.pid), 0.0
    while process.poll() is None:
        # What has ended cannot be asked.
        cpu = account.cpu_seconds() or cpu
        time.sleep(0.05)
    if process.returncode:
        raise BenchError(f"leveret {arguments[0]} ended with {process.returncode}")
    return time.monotonic() - began, cpu


def _fill(url: str, size: int) -> None:
    """Publish to the queues, and wait until all is confirmed."""
    batches = []
    for number, queue in enumerate(_QUEUES):
        length = _SIZES[number % len(_SIZES)]
        header = frame(HEADER, CHANNEL, content.header(length, content.properties(delivery_mode=2)))
        publish = method_frame(CHANNEL, commands.Basic.Publish, exchange="", routing_key=queue)
        count = max(1, min(_BATCH, size // len(_QUEUES)) // length)
        batches.append((count, count * length, (publish + header + frame(BODY, CHANNEL, bytes(length))) * count))
    with Connection(url, timeout=_PATIENCE) as connection:
        for count, length, octets in cycle(batches):
            if size <= 0:
                break
            channel = connection.channel(CHANNEL)
            for queue in _QUEUES:
                channel.queue_declare(queue, durable=True, arguments=[("x-queue-mode", "S", "lazy")])
            channel.confirm_select()
            connection.wire.send_bytes(octets)
            channel.wait_for_confirms(count)
            channel.close()
            size -= length


def _consume(url: str, size: int) -> None:
    """Consume the oldest messages of the queues, and acknowledge them."""
    with Connection(url, timeout=_PATIENCE) as connection:
        for number, queue in enumerate(_QUEUES):
            channel = connection.channel()
            channel.qos(1000)
            channel.consume(queue)
            for _ in range(max(1, size // len(_QUEUES) // _SIZES[number % len(_SIZES)])):
                channel.ack(channel.next_delivery().delivery_tag)
            channel.close()


def _counted(url: str) -> int:
    with Connection(url, timeout=_PATIENCE) as connection:
        channel = connection.channel()
        return sum(channel.queue_declare(queue, passive=True).message_count for queue in _QUEUES)


def table(found: Figures) -> str:
    """Return the figures as text."""
    lines = ["publishing            messages  server µs/msg  median ms  99 % ms  longest ms"]
    for name, each in (
        ("without a backup", found.alone),
        ("during the first", found.first.publishing),
        ("during the second", found.second.publishing),
    ):
        lines.append(
            f"{name:20}  {each.messages:8,}  {each.server_cpu_us:13,.0f}  {each.median_ms:9,.1f}  {each.p99_ms:7,.1f}"
            f"  {each.longest_ms:10,.0f}"
        )
    for name, backup in (("first", found.first), ("second", found.second)):
        lines.append(
            f"{name} backup: {backup.seconds:,.1f} s, {backup.cpu_seconds:,.1f} s of processor time, "
            f"{backup.sent_bytes / 1e6:,.1f} MB sent of {backup.bytes / 1e6:,.1f}; bodies of "
            f"{backup.new_bytes / 1e6:,.1f} MB were new"
        )
    lines.append(
        f"filled in {found.fill_seconds:,.0f} s; verified in {found.verify_seconds:,.1f} s, restored in "
        f"{found.restore_seconds:,.1f} s ({found.restore_cpu_seconds:,.1f} s of processor time), started in "
        f"{found.start_seconds:.2f} s; {found.messages:,} messages"
    )
    return "\n".join(lines)


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.backup", description=__doc__, epilog=_EPILOG)
    parser.add_argument("--gib", type=float, default=10.0, metavar="N", help="size of the backlog (default: 10)")
    parser.add_argument("--seconds", type=float, default=30.0, help="how long without a backup (default: 30)")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    return parser


if __name__ == "__main__":
    execute(main)
