"""Errors of a broker inside a test."""

from __future__ import annotations


class NotRunningError(RuntimeError):
    """The broker is not running: it has not been started, or has been stopped or killed."""

    def __init__(self, what: str = "") -> None:
        super().__init__(what or "the broker is not running: start() it, or use it inside its `with` block")
