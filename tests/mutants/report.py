"""What became of mutants: a table by module, and the survivors as diffs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

#: Outcomes of mutants that no test has noticed.
SURVIVED: Final = ("survived", "no tests")
_HEADINGS: Final = ("mutants", "killed", "timed out", "survived", "not run", " score")


@dataclass
class Row:
    """What became of a module's mutants."""

    name: str
    outcomes: Counter[str] = field(default_factory=Counter)

    def cells(self) -> list[str]:
        """Return the numbers of the row, as texts.

        A test process that a mutant ends, or keeps from collecting tests, has noticed it: it counts as killed. No
        test runs a mutant of a function that no test calls.
        """
        tried = self.outcomes.total()
        survived, not_run = (self.outcomes[outcome] for outcome in SURVIVED)
        timed_out = self.outcomes["timeout"]
        killed = tried - survived - not_run - timed_out
        score = f"{(killed + timed_out) / tried:.1%}" if tried else "–"
        return [str(tried), str(killed), str(timed_out), str(survived), str(not_run), score]


def table(title: str, outcomes: Mapping[str, Iterable[str]]) -> str:
    """Return a table with a line for each module that has mutants, and the sum if there are several."""
    rows = [row for row in (Row(name, Counter(found)) for name, found in outcomes.items()) if row.outcomes]
    if len(rows) > 1:
        rows.append(Row(title, sum((row.outcomes for row in rows), Counter())))
    width = max(len(row.name) for row in rows)
    lines = [_line("", width, _HEADINGS), *(_line(row.name, width, row.cells()) for row in rows)]
    return "\n".join(lines)


def _line(name: str, width: int, cells: Sequence[str]) -> str:
    return name.ljust(width) + "".join(
        f"  {cell.rjust(len(heading))}" for heading, cell in zip(_HEADINGS, cells, strict=True)
    )
