"""Charts of the report, as HTML fragments; the script that draws them is in the page itself."""

from __future__ import annotations

import html
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final

import plotly.graph_objects as go
from plotly.offline import get_plotlyjs

from leveret.storage.analytics.result_output import Rows

_COLOURS: Final = ("#2f6690", "#d1495b", "#edae49", "#5b8e7d", "#7d5ba6", "#8d6a4f", "#3a7ca5", "#6c757d")
#: More lines or colours than this cannot be told apart.
SERIES_MAX: Final = 8
#: The lines of more series than this are named once each.
_NAMED_MAX: Final = 3
#: What is not among them.
_OTHERS_COLOUR: Final = "#b8c0c8"
#: Points of a line at least.
_LINE_TIMES_MIN: Final = 4


def script() -> str:
    """The library that draws charts, to be put into a page once."""
    return f"<script>{get_plotlyjs()}</script>"


def bars_over_time(
    rows: Rows, time: str, value: str, series: Callable[[Mapping[str, Any]], str], unit: str, step: timedelta
) -> str:
    """Stacked bars, a colour a series.

    Args:
        rows: The data.
        time: Column of the times.
        value: Column of the values.
        series: Which series a row belongs to.
        unit: Title of the values' axis.
        step: From one time to the next.
    """
    figure = go.Figure()
    names = largest(rows, value, series)
    for name, points in _series(rows, time, value, series, names, sums=True):
        times, values = zip(*sorted(points.items()), strict=True)
        colour = _colour(name, names)
        figure.add_bar(
            x=times, y=values, name=label(name), width=step / timedelta(milliseconds=1.2), marker_color=colour
        )
    figure.update_layout(barmode="stack")
    _show_times(figure, {row[time] for row in rows}, step)
    return _fragment(figure, unit)


