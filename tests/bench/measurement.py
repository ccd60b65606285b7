"""Measures a scenario on a broker, and sums up several runs."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from tests.bench.brokers import Broker
from tests.bench.in_flight import BenchError
from tests.bench.load import Load
from tests.bench.scenarios import LATENCY_RATE, Scenario, Size

#: Of the messages of a round-trip, this part goes before the clock starts. The others are warm by their latencies.
_WARM_UP: Final = 10


@dataclass(frozen=True)
class Measures:
    """The figures in the table; None if not applicable or not measurable."""

    messages_per_second: float
    server_cpu_us: float | None
    p50_ms: float | None
    p99_ms: float | None
    peak_rss_mib: float | None
    load_cpu_us: float | None


@dataclass(frozen=True)
class Run:
    """One run."""

    messages: int
    refused: int
    measures: Measures


@dataclass(frozen=True)
class Extent:
    """How much a run does."""

    size: Size
    messages: int | None = None

    def publishes(self, scenario: Scenario) -> int:
        """Return the number of publishes of a run."""
        return self.messages or max(1, round(scenario.messages * self.size.factor))


def measure(scenario: Scenario, broker: Broker, extent: Extent) -> Run:
    """Run a scenario once."""
    count = extent.publishes(scenario)
    account = broker.account
    url = broker.tls_url if scenario.tls else broker.url
    if url is None:
        raise BenchError(f"{broker.name} has no encrypted listener")
    with Load(url, scenario, extent.size.window) as load:
        if account is not None:
            account.reset_peak_rss()
        latencies: list[int] = []
        if scenario.kind == "flow":
            latencies = sorted(load.latencies(LATENCY_RATE, round(LATENCY_RATE * extent.size.latency_seconds)))
        elif scenario.kind == "consume":
            load.fill(count)
        elif scenario.kind == "round-trip":
            load.run(max(1, count // _WARM_UP))
        elif scenario.prefill:
            load.fill(scenario.prefill)
        before = account.cpu_seconds() if account else 0.0
        flow = load.run(count)
        server = account.cpu_seconds() - before if account else None
        peak = account.peak_rss_bytes() if account else None
        load.check_empty()
    measures = Measures(
        messages_per_second=flow.messages / flow.seconds,
        server_cpu_us=None if server is None else server / flow.messages * 1e6,
        p50_ms=_percentile(latencies, 50),
        p99_ms=_percentile(latencies, 99),
        peak_rss_mib=None if peak is None else peak / 2**20,
        load_cpu_us=flow.cpu_seconds / flow.messages * 1e6,
    )
    return Run(flow.messages, flow.refused, measures)


def combined(runs: Sequence[Run], choose: Callable[[list[float]], float] = statistics.median) -> Measures:
    """Return one figure for each measure by itself, the median by default."""

    def known(name: str) -> list[float]:
        return [value for run in runs if (value := getattr(run.measures, name)) is not None]

    def maybe(name: str) -> float | None:
        return choose(values) if (values := known(name)) else None

    return Measures(
        messages_per_second=choose(known("messages_per_second")),
        server_cpu_us=maybe("server_cpu_us"),
        p50_ms=maybe("p50_ms"),
        p99_ms=maybe("p99_ms"),
        peak_rss_mib=maybe("peak_rss_mib"),
        load_cpu_us=maybe("load_cpu_us"),
    )


def _percentile(ordered: Sequence[int], percent: int) -> float | None:
    """Return a percentile of nanoseconds in milliseconds."""
    if not ordered:
        return None
    return ordered[min(len(ordered) - 1, len(ordered) * percent // 100)] / 1e6
