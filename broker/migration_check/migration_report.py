"""The report about moving here: all rows that the definitions, and a running broker, give."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from leveret.broker.migration_check.definition_rules import judge
from leveret.broker.migration_check.findings import Row, to_rows
from leveret.broker.migration_check.observed_rules import Observed, judge_observed
from leveret.broker.migration_check.rehearsal import rehearse

_RELEASE: Final = re.compile(r"(\d+)\.(\d+)", re.ASCII)


def check_migration(document: Mapping[str, Any], seen: Observed) -> list[Row]:
    """Return what would be different if a RabbitMQ moved here, the worst first.

    Args:
        document: Its definitions.
        seen: What its HTTP API shows beside them.
    Raises:
        ValueError: The definitions are malformed.
        OSError: There is no room for a temporary directory.
    """
    return to_rows([*judge(rehearse(document), find_release(document)), *judge_observed(seen)])


def find_release(document: Mapping[str, Any]) -> tuple[int, ...]:
    """Return the first two numbers of the release that a definitions document is from; () if it does not say."""
    found = _RELEASE.match(str(document.get("rabbitmq_version") or document.get("rabbit_version") or ""))
    return (int(found[1]), int(found[2])) if found else ()
