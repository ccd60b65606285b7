"""Formats results as a text table and as a JSON document."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any, Final

from leveret import compilation
from tests.bench.history import commit
from tests.bench.measurement import Measures, Run, median
from tests.bench.scenarios import Scenario


@dataclass(frozen=True)
class Column:
    """A column of the table.

    Attributes:
        key: field of `Measures`.
        title: its head.
        form: format of its numbers.
    """

    key: str
    title: str
    form: str


COLUMNS: Final = (
    Column("messages_per_second", "messages/s", ",.0f"),
    Column("server_cpu_us", "CPU µs/msg", ".2f"),
    Column("p50_ms", "p50 ms", ".2f"),
    Column("p99_ms", "p99 ms", ".2f"),
    Column("peak_rss_mib", "peak MiB", ",.0f"),
    Column("load_cpu_us", "load µs/msg", ".2f"),
)
_RATIO: Final = "ratio"


@dataclass(frozen=True)
class Result:
    """All runs of a scenario.

    Attributes:
        scenario: which.
        runs: by the broker's name, in the order of the table: Leveret, then the peer.
    """

    scenario: Scenario
    runs: Mapping[str, Sequence[Run]]

    @property
    def medians(self) -> dict[str, Measures]:
        """The medians by the broker's name."""
        return {name: median(runs) for name, runs in self.runs.items()}

    @property
    def ratio(self) -> dict[str, float | None] | None:
        """Each measure of the first broker over the second's; None for one broker alone."""
        both = [asdict(measures) for measures in self.medians.values()]
        if len(both) != 2:
            return None
        return {key: _divide(both[0][key], both[1][key]) for key in both[0]}


def _divide(ours: float | None, theirs: float | None) -> float | None:
    return ours / theirs if ours is not None and theirs else None


def table(results: Sequence[Result]) -> str:
    """Return the table: a line a scenario and broker, and the ratio under them."""
    lines = [["scenario", "broker", *(column.title for column in COLUMNS)]]
    for result in results:
        rows = [(name, asdict(measures), False) for name, measures in result.medians.items()]
        if (ratio := result.ratio) is not None:
            rows.append((_RATIO, ratio, True))
        for number, (name, values, is_ratio) in enumerate(rows):
            cells = [_cell(values[column.key], ".3f" if is_ratio else column.form) for column in COLUMNS]
            lines.append([result.scenario.name if number == 0 else "", name, *cells])
    widths = [max(len(line[place]) for line in lines) for place in range(len(lines[0]))]
    return "\n".join(_line(line, widths) for line in lines)


def _cell(value: float | None, form: str) -> str:
    return "–" if value is None else format(value, form)


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    left = [cell.ljust(width) for cell, width in zip(cells[:2], widths[:2], strict=True)]
    right = [cell.rjust(width) for cell, width in zip(cells[2:], widths[2:], strict=True)]
    return "  ".join([*left, *right]).rstrip()


def document(results: Sequence[Result]) -> dict[str, Any]:
    """Return medians, ratios and single runs, with commit, form, time and machine, as JSON can hold them."""
    machine = {
        "system": platform.platform(),
        "python": platform.python_version(),
        "cpus": len(os.sched_getaffinity(0)),
    }
    return {
        "commit": commit(),
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
        "form": compilation.form(),
        "machine": machine,
        "scenarios": [_scenario(result) for result in results],
    }


def _scenario(result: Result) -> dict[str, Any]:
    return {
        "name": result.scenario.name,
        "about": result.scenario.about,
        "brokers": {
            name: {"median": asdict(measures), "runs": [asdict(run) for run in result.runs[name]]}
            for name, measures in result.medians.items()
        },
        "ratio": result.ratio,
    }
