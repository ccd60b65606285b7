"""Names that the broker makes up."""

from __future__ import annotations

import base64
import secrets


def generate_name(prefix: str) -> str:
    """A name that nobody else has.

    Args:
        prefix: For example ``amq.gen``.
    Returns:
        Prefix, dash, 22 characters of URL-safe base64 of 16 random bytes.
    """
    return f"{prefix}-{base64.urlsafe_b64encode(secrets.token_bytes(16)).rstrip(b'=').decode('ascii')}"


def strip_line_ends(name: str) -> str:
    """A queue or exchange name without CR and LF, which RabbitMQ takes out of declarations."""
    return name.replace("\r", "").replace("\n", "")
