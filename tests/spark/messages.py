"""Content headers as publishers send them."""

from __future__ import annotations

from typing import Any

import pamqp.commands
import pamqp.header


def content_header(body_bytes: int, **properties: Any) -> bytes:
    """The payload of a content header frame; delivery-mode is 2 if nothing else is said.

    Args:
        body_bytes: Length of the body.
        properties: As in pamqp.
    """
    found = pamqp.commands.Basic.Properties(**({"delivery_mode": 2} | properties))
    return pamqp.header.ContentHeader(0, body_bytes, found).marshal()
