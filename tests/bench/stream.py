"""`python -m tests.bench.stream`: measures what streams cost."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict
from typing import Final

from tests.bench.__main__ import execute, positive_int
from tests.bench.brokers import Start, fresh_leveret, peers
from tests.bench.in_flight import BenchError
from tests.bench.sockets import allow_many
from tests.bench.stream_phases import PHASES, Phase, run

_EPILOG: Final = """publish: one publisher, 1,000 confirms in flight. consume: three consumers read all of it at once.
tail: a quarter of it is published again while a consumer reads at the end. seek: the same number of messages in
segments of 100 kB; the time from basic.consume to the first delivery, with a time as the place. replay: half of it, of
which one message of ten is replayed into a queue by a filter, while another client publishes to itself; Leveret only.
The broker at BENCH_PEER=amqp://… comes along, or RabbitMQ where rabbitmq-server is installed. Data are in the directory
for temporary files (TMPDIR)."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run it."""
    options = _parser().parse_args(argv)
    allow_many()
    wanted = frozenset(options.only or PHASES)
    try:
        results = _measure(options.broker, options.messages, options.body, wanted)
    except (BenchError, OSError) as error:
        print(f"bench: {error}", file=sys.stderr)
        return 1
    if options.json:
        print(json.dumps([{"broker": name, **asdict(phase)} for name, phase in results], indent=2))
    else:
        print(table(results))
    return 0


def _measure(which: str | None, messages: int, body: int, wanted: frozenset[str]) -> list[tuple[str, Phase]]:
    found: list[tuple[str, Phase]] = []
    with ExitStack() as stack:
        starts: list[Start] = [] if which == "peer" else [fresh_leveret]
        if which != "leveret":
            starts += stack.enter_context(peers(os.environ))
        if not starts:
            raise BenchError("there is no peer")
        for start in starts:
            with start(tls=False) as broker:
                for phase in run(broker, messages, body, wanted):
                    print(f"{broker.name}  {phase.name}", file=sys.stderr, flush=True)
                    found.append((broker.name, phase))
    return found


def table(results: Sequence[tuple[str, Phase]]) -> str:
    """Return the table: a line for each phase of each broker."""
    lines = [("phase", "broker", "messages", "messages/s", "server µs/msg", "peak RSS MiB", "")]
    for name in PHASES:
        for broker, phase in results:
            if phase.name == name:
                lines.append((name, broker, f"{phase.messages:,}", *_cells(phase)))
    widths = [max(len(line[place]) for line in lines) for place in range(len(lines[0]))]
    return "\n".join(
        f"{line[0]:{widths[0]}}  {line[1]:{widths[1]}}  "
        + "  ".join(f"{cell:>{width}}" for cell, width in list(zip(line, widths, strict=True))[2:6])
        + f"  {line[6]}".rstrip()
        for line in lines
    )


def _cells(phase: Phase) -> tuple[str, str, str, str]:
    return (
        f"{phase.per_second:,.0f}" if phase.per_second else "–",
        "–" if phase.server_cpu_us is None else f"{phase.server_cpu_us:,.2f}",
        "–" if phase.peak_rss_mib is None else f"{phase.peak_rss_mib:,.0f}",
        ", ".join(f"{name.replace('_', ' ')} {value:,.2f}".removesuffix(".00") for name, value in phase.notes.items()),
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.stream", description=__doc__, epilog=_EPILOG)
    parser.add_argument(
        "--messages", type=positive_int, default=2_000_000, metavar="N", help="in the stream (default: 2000000)"
    )
    parser.add_argument("--body", type=positive_int, default=1_000, metavar="BYTES", help="of each (default: 1000)")
    parser.add_argument("--only", action="append", choices=PHASES, help="only this phase; may be repeated")
    parser.add_argument("--broker", choices=("leveret", "peer"), help="measure only Leveret, or only its peers")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    return parser


if __name__ == "__main__":
    execute(main)
