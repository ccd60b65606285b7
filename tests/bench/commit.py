"""`python -m tests.bench.commit`: measures confirms per second of the store, with and without the redo log."""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from queue import SimpleQueue
from typing import Final, NamedTuple

from leveret.storage.disk.files import DiskFiles
from leveret.storage.engine import EngineOptions, StorageEngine
from leveret.storage.message import Envelope, Message

_PERSISTENT: Final = Envelope(b"\x00\x01q", bytes(14), True)
#: Queues, and messages that wait for their confirms in all of them together.
_LOADS: Final = ((1, 100), (1, 1000), (100, 100), (100, 2000), (100, 10_000))


class Figures(NamedTuple):
    """What a run has shown.

    Attributes:
        confirms: A second.
        median_ms, worst_ms: From the write to the confirm; worst is the 99th percentile.
        cpu_us: The process's, for one message.
    """

    confirms: float
    median_ms: float
    worst_ms: float
    cpu_us: float


class SlowFiles(DiskFiles):
    """A disk with slow syncs, like network block storage.

    Args:
        seconds: Additional seconds per sync.
    """

    __slots__ = ("_seconds",)

    def __init__(self, seconds: float) -> None:
        super().__init__()
        self._seconds = seconds

    def fdatasync(self, handle: int) -> None:
        """Return once the contents are on the disk, and a moment later."""
        super().fdatasync(handle)
        time.sleep(self._seconds)


def measure(
    directory: str, queues: int, in_flight: int, body_bytes: int, seconds: float, redo: bool, files: DiskFiles
) -> Figures:
    """Publish to some queues, again as soon as everything has been confirmed.

    Args:
        directory: Where there is nothing yet.
        queues: How many.
        in_flight: Messages that wait for their confirms, in all queues together.
        body_bytes: Length of a body.
        seconds: How long.
        redo: Whether there is a redo log.
        files: The disk.
    """
    calls: SimpleQueue[Callable[[], None]] = SimpleQueue()
    options = EngineOptions(redo_segments=EngineOptions().redo_segments if redo else 0)
    engine = StorageEngine(directory, calls.put, files=files, options=options)
    stores = [engine.store(engine.create_queue(True, {"name": number})) for number in range(queues)]
    each, body = in_flight // queues, bytes(body_bytes)
    waits: list[float] = []
    started, cpu = time.perf_counter(), time.process_time()
    while time.perf_counter() - started < seconds:
        for store in stores:
            store.append([Message(_PERSISTENT, body) for _ in range(each)], each * body_bytes)
        written = time.perf_counter()
        engine.flush()
        confirmed: list[bool] = []
        engine.commit(lambda confirmed=confirmed: confirmed.append(True))  # type: ignore[misc]
        while not confirmed:
            calls.get()()
        waits.append(time.perf_counter() - written)
    took, cpu = time.perf_counter() - started, time.process_time() - cpu
    engine.close()
    waits.sort()
    count = len(waits) * each * queues
    return Figures(
        count / took, waits[len(waits) // 2] * 1000, waits[len(waits) * 99 // 100] * 1000, cpu / count * 1_000_000
    )


def main(argv: Sequence[str] | None = None) -> int:
    """Run all loads with the redo log and without, and print a table.

    Args:
        argv: Arguments; None for those of the command line.
    """
    parser = argparse.ArgumentParser(prog="python -m tests.bench.commit", description=__doc__)
    parser.add_argument("--seconds", type=float, default=3.0, help="how long each run lasts")
    parser.add_argument("--body", type=int, default=1000, help="bytes of a body")
    parser.add_argument("--directory", help="where to write; default: the system's for temporary files")
    parser.add_argument("--slower-ms", type=float, default=0.0, help="let every sync take this much longer")
    options = parser.parse_args(argv)
    print("queues  in flight  redo   confirms/s  median ms   p99 ms  CPU us/message")
    for queues, in_flight in _LOADS:
        for redo in (True, False):
            files = SlowFiles(options.slower_ms / 1000) if options.slower_ms else DiskFiles()
            with tempfile.TemporaryDirectory(dir=options.directory) as directory:
                found = measure(f"{directory}/data", queues, in_flight, options.body, options.seconds, redo, files)
            print(
                f"{queues:6}  {in_flight:9}  {'yes' if redo else 'no':4}  {found.confirms:11,.0f}"
                f"  {found.median_ms:9.2f}  {found.worst_ms:7.2f}  {found.cpu_us:14.1f}"
            )
    return 0


if __name__ == "__main__":
    sys.exit(main())
