"""Prometheus is told to ask what Leveret answers; the dashboard and the alerts name only metrics that this brings."""

from __future__ import annotations

import json
import re
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from leveret import LeveretCluster
from tests.support.leveret_process import LeveretProcess
from tests.support.wire import Connection

DOCKER = Path(__file__).parents[2] / "docker"
PROMETHEUS = yaml.safe_load((DOCKER / "prometheus/prometheus.yaml").read_text("utf-8"))
DASHBOARD = json.loads((DOCKER / "grafana/dashboards/leveret.json").read_text("utf-8"))

#: What Prometheus knows by itself.
_OWN = {"up"}
_PARTS = re.compile(r"\{[^}]*\}|\"[^\"]*\"|\[[^\]]*\]|\b(?:on|by|ignoring|without)\s*\([^)]*\)")
_METRIC = re.compile(r"\b(?:up|[a-z]+_[a-z_]+)\b(?!\s*\()")
_MATCHER = re.compile(r"([a-z_]+)\s*(?:=~|!~|!=|=)\s*\"")


def panel_expressions() -> list[str]:
    return [target["expr"] for panel in DASHBOARD["panels"] for target in panel.get("targets", ())]


def variable_queries() -> list[str]:
    return [each["definition"] for each in DASHBOARD["templating"]["list"] if each["type"] == "query"]


def alert_rules() -> list[dict[str, Any]]:
    rules = yaml.safe_load((DOCKER / "prometheus/alerts.yaml").read_text("utf-8"))
    return [rule for group in rules["groups"] for rule in group["rules"]]


def expressions() -> list[str]:
    queries = [query.removeprefix("label_values(").rpartition(", ")[0] for query in variable_queries()]
    return [*panel_expressions(), *queries, *(rule["expr"] for rule in alert_rules())]


def read(url: str) -> Iterator[tuple[str, set[str]]]:
    """The names of series of a page, each with the names of its labels."""
    with urllib.request.urlopen(url, timeout=120) as response:
        text = response.read().decode()
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            yield sample.name, {*sample.labels, "instance", "job"}


def scraped(process: LeveretProcess) -> Iterator[tuple[str, set[str]]]:
    """The names of series that the jobs bring, each with the names of its labels."""
    for job in PROMETHEUS["scrape_configs"]:
        query = urlencode(job.get("params", {}), doseq=True)
        yield from read(f"{process.prometheus_url}{job.get('metrics_path', '/metrics')}?{query}")


@pytest.fixture
def series(leveret_process: Callable[..., LeveretProcess], tmp_path: Path) -> dict[str, set[str]]:
    """Those of a broker that takes backups, with a queue that has limits, a ready message and an unacked one."""
    process = leveret_process(settings={"backup.url": tmp_path / "backup"})
    found: dict[str, set[str]] = {}
    with Connection(process.url) as connection:
        channel = connection.channel()
        channel.queue_declare(
            "bounded", durable=True, arguments=[("x-max-length", "I", 2), ("x-max-length-bytes", "I", 1000)]
        )
        for _ in range(2):
            channel.publish("", "bounded", b"m")
        assert channel.get("bounded") is not None
        for name, labels in scraped(process):
            # A job that asks for less than another must not hide what is missing.
            found.setdefault(name, set()).update(labels)
    with LeveretCluster(2) as cluster:
        for node in cluster.nodes:
            for name, labels in read(node.metrics_url):
                if name.startswith("leveret_replication_"):
                    found.setdefault(name, set()).update(labels)
    return found


def test_every_metric_and_label_is_scraped(series: dict[str, set[str]]) -> None:
    assert len(expressions()) > 40
    for expression in expressions():
        names = _METRIC.findall(_PARTS.sub(" ", expression))
        assert names, expression
        for name in names:
            assert name in _OWN or name in series, f"{name} in {expression}"
        for name, matchers in re.findall(r"\b([a-z]+_[a-z_]+)\{([^}]*)\}", expression):
            assert set(_MATCHER.findall(matchers)) <= series[name], expression


def test_every_family_asked_for_exists(leveret_process: Callable[..., LeveretProcess]) -> None:
    """Each of them alone brings something that no other one does."""
    process = leveret_process()
    (job,) = [job for job in PROMETHEUS["scrape_configs"] if "params" in job]

    def answer(*families: str) -> str:
        url = f"{process.prometheus_url}{job['metrics_path']}?{urlencode({'family': families}, doseq=True)}"
        with urllib.request.urlopen(url, timeout=120) as response:
            return str(response.read().decode())

    nothing = answer()
    for family in job["params"]["family"]:
        assert len(answer(family)) > len(nothing), family


def test_dashboard_is_whole() -> None:
    panels = DASHBOARD["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    variables = {each["name"] for each in DASHBOARD["templating"]["list"]}
    for panel in panels:
        assert panel["title"]
        if panel["type"] != "row":
            assert panel["description"], panel["title"]
            assert panel["datasource"]["uid"] == "${datasource}"
    used = set(re.findall(r"\$(?:\{)?([a-z]+)", "\n".join([*panel_expressions(), *variable_queries()])))
    assert used <= variables


def test_data_source_is_the_one_provisioned() -> None:
    provisioned = yaml.safe_load((DOCKER / "grafana/provisioning/datasources/prometheus.yaml").read_text("utf-8"))
    (source,) = provisioned["datasources"]
    (variable,) = [each for each in DASHBOARD["templating"]["list"] if each["type"] == "datasource"]
    assert variable["current"]["value"] == source["uid"]
    assert variable["query"] == source["type"]


def test_rule_files_exist() -> None:
    assert alert_rules()
    for name in PROMETHEUS["rule_files"]:
        assert (DOCKER / "prometheus" / name).is_file()
    for rule in alert_rules():
        assert rule["annotations"]["summary"]
        assert rule["labels"]["severity"] in ("warning", "critical")
