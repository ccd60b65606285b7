"""Logs regular expressions that take too long; they are treated as not matching."""

from __future__ import annotations

import logging

log = logging.getLogger("leveret.patterns")


def log_slow_pattern(source: str, text: str) -> None:
    """Log a pattern that takes too long.

    Args:
        source: The pattern, or its beginning.
        text: The name or routing key that was matched.
    """
    log.warning(
        "pattern %a takes too long on %a: it does not match that, nor whatever else it takes too long on", source, text
    )
