"""`python -m tests.bench`: measures throughput, CPU, latency and memory of Leveret, and of other brokers if given."""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from types import FrameType
from typing import Final

from tests.bench.brokers import PEER_TLS_VARIABLE, PEER_VARIABLE, Start, fresh_leveret, peers
from tests.bench.in_flight import BenchError
from tests.bench.measurement import Extent, Run, measure
from tests.bench.peers import LAVINMQ_VARIABLE
from tests.bench.report import Result, add_output_options, present
from tests.bench.scenarios import SCENARIOS, SIZES, Scenario
from tests.bench.sockets import allow_many

_EPILOG: Final = f"""Messages are deliveries, or publishes where nobody consumes. Latency is that of an even 1,000
publishes a second. Figures are medians of all runs; for CPU time there are also the lowest and the highest. A ratio is
Leveret's figure over that of the peer above it. Peers are the broker of {PEER_VARIABLE}=amqp://…, with
{PEER_TLS_VARIABLE}=amqps://… for TLS, and the LavinMQ whose program {LAVINMQ_VARIABLE}=… names; without both a RabbitMQ
node of the benchmark's own where rabbitmq-server is installed."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the benchmark."""
    options = _parser().parse_args(argv)
    if options.list:
        for scenario in SCENARIOS:
            print(f"{scenario.name:24}  {scenario.about}")
        return 0
    allow_many()
    scenarios = [each for each in SCENARIOS if not options.scenario or each.name in options.scenario]
    extent = Extent(SIZES[options.size], options.messages)
    try:
        results = _measure(scenarios, extent, options.runs, options.only)
    except (BenchError, OSError) as error:
        print(f"bench: {error}", file=sys.stderr)
        return 1
    present(results, as_json=options.json, directory=options.results)
    return 0


def _measure(scenarios: Sequence[Scenario], extent: Extent, runs: int, only: str | None) -> list[Result]:
    with ExitStack() as stack:
        starts: list[Start] = [] if only == "peer" else [fresh_leveret]
        if only != "leveret":
            starts += stack.enter_context(peers(os.environ))
        if not starts:
            raise BenchError("there is no peer")
        return [_result(scenario, extent, runs, starts) for scenario in scenarios]


def _result(scenario: Scenario, extent: Extent, runs: int, starts: Sequence[Start]) -> Result:
    """Measure one scenario: a run on each broker in turn, and again."""
    found: dict[str, list[Run]] = {}
    for number in range(runs):
        for start in starts:
            with start(tls=scenario.tls) as broker:
                _progress(f"{scenario.name}  run {number + 1} of {runs}  {broker.name}  ")
                if scenario.tls and broker.tls_url is None:
                    _progress("has no encrypted listener\n")
                    continue
                run = measure(scenario, broker, extent)
                _progress(f"{run.measures.messages_per_second:,.0f} messages/s\n")
            found.setdefault(broker.name, []).append(run)
    if not found:
        raise BenchError(f"no broker can do {scenario.name}")
    return Result(scenario, found)


def _progress(text: str) -> None:
    print(text, end="", file=sys.stderr, flush=True)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__, epilog=_EPILOG)
    parser.add_argument("--list", action="store_true", help="list the scenarios")
    parser.add_argument(
        "--scenario",
        action="append",
        choices=[scenario.name for scenario in SCENARIOS],
        metavar="NAME",
        help="only this scenario; may be repeated",
    )
    parser.add_argument("--runs", type=positive_int, default=3, metavar="N", help="runs a broker (default: 3)")
    parser.add_argument("--size", choices=SIZES, default="normal", help="how much a run does (default: normal)")
    parser.add_argument("--messages", type=positive_int, metavar="N", help="publishes a run, instead of the size's")
    parser.add_argument("--only", choices=("leveret", "peer"), help="measure only Leveret, or only its peers")
    add_output_options(parser)
    return parser


def positive_int(text: str) -> int:
    """Parse a positive integer."""
    value = int(text)
    if value < 1:
        raise ValueError
    return value


def execute(command: Callable[[], int]) -> None:
    """Run a command and end; signals end it by way of all the exits, so that no broker stays behind."""

    def end(number: int, _: FrameType | None) -> None:
        sys.exit(128 + number)

    for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(each, end)
    sys.exit(command())


if __name__ == "__main__":
    execute(main)
