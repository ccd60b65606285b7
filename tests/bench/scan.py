"""`python -m tests.bench.scan`: measures what reading a backlog as data costs, with Arrow and with Spark."""

from __future__ import annotations

import argparse
import json
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Final

from pamqp import commands

from tests.bench.__main__ import end, positive_int
from tests.bench.frames import CHANNEL
from tests.bench.in_flight import BenchError
from tests.bench.scan_readers import QUERIES, ArrowReader, Query, SparkReader
from tests.bench.worker import Worker
from tests.support import content
from tests.support.leveret_process import LeveretProcess
from tests.support.transport import BODY, HEADER, frame, method_frame
from tests.support.wire import Connection

READERS: Final = {"arrow": ArrowReader, "spark": SparkReader}
_QUEUES: Final = tuple(f"orders.{number}" for number in range(10))
#: Size of a body, in bytes.
_BODY: Final = 200
#: Messages that are published at once.
_BATCH: Final = 10_000
_PATIENCE: Final = 600.0
_EPILOG: Final = f"""A new broker gets persistent messages of {_BODY} bytes of JSON in {len(_QUEUES)} lazy queues, and
keeps running. Each reader is a process of its own and answers: first_row, a row with its body, from the start of the
reader on; count; group_by, of queue and priority; bodies, their size; json, the sum of a number in all bodies.
Processor time is that of all the reader's processes. Data are in the directory for temporary files (TMPDIR)."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run it."""
    options = _parser().parse_args(argv)
    try:
        results = measure(options.messages, options.only or list(READERS))
    except (BenchError, OSError) as error:
        print(f"bench: {error}", file=sys.stderr)
        return 1
    if options.json:
        documents = {name: {query: asdict(took) for query, took in found.items()} for name, found in results.items()}
        print(json.dumps(documents, indent=2))
    else:
        print(table(results, options.messages))
    return 0


def measure(messages: int, readers: Sequence[str]) -> dict[str, dict[str, Query]]:
    """Fill a broker, and run the queries with each reader."""
    found = {}
    with tempfile.TemporaryDirectory(prefix="bench-scan-") as name, LeveretProcess(Path(name)) as broker:
        print("publishing", file=sys.stderr, flush=True)
        fill(broker.url, messages)
        _wait_for_files(str(broker.data_dir), messages)
        for reader in readers:
            print(reader, file=sys.stderr, flush=True)
            found[reader] = _run(reader, str(broker.data_dir))
            answers = [found[reader][query].answer for query in QUERIES]
            expected = [1, messages, -(-messages // len(_QUEUES)), messages * _BODY, messages * (messages - 1) // 2]
            if answers != expected:
                raise BenchError(f"{reader} answers {answers} instead of {expected}")
    return found


def _wait_for_files(path: str, messages: int) -> None:
    """Wait until the files show all messages: some seconds, since a snapshot shows the broker's last tick."""
    worker = Worker(ArrowReader, path)
    try:
        worker.result()
        wait_for(f"{messages} messages in the files", lambda: worker.call("run", "count").answer >= messages)
    finally:
        worker.close()


def wait_for(what: str, condition: Callable[[], bool]) -> None:
    """Wait until a condition holds."""
    deadline = time.monotonic() + _PATIENCE
    while not condition():
        if time.monotonic() > deadline:
            raise BenchError(f"{_PATIENCE:g} s have passed without {what}")
        time.sleep(0.1)


def _run(reader: str, path: str) -> dict[str, Query]:
    worker = Worker(READERS[reader], path)
    try:
        worker.result()
        return {query: worker.call("run", query) for query in QUERIES}
    finally:
        worker.close()


def fill(url: str, messages: int) -> None:
    """Publish to the queues in turn, and wait until all is confirmed."""
    header = frame(HEADER, CHANNEL, content.header(_BODY, content.properties(delivery_mode=2)))
    methods = [method_frame(CHANNEL, commands.Basic.Publish, exchange="", routing_key=queue) for queue in _QUEUES]
    with Connection(url, timeout=_PATIENCE) as connection:
        for first in range(0, messages, _BATCH):
            channel = connection.channel(CHANNEL)
            for queue in _QUEUES:
                channel.queue_declare(queue, durable=True, arguments=[("x-queue-mode", "S", "lazy")])
            channel.confirm_select()
            numbers = range(first, min(first + _BATCH, messages))
            publishes = [methods[number % len(methods)] + header + _body(number) for number in numbers]
            connection.wire.send_bytes(b"".join(publishes))
            channel.wait_for_confirms(len(numbers))
            channel.close()


def table(results: dict[str, dict[str, Query]], messages: int) -> str:
    """Return the table: a line for each query."""
    lines = ["query      " + "".join(f"{f'{name} s':>12}{f'{name} CPU s':>14}{'rows/CPU s':>12}" for name in results)]
    for query in QUERIES:
        line = f"{query:11}"
        for found in results.values():
            took = found[query]
            rate = f"{messages / took.cpu_seconds:,.0f}" if query != QUERIES[0] else "–"
            line += f"{took.seconds:12.2f}{took.cpu_seconds:14.2f}{rate:>12}"
        lines.append(line)
    return "\n".join(lines)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.scan", description=__doc__, epilog=_EPILOG)
    parser.add_argument(
        "--messages", type=positive_int, default=2_000_000, metavar="N", help="in all queues (default: 2000000)"
    )
    parser.add_argument("--only", action="append", choices=READERS, help="only this reader; may be repeated")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    return parser


def _body(number: int) -> bytes:
    text = b'{"number": %d, "customer": "c-%d", "amount": %d.5, "note": "' % (number, number % 1_000, number % 500)
    return frame(BODY, CHANNEL, text.ljust(_BODY - 2, b".") + b'"}')


if __name__ == "__main__":
    for _signal in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(_signal, end)
    sys.exit(main())
