"""Measures how long a client waits for its confirms and replies while SQL statements read a backlog.

    python -m tests.bench.sql_waits --megabytes 1000

Each statement reads the whole backlog; the client publishes a persistent message and declares a queue passively, again
and again. What it waits without a statement is measured before and after, on the same machine with the same load.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from threading import Event, Thread
from typing import Any, Final, NamedTuple

from tests.support.leveret_process import LeveretProcess
from tests.support.management import Management
from tests.support.wire import Connection

_BODY_BYTES: Final = 2000
_BATCH: Final = 1000
#: By what they do; the last two send all bodies through the broker to the client.
_STATEMENTS: Final = {
    "bodies": ("select queue, count(*), sum(octet_length(body)) from messages group by queue", "json"),
    "JSON": ("select as_json(body) ->> '$.region' as region, count(*) from messages group by all", "json"),
    "Parquet": ("select * from messages", "parquet"),
    "CSV": ("select queue, seq, as_text(body) from messages", "csv"),
}


class Waits(NamedTuple):
    """What a client waited, in milliseconds.

    Attributes:
        number: How often.
    """

    number: int
    middle: float
    p99: float
    longest: float


def fill(url: str, size: int) -> None:
    """Publish persistent messages of JSON, `size` bytes of bodies in all, to two queues."""
    with Connection(url) as connection:
        channel = connection.channel()
        for queue in ("a", "b"):
            channel.queue_declare(queue, durable=True)
        numbers = iter(range(size // _BODY_BYTES))
        while batch := list(islice(numbers, _BATCH)):
            channel.close()
            channel = connection.channel()
            channel.confirm_select()
            for number in batch:
                body = json.dumps({"region": number % 7, "number": number}).encode()
                padded = body[:-1] + b', "text": "' + b"x" * (_BODY_BYTES - len(body) - 12) + b'"}'
                channel.publish("", "ab"[number % 2], padded, {"delivery_mode": 2})
            assert all(channel.wait_for_confirms(len(batch)))


def waits_during(url: str, work: Callable[[], object]) -> tuple[Waits, Waits]:
    """Return what a client waits for confirms, and for replies, while something else is done."""
    is_done, confirms, replies = Event(), list[float](), list[float]()

    def probe() -> None:
        with Connection(url) as connection:
            channel = connection.channel()
            channel.queue_declare("probe", durable=True)
            channel.confirm_select()
            while not is_done.is_set():
                began = time.perf_counter()
                channel.publish("", "probe", b"x", {"delivery_mode": 2})
                channel.wait_until(lambda: bool(channel.confirms), "confirm")
                assert channel.confirms.popleft().ack
                between = time.perf_counter()
                channel.queue_declare("probe", durable=True, passive=True)
                confirms.append(between - began)
                replies.append(time.perf_counter() - between)
                time.sleep(0.002)

    probing = Thread(target=probe)
    probing.start()
    try:
        work()
    finally:
        is_done.set()
        probing.join()
    return _summed_up(confirms), _summed_up(replies)


def _summed_up(waited: list[float]) -> Waits:
    found = sorted(each * 1000 for each in waited)
    return Waits(len(found), found[len(found) // 2], found[len(found) * 99 // 100], found[-1])


def ask(api: Management, statement: str, form: str) -> int:
    """Run a statement; return the number of bytes of its result."""
    body: dict[str, Any] = {"statement": statement, "format": form}
    headers = {"Authorization": api.authorization, "Content-Type": "application/json"}
    request = urllib.request.Request(f"{api.base}/api/sql", json.dumps(body).encode(), headers)
    size = 0
    with urllib.request.urlopen(request, timeout=3600) as response:
        while piece := response.read(1 << 20):
            size += len(piece)
    return size


def main() -> int:
    """Run as a program; return its status: 0 if nobody waited longer than the goal."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.sql_waits", description=__doc__)
    parser.add_argument("--megabytes", type=int, default=1000, help="of the backlog (default: 1000)")
    parser.add_argument("--goal", type=float, default=100, help="the longest wait in milliseconds (default: 100)")
    given = parser.parse_args()
    longest = 0.0
    with tempfile.TemporaryDirectory(prefix="leveret-sql-") as directory:
        settings = {"sql.timeout": "3600s"}
        with LeveretProcess(Path(directory), settings=settings) as broker:
            fill(broker.url, given.megabytes * 1_000_000)
            api = Management(broker.http_url)

            def tell(name: str, work: Callable[[], object]) -> float:
                began = time.monotonic()
                confirms, replies = waits_during(broker.url, work)
                sys.stdout.write(f"{name}: {time.monotonic() - began:.1f} s\n")
                for kind, waits in (("confirms", confirms), ("replies", replies)):
                    sys.stdout.write(
                        f"  {waits.number:6} {kind:<8}  p50 {waits.middle:6.1f} ms  p99 {waits.p99:6.1f} ms  "
                        f"longest {waits.longest:6.1f} ms\n"
                    )
                sys.stdout.flush()
                return max(confirms.longest, replies.longest)

            tell("nothing", lambda: time.sleep(30))
            for name, (statement, form) in _STATEMENTS.items():
                try:
                    longest = max(longest, tell(name, lambda: ask(api, statement, form)))  # noqa: B023
                except urllib.error.HTTPError as error:
                    sys.stdout.write(f"{name:<9} {error.read().decode()}\n")
                    return 1
            tell("nothing", lambda: time.sleep(30))
    return 0 if longest <= given.goal else 1


if __name__ == "__main__":
    sys.exit(main())
