"""`python -m tests.bench.scan`: measures what reading a backlog costs, and what the same messages in Parquet cost."""

from __future__ import annotations

import argparse
import json
import struct
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Final

from pamqp import commands

from tests.bench.__main__ import execute, positive_int
from tests.bench.frames import CHANNEL
from tests.bench.in_flight import BenchError
from tests.bench.scan_readers import ODD, QUERIES, READERS, ArrowReader, Query
from tests.bench.worker import Worker
from tests.support import content
from tests.support.leveret_process import LeveretProcess
from tests.support.transport import BODY, HEADER, frame, method_frame
from tests.support.wire import Connection

_QUEUES: Final = (*(f"orders.{number}" for number in range(9)), ODD)
#: Size of a body, in bytes.
_BODY: Final = 200
#: Messages that are published at once.
_BATCH: Final = 10_000
_PATIENCE: Final = 600.0
_EPILOG: Final = f"""A new broker gets persistent messages in {len(_QUEUES)} lazy queues, and keeps running. Bodies
are {_BODY} bytes of JSON. Headers are two texts, an integer, a boolean and a time; in the queue {ODD} a text whose
name is another one in each message, a double, a table and an array. Readers: arrow is leveret.scan; sql is DuckDB
over leveret.dataset, parquet over a Parquet file of the same rows; spark and spark-parquet likewise. Each is a
process of its own. Queries: session starts what a bare Spark needs; first_row is a row with its body, with imports;
files reads the files and computes their checksums, the least that the others do; count; group_by, of queue and
priority; bodies, their size; json, the sum of a number in all bodies; headers, the size of a text in each; odd, that
of a table in each message of one queue; option and filter, the size of the bodies of one queue, by the option queue
and by a condition. Processor time is that of all the reader's processes; × is that by the processor time of the same
engine over Parquet. Data are in the directory for temporary files (TMPDIR)."""


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
        print(table(results))
    return 0


def measure(messages: int, readers: Sequence[str]) -> dict[str, dict[str, Query]]:
    """Fill a broker, and run the queries with each reader."""
    found: dict[str, dict[str, Query]] = {}
    with tempfile.TemporaryDirectory(prefix="bench-scan-") as name, LeveretProcess(Path(name)) as broker:
        print("publishing", file=sys.stderr, flush=True)
        fill(broker.url, messages, _headers)
        path, parquet = str(broker.data_dir), f"{name}/messages.parquet"
        _write_parquet(path, parquet, messages)
        expected = _answers(messages)
        for reader in readers:
            print(reader, file=sys.stderr, flush=True)
            found[reader] = _run(reader, path, parquet)
            answers = {query: took.answer for query, took in found[reader].items()}
            if answers != {query: expected[query] for query in answers}:
                raise BenchError(f"{reader} answers {answers} instead of {expected}")
    return found


def _write_parquet(path: str, parquet: str, messages: int) -> None:
    """Write the rows as Parquet, when the files show them all: some seconds, since a snapshot shows the last tick."""
    worker = Worker(ArrowReader, path, parquet)
    try:
        worker.result()
        wait_for(f"{messages} messages in the files", lambda: worker.call("run", "count").answer >= messages)
        worker.call("write_parquet")
    finally:
        worker.close()


def wait_for(what: str, condition: Callable[[], bool]) -> None:
    """Wait until a condition holds."""
    deadline = time.monotonic() + _PATIENCE
    while not condition():
        if time.monotonic() > deadline:
            raise BenchError(f"{_PATIENCE:g} s have passed without {what}")
        time.sleep(0.1)


def _run(reader: str, path: str, parquet: str) -> dict[str, Query]:
    worker = Worker(READERS[reader], path, parquet)
    try:
        worker.result()
        return {query: worker.call("run", query) for query in READERS[reader].queries}
    finally:
        worker.close()


