"""HTML page of the report: sections with an explanation, a chart and a table."""

from __future__ import annotations

import html
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

import plotly.graph_objects as go
from plotly.offline import get_plotlyjs

from leveret.analytics.results.result_output import Rows, as_html_table

_COLOURS: Final = ("#2f6690", "#d1495b", "#edae49", "#5b8e7d", "#7d5ba6", "#8d6a4f", "#3a7ca5", "#6c757d")
#: More lines or colours than this cannot be told apart.
SERIES_MAX: Final = 8
#: With more series than this, the legend has one entry per series instead of one per line.
_NAMED_MAX: Final = 3
#: Colour of the sum of all further series.
_OTHERS_COLOUR: Final = "#b8c0c8"
#: With fewer times than this, bars are drawn instead of lines.
_LINE_TIMES_MIN: Final = 4


def script() -> str:
    """Return the chart library as a script element; a page needs it once."""
    return f"<script>{get_plotlyjs()}</script>"


def bars_over_time(
    rows: Rows, value: str, series: Callable[[Mapping[str, Any]], str], unit: str, step: timedelta
) -> str:
    """Return a chart of stacked bars, one colour per series.

    Args:
        series: Returns the name of a row's series.
    """
    figure = go.Figure()
    names = largest(rows, value, series)
    for name, points in _series(rows, "minute", value, series, names, sums=True):
        times, values = zip(*sorted(points.items()), strict=True)
        colour = _colour(name, names)
        figure.add_bar(
            x=times, y=values, name=label(name), width=step / timedelta(milliseconds=1.2), marker_color=colour
        )
    figure.update_layout(barmode="stack")
    _show_times(figure, {row["minute"] for row in rows}, step)
    return _fragment(figure, unit)


def lines_over_time(
    rows: Rows,
    values: Mapping[str, str],
    series: Callable[[Mapping[str, Any]], str],
    unit: str,
    step: timedelta,
    sums: bool = False,
) -> str:
    """Return a line chart with one colour per series and one dash per value column; bars for few times.

    Args:
        values: Labels of the value columns, by column; the first column is drawn solid.
        series: Returns the name of a row's series.
        sums: True if values are counts: times without a row are 0, and small series are added up. Otherwise lines
            are interrupted there, and small series are omitted.
    """
    figure = go.Figure()
    dashes = ("solid", "dot", "dash")
    # A line of two or three points is hard to see. Bars are used instead, hatched for further value columns.
    present = {row["minute"] for row in rows}
    few = len(present) < _LINE_TIMES_MIN
    steps = 0 if few else (max(present) - min(present)) // step + 1
    all_times = [min(present) + number * step for number in range(steps)]
    names = largest(rows, next(iter(values)), series)
    for (value, what), dash in zip(values.items(), dashes, strict=False):
        for name, points in _series(rows, "minute", value, series, names, sums):
            times, heights = zip(*_filled(points, 0 if sums else None, all_times), strict=True)
            colour = _colour(name, names)
            # With many series the legend has one entry per series; a click hides all lines of it.
            legend = {"legendgroup": name, "showlegend": dash == "solid" or len(names) <= _NAMED_MAX}
            if few:
                pattern = "" if dash == "solid" else "/"
                texts = [f"{time:%H:%M, %d %b %Y}" for time in times]
                marker = {"color": colour, "pattern_shape": pattern}
                figure.add_bar(x=texts, y=heights, name=f"{label(name)}: {what}", marker=marker, **legend)
                continue
            line = {"dash": dash, "color": colour}
            # Many together would press the others flat on the axis: they are drawn by a click on the legend.
            hidden = name not in names
            # A point between two gaps has no line on either side, so markers are needed.
            mode = "lines" if sums else "lines+markers"
            title = f"{label(name)}: {what}{' (hidden; click)' if hidden else ''}"
            shown = "legendonly" if hidden else True
            points_of = {"x": times, "y": heights, "visible": shown}
            figure.add_scatter(**points_of, name=title, mode=mode, line=line, marker_size=4, **legend)
    if few:
        figure.update_xaxes(type="category", categoryorder="category ascending")
    else:
        _show_times(figure, present, step)
    return _fragment(figure, unit)


