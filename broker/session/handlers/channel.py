"""Methods of class channel, and access.request of older clients."""

from __future__ import annotations

from typing import Any, Final

from leveret.broker.session.channel import Channel
from leveret.protocol.faults import not_implemented
from leveret.protocol.methods import INDEX

_FLOW_OK: Final = INDEX["channel.flow-ok"]
_CLOSE_OK: Final = INDEX["channel.close-ok"]
_REQUEST_OK: Final = INDEX["access.request-ok"]


def flow(channel: Channel, active: bool) -> None:
    """Answer channel.flow with active=true; as in RabbitMQ, clients use basic.qos to limit deliveries.

    Raises:
        ConnectionFault: NOT_IMPLEMENTED (540) for active=false.
    """
    if not active:
        raise not_implemented("active=false")
    channel.send(_FLOW_OK, True)


def close(channel: Channel, reply_code: int, reply_text: str, class_id: int, method_id: int) -> None:
    """Close the channel at the client's request; its number is free afterwards."""
    channel.flush_confirms()
    channel.deliver_due()
    channel.close()
    channel.send(_CLOSE_OK)


def request(channel: Channel, *_: Any) -> None:
    """Answer access.request of AMQP 0-8; tickets are ignored."""
    channel.send(_REQUEST_OK, 1)


METHODS: Final = {"channel.flow": flow, "channel.close": close, "access.request": request}
