from __future__ import annotations

from pathlib import Path

import pytest

from leveret.broker.config.auth import BACKENDS
from leveret.broker.migration_check.findings import _PLUGINS, Observed, Verdict, judge_observed

ROOT = Path(__file__).parents[4]


def verdict(plugin: str) -> Verdict:
    (finding,) = judge_observed(Observed(nodes=[{"name": "rabbit@a", "enabled_plugins": [plugin]}]))
    assert finding.name == plugin
    return finding.verdict


@pytest.mark.parametrize("backend", [*BACKENDS, "cache"])
def test_backends_that_are_there(backend: str) -> None:
    """`internal` is no plugin of RabbitMQ's."""
    expected = Verdict.UNSUPPORTED if backend == "internal" else Verdict.FINE
    assert verdict(f"rabbitmq_auth_backend_{backend}") is expected


def test_other_backends_are_not() -> None:
    assert verdict("rabbitmq_auth_backend_ip_range") is Verdict.UNSUPPORTED


def test_advice_leads_somewhere() -> None:
    for plugin, (_, _, advice) in _PLUGINS.items():
        page = advice.rpartition(": ")[2].partition("#")[0]
        assert not page.startswith("docs/") or (ROOT / page).is_file(), plugin
