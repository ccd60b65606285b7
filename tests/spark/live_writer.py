"""A process that publishes, consumes and purges as a broker would, and says what is in its queues at every tick.

    python -m tests.spark.live_writer DIRECTORY SEED SECONDS [BATCH]

Each line is a JSON object: `until` is a time in microseconds; from the line before to then, cuts show of each queue
what `queues` says: messages, sum of their numbers, sum of their body lengths. `published` is how many there have been.
"""

from __future__ import annotations

import json
import queue
import random
import signal
import sys
import time
from collections.abc import Callable

from leveret.storage.engine import EngineOptions, StorageEngine
from leveret.storage.event_format import EventKind
from leveret.storage.message import Envelope, Message
from leveret.storage.stores.segment_store import SegmentStore
from tests.spark.messages import content_header

QUEUES = ("orders", "invoices", "mail")
#: Of these, whose messages are transient: a lazy queue has them in files too, which do not outlive the process.
TRANSIENT = "mail"


def body_of(number: int) -> bytes:
    """What the message of this number holds."""
    return b"%d:" % number + b"x" * (number * 37 % 900)


class LiveQueue:
    def __init__(self, store: SegmentStore, name: str) -> None:
        self.store = store
        self.living: dict[int, int] = {}
        self.envelope = Envelope(
            b"\x00" + bytes([len(name)]) + name.encode(), content_header(0, message_id="m"), name != TRANSIENT
        )
        self.published = 0

    def publish(self, count: int) -> None:
        for _ in range(count):
            message = Message(self.envelope, body_of(self.store.next_seq))
            self.living[self.store.next_seq] = len(message.body)
            self.store.append([message], len(message.body))
        self.published += count

    def consume(self, rng: random.Random, count: int) -> None:
        """Take messages, settle some for a reason or other, and give the rest back."""
        entries = self.store.take(count, 1 << 20)[0]
        rng.shuffle(entries)
        # What is given back before it was written, and need not be, is in no file.
        kept = rng.randrange(3) if self.envelope.persistent else 0
        self.store.requeue(entries[:kept])
        kind = rng.choice((EventKind.ACK, EventKind.ACK, EventKind.MAXLEN, EventKind.EXPIRED))
        self.store.settle(sorted(entries[kept:]), kind)
        for seq, _, _ in entries[kept:]:
            del self.living[seq]

    def purge(self) -> None:
        self.store.purge()
        self.living.clear()

    @property
    def model(self) -> list[int]:
        return [len(self.living), sum(self.living), sum(self.living.values())]


def main(path: str, seed: int, seconds: float, batch: int = 40) -> None:
    """Write for some seconds or until interrupted, then stop in order."""
    rng = random.Random(seed)
    calls: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
    options = EngineOptions(segment_bytes=60_000, trash_bytes=400_000)
    engine = StorageEngine(path, deliver=calls.put, options=options)
    queues = {
        name: LiveQueue(engine.store(engine.create_queue(name != TRANSIENT, {"vhost": "/", "name": name})), name)
        for name in QUEUES
    }
    end = time.monotonic() + seconds
    ticked = 0.0
    stopping: list[int] = []
    signal.signal(signal.SIGINT, lambda number, _: stopping.append(number))
    while time.monotonic() < end and not stopping:
        for each in queues.values():
            each.publish(rng.randrange(batch))
            if rng.random() < 0.004:
                each.purge()
            elif rng.random() < 0.9:
                each.consume(rng, rng.randrange(1, batch))
        engine.flush()
        engine.commit()
        if time.monotonic() - ticked > 0.02:
            engine.housekeeping()
            if rng.random() < 0.05:
                engine.checkpoint()
            ticked = time.monotonic()
            say(engine.clock._last, queues)
        while not calls.empty():
            calls.get()()
    engine.close()
    say(engine.clock._last, queues)


def say(until: int, queues: dict[str, LiveQueue]) -> None:
    models = {name: each.model for name, each in queues.items()}
    published = {name: each.published for name, each in queues.items()}
    sys.stdout.write(json.dumps({"until": until, "queues": models, "published": published}) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), float(sys.argv[3]), *map(int, sys.argv[4:]))
