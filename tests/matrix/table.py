"""The table of programs and features."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tests.matrix.runs import Outcome, Run


def table(runs: Mapping[str, Iterable[Run]]) -> str:
    """Return it in Markdown, in the order of the programs and their tests."""
    rows: dict[tuple[str, str], dict[str, list[Outcome]]] = {}
    for broker, each in runs.items():
        for run in each:
            for outcome in run.outcomes:
                row = rows.setdefault((run.program.name, outcome.feature), {})
                row.setdefault(broker, []).append(outcome)
    lines = [["Program", "Feature", *runs]]
    for (program, feature), found in rows.items():
        lines.append([program, feature + _variants(found), *(_cell(found.get(broker, [])) for broker in runs)])
    widths = [max(len(line[column]) for line in lines) for column in range(len(lines[0]))]
    lines.insert(1, ["-" * width for width in widths])
    padded = (" | ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) for line in lines)
    return "".join(f"| {line} |\n" for line in padded)


def _variants(found: Mapping[str, list[Outcome]]) -> str:
    """What a feature was tried with, if that has names."""
    names = list(dict.fromkeys(each.variant for outcomes in found.values() for each in outcomes))
    return f" ({', '.join(names)})" if all(name.isidentifier() for name in names) else ""


def _cell(found: list[Outcome]) -> str:
    """`pass`, what fails, or `–` if nothing has run."""
    failed = [each.variant for each in found if not each.passed]
    if not failed:
        return "pass" if found else "–"
    return "FAIL" if len(failed) == len(found) else f"FAIL: {', '.join(failed)}"
