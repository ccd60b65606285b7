"""Handlers of methods on open channels."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from leveret.broker.session.handlers import basic, channel, confirm, exchange, queue, tx
from leveret.protocol.methods import INDEX

#: Handlers by method index. They take the channel and the method's arguments, in the order of the specification.
#: Other methods are refused with COMMAND_INVALID (503).
HANDLERS: Final[dict[int, Callable[..., Any]]] = {
    INDEX[name]: handler
    for module in (basic, channel, confirm, exchange, queue, tx)
    for name, handler in module.METHODS.items()
}
