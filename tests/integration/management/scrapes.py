"""Reading what Prometheus would scrape, with Prometheus' own parsers."""

from __future__ import annotations

import re
import urllib.request
from collections.abc import Iterator, Mapping
from typing import Final

from prometheus_client.metrics_core import Metric
from prometheus_client.openmetrics.parser import text_string_to_metric_families as openmetrics_families
from prometheus_client.parser import text_string_to_metric_families

from tests.support.leveret_process import LeveretProcess

OPENMETRICS: Final = "application/openmetrics-text; version=1.0.0"
_TYPE: Final = re.compile(r"^# TYPE (\S+) (\S+)$", re.MULTILINE)
_SERIES: Final = re.compile(r"^(\w+)(?:\{(.*)\})? \S+$", re.MULTILINE)
_LABEL: Final = re.compile(r'(\w+)="')


def scrape(process: LeveretProcess, path: str = "metrics", **headers: str) -> str:
    """The text at a path."""
    request = urllib.request.Request(f"{process.prometheus_url}/{path}", headers=headers)
    with urllib.request.urlopen(request, timeout=120) as response:
        text: str = response.read().decode()
    return text


def families(text: str) -> list[Metric]:
    """All metrics of a text, or of OpenMetrics.

    Raises:
        ValueError: It is neither.
    """
    parse = openmetrics_families if text.endswith("# EOF\n") else text_string_to_metric_families
    return list(parse(text))


def values(text: str) -> Mapping[tuple[str, frozenset[tuple[str, str]]], float]:
    """The value of every series, by name and labels; there is only one of each."""
    found: dict[tuple[str, frozenset[tuple[str, str]]], float] = {}
    for family in families(text):
        for sample in family.samples:
            key = sample.name, frozenset(sample.labels.items())
            assert key not in found, f"twice: {key}"
            found[key] = sample.value
    return found


def value(text: str, name: str, **labels: str) -> float:
    """The value of one series."""
    return values(text)[name, frozenset(labels.items())]


def types(text: str) -> dict[str, str]:
    """The type of every metric; each is said once."""
    found = _TYPE.findall(text)
    assert len(found) == len(dict(found)), "a type is said twice"
    return dict(found)


def label_names(text: str) -> dict[str, frozenset[str]]:
    """The names of the labels of every metric that has a series."""
    return dict(_series(text))


def _series(text: str) -> Iterator[tuple[str, frozenset[str]]]:
    for name, labels in _SERIES.findall(text):
        yield name, frozenset(_LABEL.findall(labels))
