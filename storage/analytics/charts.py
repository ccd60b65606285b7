"""Charts of the report, as HTML fragments; the script that draws them is in the page itself."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any, Final

import plotly.graph_objects as go
from plotly.offline import get_plotlyjs

from storage.analytics.result_output import Rows

_COLOURS: Final = ("#2f6690", "#d1495b", "#edae49", "#5b8e7d", "#7d5ba6", "#8d6a4f", "#3a7ca5", "#6c757d")
#: More lines or colours than this cannot be told apart.
_SERIES_MAX: Final = 8
#: A line has so many points at least.
_LINE_TIMES_MIN: Final = 4


def script() -> str:
    """The library that draws charts, to be put into a page once."""
    return f"<script>{get_plotlyjs()}</script>"


def bars_over_time(rows: Rows, time: str, value: str, series: Callable[[Mapping[str, Any]], str], unit: str) -> str:
    """Stacked bars, a colour a series.

    Args:
        rows: The data.
        time: Column of the times.
        value: Column of the values.
        series: Which series a row belongs to.
        unit: Title of the values' axis.
    """
    figure = go.Figure()
    for name, points in _series(rows, time, value, series):
        times, values = zip(*sorted(points.items()), strict=True)
        figure.add_bar(x=times, y=values, name=name, width=50_000)
    figure.update_layout(barmode="stack")
    _show_minutes(figure, {row[time] for row in rows})
    return _fragment(figure, unit)


def lines_over_time(
    rows: Rows, time: str, values: Mapping[str, str], series: Callable[[Mapping[str, Any]], str], unit: str
) -> str:
    """Lines, a colour a series and a dash a value column; bars where it is about a few minutes only.

    Args:
        rows: The data.
        time: Column of the times.
        values: Columns of the values with what to call them; the first is drawn solid.
        series: Which series a row belongs to.
        unit: Title of the values' axis.
    """
    figure = go.Figure()
    dashes = ("solid", "dot", "dash")
    # Between two points there is no line to be seen; bars, of which the second ones are hatched.
    few = len({row[time] for row in rows}) < _LINE_TIMES_MIN
    totals = {name: sum(points.values()) for name, points in _series(rows, time, next(iter(values)), series)}
    colours = {name: _COLOURS[at % len(_COLOURS)] for at, name in enumerate(totals)}
    for (value, label), dash in zip(values.items(), dashes, strict=False):
        for name, points in _series(rows, time, value, series):
            times, heights = zip(*sorted(points.items()), strict=True)
            colour = colours.get(name, _COLOURS[-1])
            if few:
                pattern = "" if dash == "solid" else "/"
                texts = [f"{time:%H:%M, %d %b %Y}" for time in times]
                marker = {"color": colour, "pattern_shape": pattern}
                figure.add_bar(x=texts, y=heights, name=f"{name}: {label}", marker=marker)
                continue
            line = {"dash": dash, "color": colour}
            figure.add_scatter(x=times, y=heights, name=f"{name}: {label}", mode="lines", line=line)
    if few:
        figure.update_xaxes(type="category", categoryorder="category ascending")
    else:
        _show_minutes(figure, {row[time] for row in rows})
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
    figure = go.Figure(go.Bar(x=[row[value] for row in rows], y=names, orientation="h"))
    figure.update_yaxes(autorange="reversed", type="category")
    figure.update_xaxes(title=unit)
    return _fragment(figure, "", height=120 + 26 * len(names))


def curves(rows: Rows, x: str, y: str, series: Callable[[Mapping[str, Any]], str], titles: tuple[str, str]) -> str:
    """A line a series over numbers.

    Args:
        rows: The data.
        x: Column of the horizontal axis.
        y: Column of the vertical axis.
        series: Which series a row belongs to.
        titles: Of both axes.
    """
    figure = go.Figure()
    for name, points in _series(rows, x, y, series):
        places, heights = zip(*sorted(points.items()), strict=True)
        figure.add_scatter(x=places, y=heights, name=name, mode="lines+markers")
    figure.update_xaxes(title=titles[0])
    return _fragment(figure, titles[1])


def _series(
    rows: Rows, x: str, y: str, series: Callable[[Mapping[str, Any]], str]
) -> Iterable[tuple[str, dict[Any, float]]]:
    """Sums by series and place; the smallest series are put together if there are too many."""
    totals: dict[str, float] = {}
    for row in rows:
        totals[series(row)] = totals.get(series(row), 0) + (row[y] or 0)
    large = sorted(totals, key=lambda name: -totals[name])[:_SERIES_MAX]
    found: dict[str, dict[Any, float]] = {name: {} for name in large}
    for row in rows:
        name = series(row) if series(row) in found else f"{len(totals) - len(large)} others"
        points = found.setdefault(name, {})
        points[row[x]] = points.get(row[x], 0) + (row[y] or 0)
    return found.items()


def _show_minutes(figure: Any, times: set[datetime]) -> None:
    """Have an axis of times that is not cut finer than what it shows."""
    if not times:
        return
    first, last = min(times), max(times)
    figure.update_xaxes(tickformat="%H:%M\n%d %b %Y")
    if last - first < timedelta(minutes=10):
        figure.update_xaxes(dtick=60_000, range=[first - timedelta(minutes=3), last + timedelta(minutes=3)])


def _fragment(figure: Any, y_title: str, height: int = 340) -> str:
    figure.update_layout(
        template="plotly_white",
        colorway=_COLOURS,
        height=height,
        margin={"l": 60, "r": 20, "t": 20, "b": 50},
        legend={"orientation": "h", "yanchor": "bottom", "y": 1.02, "x": 0, "traceorder": "normal"},
        font={"family": "system-ui, sans-serif", "size": 13},
        showlegend=len(figure.data) > 1,
    )
    figure.update_yaxes(title=y_title, rangemode="tozero", automargin=True)
    found: str = figure.to_html(full_html=False, include_plotlyjs=False, config={"displayModeBar": False})
    return found