def _answers(messages: int) -> dict[str, int]:
    numbers = range(messages)
    odd = numbers[_QUEUES.index(ODD) :: len(_QUEUES)]
    largest = -(-messages // len(_QUEUES))
    return {
        "session": 1,
        "first_row": 1,
        "files": 1,
        "count": messages,
        "group_by": largest,
        "bodies": messages * _BODY,
        "json": sum(numbers),
        "headers": (messages - len(odd)) * len(f"{0:032x}"),
        "odd": sum(len(json.dumps({"number": number, "half": number / 2})) for number in odd),
        "option": largest * _BODY,
        "filter": largest * _BODY,
    }


def fill(url: str, messages: int, headers: Callable[[int], bytes] = lambda number: b"") -> None:
    """Publish to the queues in turn, and wait until all is confirmed.

    Args:
        headers: Returns the fields of the headers of a message, by its number.
    """
    methods = [method_frame(CHANNEL, commands.Basic.Publish, exchange="", routing_key=queue) for queue in _QUEUES]
    with Connection(url, timeout=_PATIENCE) as connection:
        for first in range(0, messages, _BATCH):
            channel = connection.channel(CHANNEL)
            for queue in _QUEUES:
                channel.queue_declare(queue, durable=True, arguments=[("x-queue-mode", "S", "lazy")])
            channel.confirm_select()
            numbers = range(first, min(first + _BATCH, messages))
            publishes = [methods[number % len(methods)] + _content(number, headers(number)) for number in numbers]
            connection.wire.send_bytes(b"".join(publishes))
            channel.wait_for_confirms(len(numbers))
            channel.close()


def _content(number: int, fields: bytes) -> bytes:
    properties = {"headers": _long(fields)} if fields else {}
    header = content.header(_BODY, content.properties(**properties, delivery_mode=2))
    text = b'{"number": %d, "customer": "c-%d", "amount": %d.5, "note": "' % (number, number % 1_000, number % 500)
    return frame(HEADER, CHANNEL, header) + frame(BODY, CHANNEL, text.ljust(_BODY - 2, b".") + b'"}')


def _headers(number: int) -> bytes:
    if _QUEUES[number % len(_QUEUES)] == ODD:
        entry = b"\x06numberl" + struct.pack(">q", number) + b"\x04halfd" + struct.pack(">d", number / 2)
        name = b"m-%d" % number
        return b"".join(
            [
                bytes([len(name)]), name, b"S", _long(b"text"),
                b"\x05scored", struct.pack(">d", number / 7),
                b"\x05orderF", _long(entry),
                b"\x05partsA", _long(b"l" + struct.pack(">q", number) + b"S" + _long(b"part")),
            ]
        )  # fmt: skip
    return b"".join(
        [
            b"\x06tenantS", _long(b"t-%d" % (number % 20)),
            b"\x05traceS", _long(b"%032x" % number),
            b"\x07attemptI", struct.pack(">i", number % 3),
            b"\x06urgentt", bytes([number % 2]),
            b"\x04sentT", struct.pack(">Q", 1_700_000_000 + number),
        ]
    )  # fmt: skip


def _long(octets: bytes) -> bytes:
    return struct.pack(">I", len(octets)) + octets


def table(results: dict[str, dict[str, Query]]) -> str:
    """Return the table: a line for each query."""
    lines = [
        "query     " + "".join(f"{name:>14} s{'CPU s':>8}" + f"{'×':>7}" * _has_peer(name, results) for name in results)
    ]
    for query in QUERIES:
        line = f"{query:10}"
        for name, found in results.items():
            peer = results.get(READERS[name].peer, {}).get(query)
            took = found.get(query)
            line += f"{took.seconds:16.2f}{took.cpu_seconds:8.2f}" if took is not None else " " * 24
            if _has_peer(name, results):
                line += (
                    f"{took.cpu_seconds / peer.cpu_seconds:7.1f}" if took is not None and peer is not None else " " * 7
                )
        lines.append(line.rstrip())
    return "\n".join(lines)


def _has_peer(name: str, results: dict[str, dict[str, Query]]) -> bool:
    return READERS[name].peer in results


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.scan", description=__doc__, epilog=_EPILOG)
    parser.add_argument(
        "--messages", type=positive_int, default=2_000_000, metavar="N", help="in all queues (default: 2000000)"
    )
    parser.add_argument("--only", action="append", choices=READERS, help="only this reader; may be repeated")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    return parser


if __name__ == "__main__":
    execute(main)
