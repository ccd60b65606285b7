"""Types of the fixtures that are functions."""

from __future__ import annotations

from collections.abc import Callable

Names = Callable[[str], str]
