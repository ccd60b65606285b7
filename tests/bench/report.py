"""Formats results as a text table and as a JSON document, prints and keeps them."""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from leveret import compilation
from tests.bench.history import commit, compare, is_leveret, latest, save
from tests.bench.measurement import Measures, Run, combined
from tests.bench.scenarios import Scenario


@dataclass(frozen=True)
class Column:
    """A column of the table."""

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
_SPREAD: Final = "CPU of all runs"
_RATIO: Final = "ratio"


@dataclass(frozen=True)
class Result:
    """All runs of a scenario."""

    scenario: Scenario
    runs: Mapping[str, Sequence[Run]]

    @property
    def medians(self) -> dict[str, Measures]:
        """The medians by the broker's name."""
        return {name: combined(runs) for name, runs in self.runs.items()}

    @property
    def ratios(self) -> dict[str, dict[str, float | None]]:
        """Each measure of Leveret over those of the peers, by their names; empty if Leveret was not measured."""
        found = {name: asdict(measures) for name, measures in self.medians.items()}
        ours = next((measures for name, measures in found.items() if is_leveret(name)), None)
        if ours is None:
            return {}
        return {
            name: {key: _divide(ours[key], measures[key]) for key in measures}
            for name, measures in found.items()
            if not is_leveret(name)
        }


def _divide(ours: float | None, theirs: float | None) -> float | None:
    return ours / theirs if ours is not None and theirs else None


def table(results: Sequence[Result]) -> str:
    """Return the table: a line a scenario and broker, and under each peer the ratio of Leveret's figures to its own."""
    lines = [["scenario", "broker", *(column.title for column in COLUMNS), _SPREAD]]
    for result in results:
        ratios = result.ratios
        rows: list[tuple[str, ...]] = []
        for name, measures in result.medians.items():
            rows.append((name, *_cells(asdict(measures)), _spread(result.runs[name])))
            if name in ratios:
                rows.append((_RATIO, *_cells(ratios[name], ".3f"), ""))
        lines += [[result.scenario.name if number == 0 else "", *row] for number, row in enumerate(rows)]
    widths = [max(len(line[place]) for line in lines) for place in range(len(lines[0]))]
    return "\n".join(_line(line, widths) for line in lines)


def _cells(values: Mapping[str, float | None], form: str | None = None) -> list[str]:
    return [_cell(values[column.key], form or column.form) for column in COLUMNS]


def _cell(value: float | None, form: str) -> str:
    return "–" if value is None else format(value, form)


def _spread(runs: Sequence[Run]) -> str:
    """The lowest and the highest CPU time a message."""
    lowest, highest = (combined(runs, choose).server_cpu_us for choose in (min, max))
    return "–" if lowest is None else f"{lowest:.2f}–{highest:.2f}"


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    left = [cell.ljust(width) for cell, width in zip(cells[:2], widths[:2], strict=True)]
    right = [cell.rjust(width) for cell, width in zip(cells[2:], widths[2:], strict=True)]
    return "  ".join([*left, *right]).rstrip()


def add_output_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that say what becomes of the results."""
    parser.add_argument(
        "--results",
        type=Path,
        metavar="DIR",
        help="keep the results in this directory, and compare them with the last ones there",
    )
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")


def present(results: Sequence[Result], *, as_json: bool, directory: Path | None) -> None:
    """Print results, and keep them if there is a directory for them; compare them with the last ones there."""
    found = document(results)
    before = None if directory is None else latest(directory, {result.scenario.name for result in results})
    print(json.dumps(found, indent=2) if as_json else table(results))
    if directory is None:
        return
    path = save(found, directory)
    if before is not None and not as_json:
        print(f"\n{compare(before, found)}")
    print(f"kept in {path}", file=sys.stderr)


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
            name: {
                "median": asdict(combined(runs)),
                "lowest": asdict(combined(runs, min)),
                "highest": asdict(combined(runs, max)),
                "runs": [asdict(run) for run in runs],
            }
            for name, runs in result.runs.items()
        },
        "ratios": result.ratios,
    }
