"""HTML page of the report: sections with an explanation, a chart and a table."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from leveret.analytics.results.charts import script
from leveret.analytics.results.result_output import Rows, as_html_table

#: Maximum number of table rows in the page.
ROWS_MAX: Final = 50
#: Maximum number of rows that are read of a long result.
ROWS_KEPT: Final = 1000

_STYLE: Final = """
body { font: 16px/1.5 system-ui, sans-serif; color: #1d2733; background: #f4f6f8; margin: 0; }
main { max-width: 1080px; margin: 0 auto; padding: 24px; }
h1 { margin: 0; font-size: 28px; } h2 { margin: 0 0 4px; font-size: 20px; }
.moment { color: #5a6875; margin: 4px 0 20px; }
section, .figures div { background: #fff; border: 1px solid #dfe5ea; border-radius: 8px; }
section { padding: 18px 22px; margin: 18px 0; }
section > p { color: #45525e; margin: 0 0 12px; max-width: 75ch; }
.figures { display: grid; grid-template-columns: repeat(auto-fit, minmax(170px, 1fr)); gap: 14px; }
.figures div { padding: 14px 18px; } .figures b { display: block; font-size: 26px; } .figures .bad b { color: #b3263b; }
.figures span { color: #5a6875; font-size: 14px; }
.wide { overflow-x: auto; } section, h1, .moment { overflow-wrap: anywhere; } section { overflow: hidden; }
table { border-collapse: collapse; font-size: 14px; width: 100%; }
th { text-align: left; color: #5a6875; font-weight: 600; white-space: nowrap; }
th, td { padding: 5px 24px 5px 0; border-bottom: 1px solid #e8ecf0; }
th.number, td.number { text-align: right; font-variant-numeric: tabular-nums; }
.short { margin: 0; padding-left: 20px; }
.none { color: #2d7a4f; } summary { cursor: pointer; color: #2f6690; margin-top: 10px; }
footer { color: #5a6875; font-size: 14px; margin: 24px 0; }
"""


@dataclass(frozen=True, slots=True)
class Section:
    """A section of the page.

    Attributes:
        title: Heading.
        text: Explanation.
        rows: Rows of the table.
        labels: Headings of the columns to show, by column name.
        chart: HTML of the chart; empty for none.
        nothing: Text to show if there are no rows.
        folded: Whether the table is collapsed.
    """

    title: str
    text: str
    rows: Rows
    labels: Mapping[str, str]
    chart: str = ""
    nothing: str = "Nothing to show."
    folded: bool = False


def make_page(
    title: str,
    moment: str,
    figures: Sequence[tuple[str, str, bool]],
    findings: Sequence[str],
    sections: Sequence[Section],
) -> str:
    """Return a self-contained HTML page.

    Args:
        title: Heading.
        moment: Time and source of the data, as text.
        figures: Key figures: the number as text, its description, and whether it is shown as a problem.
        findings: Notable results, in sentences.
        sections: Sections.
    """
    short = "".join(f"<li>{html.escape(each)}</li>" for each in findings)
    if short:
        short = f'<section>\n<h2>In short</h2>\n<ul class="short">{short}</ul>\n</section>\n'
    tiles = "".join(
        f'<div class="{"bad" if bad else "good"}"><b>{html.escape(number)}</b><span>{html.escape(what)}</span></div>'
        for number, what, bad in figures
    )
    parts = "".join(_section(section) for section in sections)
    return (
        f'<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n<title>{html.escape(title)}</title>\n'
        f'<meta name="viewport" content="width=device-width, initial-scale=1">\n<style>{_STYLE}</style>\n{script()}\n'
        f'</head>\n<body>\n<main>\n<h1>{html.escape(title)}</h1>\n<p class="moment">{html.escape(moment)}</p>\n'
        f'<div class="figures">{tiles}</div>\n{short}{parts}'
        "<footer>Read from the broker's files by leveret-analytics. No message was consumed. All times are UTC. "
        "Unacknowledged messages count as waiting. Transient messages that the broker has only in memory "
        "are not included.</footer>\n</main>\n</body>\n</html>\n"
    )


def _section(section: Section) -> str:
    head = f"<section>\n<h2>{html.escape(section.title)}</h2>\n<p>{html.escape(section.text)}</p>\n"
    if not section.rows:
        return f'{head}<p class="none">{html.escape(section.nothing)}</p>\n</section>\n'
    shown = [{label: _readable(row[name]) for name, label in section.labels.items()} for row in section.rows[:ROWS_MAX]]
    table = f'<div class="wide">{as_html_table(list(section.labels.values()), shown)}</div>'
    if len(section.rows) > ROWS_MAX:
        more = " or more" if len(section.rows) == ROWS_KEPT else ""
        table += f"<p>The first {ROWS_MAX} of {len(section.rows):,}{more} rows.</p>"
    if section.folded:
        table = f"<details><summary>The numbers</summary>{table}</details>"
    return f"{head}{section.chart}\n{table}\n</section>\n"


def _readable(value: Any) -> Any:
    return value.strftime("%Y-%m-%d %H:%M:%S") if hasattr(value, "strftime") and hasattr(value, "hour") else value


def bytes_text(count: float) -> str:
    """Return a number of bytes with a readable unit."""
    for unit in ("B", "kB", "MB", "GB"):
        if abs(count) < 1000:
            return f"{count:,.0f} {unit}" if unit == "B" else f"{count:,.1f} {unit}"
        count /= 1000
    return f"{count:,.1f} TB"


def duration_text(seconds: float) -> str:
    """Return a time span with a readable unit."""
    for limit, unit, size in ((120, "s", 1), (7200, "min", 60), (172_800, "h", 3600)):
        if seconds < limit:
            return f"{seconds / size:,.0f} {unit}"
    return f"{seconds / 86_400:,.0f} days"
