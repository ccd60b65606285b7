"""A broker that tells at every tick what its queues hold, in a file: the model for whoever counts in its files.

    python -m tests.spark.told_broker MODEL [OPTIONS OF THE BROKER]

Each line of MODEL is a JSON object: `until` is a time in microseconds; from the line before to then, cuts show of each
queue what `queues` says: messages, ready or taken, and the sum of their body lengths.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from leveret.broker.__main__ import main
from leveret.storage.engine import StorageEngine


def tell(path: str) -> None:
    """Have every engine of this process tell."""
    told = open(path, "w", encoding="utf-8")  # noqa: SIM115  It is written to until the process ends.
    housekeeping = StorageEngine.housekeeping

    def housekeeping_told(self: StorageEngine) -> None:
        housekeeping(self)
        queues: dict[str, list[int]] = {}
        for queue in self.queues.values():
            stores: list[Any] = list(queue.stores.values())
            queues[str(queue.attributes["name"])] = [
                sum(each.ready_count + each.taken_count for each in stores),
                sum(each.ready_bytes + each.taken_bytes for each in stores),
            ]
        told.write(json.dumps({"until": self._clock._last, "queues": queues}) + "\n")
        told.flush()

    setattr(StorageEngine, "housekeeping", housekeeping_told)  # noqa: B010  mypy knows that it is a method.


if __name__ == "__main__":
    tell(sys.argv[1])
    del sys.argv[1]
    main()
