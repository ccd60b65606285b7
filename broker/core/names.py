"""Generated names, and normalization of declared names."""

from __future__ import annotations

import base64
import secrets


def generate_name(prefix: str) -> str:
    """Generate a unique name.

    Args:
        prefix: Start of the name, for example ``amq.gen``.
    Returns:
        Prefix, dash, 22 characters of URL-safe base64 of 16 random bytes.
    """
    return f"{prefix}-{base64.urlsafe_b64encode(secrets.token_bytes(16)).rstrip(b'=').decode('ascii')}"


def strip_line_ends(name: str) -> str:
    """Remove CR and LF from a queue or exchange name, as RabbitMQ does in declarations."""
    return name.replace("\r", "").replace("\n", "")
