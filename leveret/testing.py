"""What pytest finds of Leveret: fixtures with a broker, for a test or a whole session, and with a cluster."""

from __future__ import annotations

from leveret.broker.pytest_plugin import leveret as leveret
from leveret.broker.pytest_plugin import leveret_cluster as leveret_cluster
from leveret.broker.pytest_plugin import leveret_session as leveret_session
from leveret.broker.pytest_plugin import leveret_session_url as leveret_session_url
from leveret.broker.pytest_plugin import leveret_url as leveret_url
from leveret.broker.pytest_plugin import pytest_assertrepr_compare as pytest_assertrepr_compare
from leveret.broker.pytest_plugin import pytest_configure as pytest_configure
from leveret.broker.pytest_plugin import pytest_sessionfinish as pytest_sessionfinish

__all__ = ["leveret", "leveret_cluster", "leveret_session", "leveret_session_url", "leveret_url"]
