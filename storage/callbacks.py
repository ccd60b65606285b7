"""Calls each callback of a list, whatever another one does."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import Final

_LOG: Final = logging.getLogger("leveret.callbacks")


def call_each(callbacks: Iterable[Callable[[], object]], when: str) -> None:
    """Call all callbacks, in order. An exception of one is logged as an internal error and does not affect the others.

    Args:
        callbacks: The callbacks.
        when: What the log says about the moment, such as ``after a sync``.
    """
    for callback in callbacks:
        try:
            callback()
        except Exception:  # noqa: BLE001 - it is logged, and others must not wait for ever
            _LOG.exception("internal error in a callback %s", when)
