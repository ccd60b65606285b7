"""Fixtures of these tests."""

from __future__ import annotations

from tests.packaging.distributions import checkout, dist, installed, unpacked, wheel
from tests.support.leveret_process import leveret_process

__all__ = ["checkout", "dist", "installed", "leveret_process", "unpacked", "wheel"]
