"""A broker that records at every tick what its queues hold: the expected result of Spark queries on its files.

    python -m tests.spark.recording_broker MODEL [OPTIONS OF THE BROKER]

Each line of MODEL is a JSON object: `until` is a time in microseconds; from the line before to then, cuts show of each
queue what `queues` says: messages, ready or taken, and the sum of their body lengths.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from leveret.broker.__main__ import main
from leveret.broker.core.message_stores import MessageStores


def record_counts(path: str) -> None:
    """Make every data directory of this process append a line to a file with each tick."""
    record = open(path, "w", encoding="utf-8")  # noqa: SIM115  It is written to until the process ends.
    housekeep = MessageStores._housekeep

    def recording_housekeep(self: MessageStores) -> None:
        housekeep(self)
        queues: dict[str, list[int]] = {}
        for queue in self.engine.queues.values():
            stores: list[Any] = list(queue.stores.values())
            queues[str(queue.attributes["name"])] = [
                sum(each.ready_count + each.taken_count for each in stores),
                sum(each.ready_bytes + each.taken_bytes for each in stores),
            ]
        record.write(json.dumps({"until": self.engine.clock._last, "queues": queues}) + "\n")
        record.flush()

    # The event loop's timer gets this as a value, by the name, so that it is found although the module is compiled.
    setattr(MessageStores, "_housekeep", recording_housekeep)  # noqa: B010  mypy knows that it is a method.


if __name__ == "__main__":
    record_counts(sys.argv[1])
    del sys.argv[1]
    main()
