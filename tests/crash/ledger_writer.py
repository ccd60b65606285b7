"""A process that publishes, consumes and acknowledges as fast as it can, and reports what was confirmed.

It is killed by test_kill.py, which then recovers the directory and compares.
Lines: "settled N ..." (before anything is written of that), "confirmed N" (all messages up to N are on
disk), "acked N ..." (the event log that says so has been synced).
"""

from __future__ import annotations

import queue
import random
import sys
from collections.abc import Callable

from leveret.storage.engine import EngineOptions, StorageEngine
from leveret.storage.interface import Entry
from leveret.storage.message import Envelope, Message

ENVELOPE = Envelope(b"\x00\x01q", bytes(14), True)


def body_of(number: int) -> bytes:
    """What the message of this number holds."""
    return b"%d:" % number + b"x" * (number * 37 % 900)


def say(lines: str) -> None:
    """Write lines to the test, and flush: they must survive the kill."""
    sys.stdout.write(lines + "\n")
    sys.stdout.flush()


def main(path: str, seed: int) -> None:
    """Go on until killed."""
    rng = random.Random(seed)
    calls: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
    engine = StorageEngine(path, deliver=calls.put, options=EngineOptions(segment_bytes=20_000))
    stored = next(iter(engine.queues.values()), None) or engine.create_queue(True, {"name": "q"})
    store = engine.store(stored)
    held: list[Entry] = []
    while True:
        for _ in range(rng.randrange(6)):
            message = Message(ENVELOPE, body_of(store.next_seq))
            store.append([message], len(message.body))
        published = store.next_seq - 1
        entries = store.take(rng.randrange(1, 6), 1 << 20)[0]
        rng.shuffle(entries)
        kept = rng.randrange(3)
        store.requeue(entries[:kept])
        gone = entries[kept:]
        if gone and rng.random() < 0.3:
            # Some stay unacknowledged for long, so that segments become sparse.
            held.append(gone.pop())
        if len(held) > 300:
            rng.shuffle(held)
            gone += held[30:]
            del held[30:]
        store.settle(gone)
        acked = " ".join(str(entry[0]) for entry in gone)
        say(f"settled {acked}")
        engine.flush()

        def release(published: int = published, acked: str = acked) -> None:
            say(f"confirmed {published}\nacked {acked}")

        engine.commit(release, events=True)
        if rng.random() < 0.02:
            engine.housekeeping()
        if rng.random() < 0.02:
            engine.checkpoint()
        while not calls.empty():
            calls.get()()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
