"""Groups of HTTP methods."""

from __future__ import annotations

from typing import Final

#: Safe methods, which change nothing (RFC 9110 section 9.2.1).
SAFE_METHODS: Final = ("GET", "HEAD", "OPTIONS")
