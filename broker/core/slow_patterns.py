"""Patterns that take too long are told in the log: what they are for goes on as if they did not match."""

from __future__ import annotations

import logging

log = logging.getLogger("leveret.patterns")


def log_slow_pattern(source: str, text: str) -> None:
    """Log a pattern that takes too long.

    Args:
        source: The pattern, or its beginning.
        text: A name or routing key that it takes too long on.
    """
    log.warning(
        "pattern %a takes too long on %a: it does not match that, nor whatever else it takes too long on", source, text
    )
