"""Fixtures of pytest for programs that talk to a broker: ``leveret`` and ``leveret_url``."""

from __future__ import annotations

from leveret.broker.pytest_plugin import leveret as leveret
from leveret.broker.pytest_plugin import leveret_url as leveret_url

__all__ = ["leveret", "leveret_url"]