def lines_over_time(
    rows: Rows,
    time: str,
    values: Mapping[str, str],
    series: Callable[[Mapping[str, Any]], str],
    unit: str,
    step: timedelta,
    sums: bool = False,
) -> str:
    """Lines, a colour a series and a dash a value column; bars where it is about a few times only.

    Args:
        rows: The data.
        time: Column of the times.
        values: Columns of the values with what to call them; the first is drawn solid.
        series: Which series a row belongs to.
        unit: Title of the values' axis.
        step: From one time to the next.
        sums: Whether the values are counts: times of which there is no row have 0, and small series are put together.
            Otherwise lines are broken there, and small series are left out.
    """
    figure = go.Figure()
    dashes = ("solid", "dot", "dash")
    # Between two points there is no line to be seen; bars, of which the second ones are hatched.
    seen = {row[time] for row in rows}
    few = len(seen) < _LINE_TIMES_MIN
    every = [] if few else [min(seen) + number * step for number in range((max(seen) - min(seen)) // step + 1)]
    names = largest(rows, next(iter(values)), series)
    for (value, what), dash in zip(values.items(), dashes, strict=False):
        for name, points in _series(rows, time, value, series, names, sums):
            times, heights = zip(*_filled(points, 0 if sums else None, every), strict=True)
            colour = _colour(name, names)
            # Of many series the legend names each once; a click hides all that it has.
            legend = {"legendgroup": name, "showlegend": dash == "solid" or len(names) <= _NAMED_MAX}
            if few:
                pattern = "" if dash == "solid" else "/"
                texts = [f"{time:%H:%M, %d %b %Y}" for time in times]
                marker = {"color": colour, "pattern_shape": pattern}
                figure.add_bar(x=texts, y=heights, name=f"{label(name)}: {what}", marker=marker, **legend)
                continue
            line = {"dash": dash, "color": colour}
            # A point between two gaps has no line to either side.
            mode = "lines" if sums else "lines+markers"
            title = f"{label(name)}: {what}"
            figure.add_scatter(x=times, y=heights, name=title, mode=mode, line=line, marker_size=4, **legend)
    if few:
        figure.update_xaxes(type="category", categoryorder="category ascending")
    else:
        _show_times(figure, seen, step)
    return _fragment(figure, unit)


def horizontal_bars(rows: Rows, name: Callable[[Mapping[str, Any]], str], value: str, unit: str) -> str:
    """One bar a row, the first at the top.

    Args:
        rows: The data.
        name: What to write beside a bar.
        value: Column of the values.
        unit: Title of the values' axis.
    """
    names = [name(row) for row in rows]
    places = list(range(len(names)))
    full = [html.escape(each) for each in names]
    bars = go.Bar(x=[row[value] for row in rows], y=places, orientation="h", hovertext=full, hoverinfo="x+text")
    figure = go.Figure(bars)
    # By place, as different names may be shortened to the same.
    figure.update_yaxes(autorange="reversed", tickvals=places, ticktext=[label(each, 40) for each in names])
    figure.update_xaxes(title=unit)
    return _fragment(figure, "", height=120 + 26 * len(names))


def curves(rows: Rows, x: str, y: str, series: Callable[[Mapping[str, Any]], str], titles: tuple[str, str]) -> str:
    """A line a series over numbers; the largest ones.

    Args:
        rows: The data.
        x: Column of the horizontal axis.
        y: Column of the vertical axis.
        series: Which series a row belongs to.
        titles: Of both axes.
    """
    figure = go.Figure()
    for name, points in _series(rows, x, y, series, largest(rows, y, series), sums=False):
        places, heights = zip(*sorted(points.items()), strict=True)
        figure.add_scatter(x=places, y=heights, name=label(name), mode="lines+markers")
    figure.update_xaxes(title=titles[0])
    return _fragment(figure, titles[1])


def label(name: str, longest: int = 60) -> str:
    """A name as a chart shows it: short enough to leave room for the chart, and never taken for HTML.

    Args:
        name: The name, of which the end is kept: there stands why.
        longest: Characters, at most.
    """
    if len(name) > longest:
        name = f"{name[: longest // 3]}…{name[longest // 3 + 1 - longest :]}"
    return html.escape(name)


def _colour(name: str, names: Sequence[str]) -> str:
    return _COLOURS[names.index(name) % len(_COLOURS)] if name in names else _OTHERS_COLOUR


def largest(rows: Rows, y: str, series: Callable[[Mapping[str, Any]], str]) -> list[str]:
    """Names of the series that a chart shows, the largest first.

    Args:
        rows: The data.
        y: Column of the values.
        series: Which series a row belongs to.
    """
    totals: dict[str, float] = {}
    for row in rows:
        totals[series(row)] = totals.get(series(row), 0) + (row[y] or 0)
    return sorted(totals, key=lambda name: -totals[name])[:SERIES_MAX]


def _series(
    rows: Rows, x: str, y: str, series: Callable[[Mapping[str, Any]], str], names: Sequence[str], sums: bool
) -> Iterable[tuple[str, dict[Any, float]]]:
    """Values by series and place; of the others the sums, or nothing where sums make no sense."""
    found: dict[str, dict[Any, float]] = {name: {} for name in names}
    others = {series(row) for row in rows}.difference(names)
    rest = f"{len(others)} others"
    for row in rows:
        name = series(row)
        if name in others:
            if not sums:
                continue
            name = rest
        points = found.setdefault(name, {})
        points[row[x]] = points.get(row[x], 0) + (row[y] or 0)
    return found.items()


def _filled(
    points: Mapping[datetime, float], empty: float | None, every: Sequence[datetime]
) -> list[tuple[datetime, float | None]]:
    """The points of a line in order, with something at each time, or as they are if there is none to fill."""
    return [(time, points.get(time, empty)) for time in every] if every else sorted(points.items())


def _show_times(figure: Any, times: set[datetime], step: timedelta) -> None:
    """Have an axis of times that is not cut finer than what it shows."""
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
        # The legend takes its room from the chart.
        height=height + 12 * max(0, sum(each.showlegend is not False for each in figure.data) - 4),
        margin={"l": 60, "r": 20, "t": 20, "b": 50},
        legend={"orientation": "h", "yanchor": "bottom", "y": 1.02, "x": 0, "traceorder": "normal"},
        font={"family": "system-ui, sans-serif", "size": 13},
        showlegend=len(figure.data) > 1,
    )
    figure.update_yaxes(title=y_title, rangemode="tozero", automargin=True)
    found: str = figure.to_html(full_html=False, include_plotlyjs=False, config={"displayModeBar": False})
    return found