def horizontal_bars(rows: Rows, name: Callable[[Mapping[str, Any]], str], others: Rows = ()) -> str:
    """Return a chart of waiting messages, with one bar per row, the first at the top.

    Args:
        name: Returns the label of a row's bar.
    """
    names = [name(row) for row in rows]
    values = [row["messages"] for row in rows]
    colours = [_COLOURS[0]] * len(names)
    if others:
        names.append(f"{len(others)} others, together")
        values.append(sum(row["messages"] for row in others))
        colours.append(_OTHERS_COLOUR)
    places = list(range(len(names)))
    full = [html.escape(each) for each in names]
    bars = go.Bar(x=values, y=places, orientation="h", hovertext=full, hoverinfo="x+text", marker_color=colours)
    figure = go.Figure(bars)
    # Bars are placed by index, because different names may have the same shortened label.
    figure.update_yaxes(autorange="reversed", tickvals=places, ticktext=[label(each, 40) for each in names])
    figure.update_xaxes(title="messages waiting")
    return _fragment(figure, "", height=120 + 26 * len(names))


def curves(rows: Rows, x: str, y: str, series: Callable[[Mapping[str, Any]], str], titles: tuple[str, str]) -> str:
    """Return a chart with one line per series over a numeric axis; only the largest series are drawn.

    Args:
        series: Returns the name of a row's series.
        titles: Titles of the horizontal and the vertical axis.
    """
    figure = go.Figure()
    for name, points in _series(rows, x, y, series, largest(rows, y, series), sums=False):
        places, heights = zip(*sorted(points.items()), strict=True)
        figure.add_scatter(x=places, y=heights, name=label(name), mode="lines+markers")
    figure.update_xaxes(title=titles[0])
    return _fragment(figure, titles[1])


def label(name: str, longest: int = 60) -> str:
    """Return a name as a chart label: shortened and escaped for HTML.

    Args:
        name: The name. The middle is cut out, because the end has the reason.
        longest: Maximum length in characters.
    """
    if len(name) > longest:
        name = f"{name[: longest // 3]}…{name[longest // 3 + 1 - longest :]}"
    return html.escape(name)


def _colour(name: str, names: Sequence[str]) -> str:
    return _COLOURS[names.index(name) % len(_COLOURS)] if name in names else _OTHERS_COLOUR


def largest(rows: Rows, y: str, series: Callable[[Mapping[str, Any]], str]) -> list[str]:
    """Return the names of the series that a chart shows, the largest first.

    Args:
        series: Returns the name of a row's series.
    """
    totals: dict[str, float] = {}
    for row in rows:
        totals[series(row)] = totals.get(series(row), 0) + (row[y] or 0)
    return sorted(totals, key=lambda name: -totals[name])[:SERIES_MAX]


def _series(
    rows: Rows, x: str, y: str, series: Callable[[Mapping[str, Any]], str], names: Sequence[str], sums: bool
) -> Iterable[tuple[str, dict[Any, float]]]:
    """Return points by series; further series are added up, or omitted where sums make no sense."""
    found: dict[str, dict[Any, float]] = {name: {} for name in names}
    others = {series(row) for row in rows}.difference(names)
    others_name = f"{len(others)} others"
    for row in rows:
        name = series(row)
        if name in others:
            if not sums:
                continue
            name = others_name
        points = found.setdefault(name, {})
        points[row[x]] = points.get(row[x], 0) + (row[y] or 0)
    return found.items()


def _filled(
    points: Mapping[datetime, float], empty: float | None, all_times: Sequence[datetime]
) -> list[tuple[datetime, float | None]]:
    """Return the points of a line in order, with `empty` at missing times; unfilled if `all_times` is empty."""
    return [(time, points.get(time, empty)) for time in all_times] if all_times else sorted(points.items())


def _show_times(figure: Any, times: set[datetime], step: timedelta) -> None:
    """Format the time axis; for a short range, place ticks no finer than one step."""
    if not times:
        return
    first, last = min(times), max(times)
    figure.update_xaxes(tickformat="%H:%M\n%d %b %Y")
    if last - first < 10 * step:
        figure.update_xaxes(dtick=step / timedelta(milliseconds=1), range=[first - 3 * step, last + 3 * step])


def _fragment(figure: Any, y_title: str, height: int = 340) -> str:
    figure.update_layout(
        template="plotly_white",
        colorway=_COLOURS,
        # The legend takes height from the chart, so a long legend makes the figure higher.
        height=height + 12 * max(0, sum(each.showlegend is not False for each in figure.data) - 4),
        margin={"l": 60, "r": 20, "t": 20, "b": 50},
        legend={"orientation": "h", "yanchor": "bottom", "y": 1.02, "x": 0, "traceorder": "normal"},
        font={"family": "system-ui, sans-serif", "size": 13},
        showlegend=len(figure.data) > 1,
    )
    figure.update_yaxes(title=y_title, rangemode="tozero", automargin=True)
    found: str = figure.to_html(full_html=False, include_plotlyjs=False, config={"displayModeBar": False})
    return found


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
        figures: Key figures: the number as text, its description, and whether it is shown as a problem.
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
