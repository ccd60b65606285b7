"""Fixtures of these tests."""

from __future__ import annotations

from tests.support.leveret_process import leveret_process

__all__ = ["leveret_process"]
