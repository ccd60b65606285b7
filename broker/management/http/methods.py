"""The methods of HTTP, by what they are for."""

from __future__ import annotations

from typing import Final

#: They only ask (RFC 9110 section 9.2.1).
READING: Final = ("GET", "HEAD", "OPTIONS")
