"""`python -m tests.bench.lazy`: compares lazy and default queues by memory, disk and time of a backlog."""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Final, TypeAlias

from tests.bench.__main__ import execute, positive_int
from tests.bench.backlog import BacklogRun, Plan, run
from tests.bench.backlog_nodes import BacklogNode, leveret, rabbitmq
from tests.bench.frames import STAMP_BYTES
from tests.bench.in_flight import BenchError
from tests.bench.peers import find_installation

_EPILOG: Final = """Persistent messages into one durable queue, 1,000 confirms in flight: filled without a consumer,
restarted, published to and consumed from at once, emptied. Every node is the benchmark's own, with its data in a
temporary directory (TMPDIR), which takes more than the backlog. RabbitMQ comes along where rabbitmq-server is
installed."""
_MB: Final = 1_000_000

_Start: TypeAlias = Callable[[Path], AbstractContextManager[BacklogNode]]


def main(argv: Sequence[str] | None = None) -> int:
    """Run it."""
    options = _parser().parse_args(argv)
    starts: list[_Start] = [] if options.only == "peer" else [leveret]
    installation = find_installation()
    if options.only != "leveret" and installation is not None:
        starts.append(partial(rabbitmq, installation))
    if not starts:
        print("bench: there is no peer", file=sys.stderr)
        return 1
    plans = [
        Plan(mode, options.messages, options.body, options.seconds) for mode in options.mode or ("lazy", "default")
    ]
    try:
        results = list(_results(starts, plans))
    except (BenchError, OSError) as error:
        print(f"bench: {error}", file=sys.stderr)
        return 1
    if options.json:
        print(
            json.dumps([{"broker": name, **asdict(plan), **asdict(found)} for name, plan, found in results], indent=2)
        )
    else:
        print(table(results))
    return 0


def _results(starts: Sequence[_Start], plans: Sequence[Plan]) -> Iterator[tuple[str, Plan, BacklogRun]]:
    for plan in plans:
        for start in starts:
            with tempfile.TemporaryDirectory(prefix="bench-lazy-", ignore_cleanup_errors=True) as directory:
                with start(Path(directory)) as node:
                    print(f"{plan.mode}  {node.name}", file=sys.stderr, flush=True)
                    found = run(node, plan)
                yield node.name, plan, found


def table(results: Sequence[tuple[str, Plan, BacklogRun]]) -> str:
    """Return the table: a column a run, a line a figure."""
    columns = [(name, plan.mode, *_cells(found)) for name, plan, found in results]
    titles = (
        "",
        "queue mode",
        "fill, messages/s",
        "messages in RAM",
        "memory of the queue, MB",
        "memory of the node, MB",
        "disk, MB",
        "restart until it serves, s",
        "memory of the node, MB",
        "first delivery after, s",
        "then at once: published/s",
        "delivered/s",
        "memory of the node at most, MB",
        "backlog left, messages",
        "drain, messages/s",
        "memory of the node, MB",
    )
    lines = list(zip(titles, *columns, strict=True))
    widths = [max(len(line[place]) for line in lines) for place in range(len(lines[0]))]
    return "\n".join(
        line[0].ljust(widths[0])
        + "".join(f"  {cell:>{width}}" for cell, width in list(zip(line, widths, strict=True))[1:])
        for line in lines
    )


def _cells(found: BacklogRun) -> list[str]:
    return [
        f"{found.fill_rate:,.0f}",
        f"{found.filled.messages_ram:,}",
        f"{found.filled.memory / _MB:,.2f}",
        f"{found.filled_rss / _MB:,.0f}",
        f"{found.disk / _MB:,.0f}",
        f"{found.restart_seconds:.2f}",
        f"{found.restart_rss / _MB:,.0f}",
        f"{found.first_seconds:.3f}",
        f"{found.publish_rate:,.0f}",
        f"{found.deliver_rate:,.0f}",
        f"{max(found.used_rss) / _MB:,.0f}",
        f"{found.left:,}",
        f"{found.drain_rate:,.0f}" if found.left else "–",
        f"{found.drained_rss / _MB:,.0f}",
    ]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.lazy", description=__doc__, epilog=_EPILOG)
    parser.add_argument(
        "--messages", type=positive_int, default=1_000_000, metavar="N", help="backlog (default: 1000000)"
    )
    parser.add_argument("--body", type=_body_bytes, default=1_000, metavar="BYTES", help="of each body (default: 1000)")
    parser.add_argument(
        "--seconds", type=float, default=60.0, help="how long to publish and consume at once (default: 60)"
    )
    parser.add_argument("--mode", action="append", choices=("lazy", "default"), help="only this mode")
    parser.add_argument("--only", choices=("leveret", "peer"), help="measure only one of the two brokers")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    return parser


def _body_bytes(text: str) -> int:
    value = int(text)
    if value < STAMP_BYTES:
        raise ValueError
    return value


if __name__ == "__main__":
    execute(main)
