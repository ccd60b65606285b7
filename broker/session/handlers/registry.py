"""Which function handles which method on an open channel."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from leveret.broker.session.handlers import basic, channel, confirm, exchange, queue, tx
from leveret.protocol.methods import INDEX

#: By method index. Takes the channel and the method's arguments in the order of the wire. What is missing
#: here is sent by servers only, or belongs to another class: 503.
HANDLERS: Final[dict[int, Callable[..., Any]]] = {
    INDEX[name]: handler
    for module in (basic, channel, confirm, exchange, queue, tx)
    for name, handler in module.METHODS.items()
}
