"""The table of programs and features."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from tests.matrix.recording import Outcome
from tests.matrix.runs import FileRun


@dataclass
class Row:
    """One feature of one program.

    Attributes:
        program: The program's name.
        feature: The feature, in words.
        outcomes: By the name of the broker: what became of its tests there, one for each variant.
    """

    program: str
    feature: str
    outcomes: dict[str, list[Outcome]] = field(default_factory=dict)

    @property
    def variants(self) -> list[str]:
        """What it ran with, if that has names and there are few of them."""
        names = list(dict.fromkeys(each.variant for found in self.outcomes.values() for each in found))
        return names if len(names) <= 4 and all(name.isidentifier() for name in names) else []

    def cell(self, broker: str) -> str:
        """What the table shows for a broker: `pass`, what fails, or `–` if it has not run there."""
        found = self.outcomes.get(broker, [])
        if not found:
            return "–"
        failed = [each.variant for each in found if not each.passed]
        if not failed:
            return "pass"
        return "FAIL" if len(failed) == len(found) else f"FAIL: {', '.join(failed)}"


def rows(runs: Mapping[str, Iterable[FileRun]]) -> list[Row]:
    """The table's rows, in the order of the programs and their tests.

    Args:
        runs: By the name of the broker, those of one program one after the other.
    """
    made: dict[tuple[str, str], Row] = {}
    for broker, files in runs.items():
        for run in files:
            for outcome in run.outcomes:
                key = (run.program.name, outcome.feature)
                row = made.setdefault(key, Row(*key))
                row.outcomes.setdefault(broker, []).append(outcome)
    return list(made.values())


def text(found: Iterable[Row], brokers: list[str]) -> str:
    """The table in Markdown.

    Args:
        found: Its rows.
        brokers: The brokers' names, a column for each.
    """
    lines = [["Program", "Feature", *brokers]]
    for row in found:
        variants = f" ({', '.join(row.variants)})" if row.variants else ""
        lines.append([row.program, row.feature + variants, *(row.cell(broker) for broker in brokers)])
    widths = [max(len(line[column]) for line in lines) for column in range(len(lines[0]))]
    lines.insert(1, ["-" * width for width in widths])
    padded = (" | ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) for line in lines)
    return "".join(f"| {line} |\n" for line in padded)


def notes(found: Iterable[Row]) -> str:
    """What tests had to tell, a line each."""
    return "".join(
        f"{row.feature}{f' ({outcome.variant})' if outcome.variant else ''}, {broker}: {note}\n"
        for row in found
        for broker, outcomes in row.outcomes.items()
        for outcome in outcomes
        for note in outcome.notes
    )
