"""Keys of mirrored queues, which do nothing, but are checked as RabbitMQ checks them."""

from __future__ import annotations

from typing import Any

import pytest

from leveret.policies.keys import fits
from leveret.policies.mirroring import refuse_locator, refuse_mirroring

NO_MODE = "ha-mode must be specified to specify ha-params, ha-sync-mode or ha-promote-on-shutdown"


@pytest.mark.parametrize(
    "definition",
    [
        {},
        {"max-length": 5},
        {"queue-master-locator": "random"},
        {"ha-mode": "all"},
        {"ha-mode": "exactly", "ha-params": 1},
        {"ha-mode": "nodes", "ha-params": ["rabbit@a", "rabbit@b"]},
        {"ha-mode": "all", "ha-sync-mode": "manual"},
        {"ha-mode": "all", "ha-sync-mode": "automatic", "ha-sync-batch-size": 1},
        {"ha-mode": "all", "ha-promote-on-shutdown": "always", "ha-promote-on-failure": "when-synced"},
        {"ha-mode": "all", "ha-promote-on-shutdown": "when-synced", "ha-promote-on-failure": "always"},
    ],
)
def test_what_is_taken(definition: dict[str, Any]) -> None:
    assert refuse_mirroring(definition) is None


@pytest.mark.parametrize(
    ("definition", "text"),
    [
        ({"ha-params": 2}, NO_MODE),
        ({"ha-sync-batch-size": 5}, NO_MODE),
        ({"ha-mode": "none"}, '<<"none">> is not a valid ha-mode value'),
        ({"ha-mode": "All"}, '<<"All">> is not a valid ha-mode value'),
        ({"ha-mode": "all", "ha-params": 1}, 'ha-mode="all" does not take parameters'),
        ({"ha-mode": "exactly"}, 'ha-mode="exactly" takes an integer, none given'),
        ({"ha-mode": "exactly", "ha-params": 0}, 'ha-mode="exactly" takes an integer, 0 given'),
        ({"ha-mode": "exactly", "ha-params": True}, 'ha-mode="exactly" takes an integer, true given'),
        ({"ha-mode": "exactly", "ha-params": "2"}, 'ha-mode="exactly" takes an integer, <<"2">> given'),
        ({"ha-mode": "nodes"}, 'ha-mode="nodes" takes a list, none given'),
        ({"ha-mode": "nodes", "ha-params": 1}, 'ha-mode="nodes" takes a list, 1 given'),
        ({"ha-mode": "nodes", "ha-params": []}, 'ha-mode="nodes" list must be non-empty'),
        ({"ha-mode": "nodes", "ha-params": ["a", 1]}, 'ha-mode="nodes" takes a list of strings, [1] was not a string'),
        ({"ha-mode": "all", "ha-sync-mode": "x"}, 'ha-sync-mode must be "manual" or "automatic", got <<"x">>'),
        (
            {"ha-mode": "all", "ha-sync-batch-size": 0},
            "ha-sync-batch-size takes an integer greater than 0, 0 given",
        ),
        (
            {"ha-mode": "all", "ha-promote-on-shutdown": "never"},
            'ha-promote-on-shutdown must be "always" or "when-synced", got <<"never">>',
        ),
        (
            {"ha-mode": "all", "ha-promote-on-failure": 1},
            'ha-promote-on-failure must be "always" or "when-synced", got 1',
        ),
        # The mode is checked first.
        ({"ha-mode": "none", "ha-sync-mode": "x"}, '<<"none">> is not a valid ha-mode value'),
    ],
)
def test_what_is_refused(definition: dict[str, Any], text: str) -> None:
    assert refuse_mirroring(definition) == text


def test_locators() -> None:
    for locator in ("client-local", "min-masters", "random"):
        assert refuse_locator({"queue-master-locator": locator}) is None
    assert refuse_locator({}) is None
    assert refuse_locator({"queue-master-locator": "x"}) == '<<"x">> invalid queue-master-locator value'


@pytest.mark.parametrize(("queue_type", "fitting"), [("classic", True), ("quorum", False), ("stream", False)])
def test_only_classic_queues_are_mirrored(queue_type: str, fitting: bool) -> None:
    assert fits({"ha-mode": "all", "max-length": 5}, queue_type) is fitting
