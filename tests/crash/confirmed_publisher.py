"""Publishes numbered messages with confirms, and notes which numbers the broker has promised to keep."""

from __future__ import annotations

from typing import Any, Final

from tests.crash.broker_load import body_of
from tests.support.wire import Channel

_PATIENCE: Final = 120.0


class ConfirmedPublisher:
    """A channel with confirms."""

    def __init__(self, channel: Channel, confirmed: set[int], may_be_refused: bool) -> None:
        channel.confirm_select()
        self._channel = channel
        self._confirmed = confirmed
        self._may_be_refused = may_be_refused
        self._unconfirmed: dict[int, int] = {}
        self._last = 0
        self.acknowledged = 0

    def publish(self, number: int, exchange: str, routing_key: str, **properties: Any) -> None:
        """Publish a persistent message whose body and message id are its number."""
        self._last += 1
        self._unconfirmed[self._last] = number
        given = {"message_id": str(number), "delivery_mode": 2, **properties}
        self._channel.publish(exchange, routing_key, body_of(number), given)

    def wait(self, most: int) -> None:
        """Wait until not more messages than this are unconfirmed."""
        self._channel.wait_until(lambda: self._take_confirms() <= most, "confirms", _PATIENCE)

    def _take_confirms(self) -> int:
        """Note confirms that have come; return how many messages have none."""
        while self._channel.confirms:
            confirm = self._channel.confirms.popleft()
            assert confirm.ack or self._may_be_refused, "a publish was refused"
            last = confirm.delivery_tag
            tags = [tag for tag in self._unconfirmed if tag <= last] if confirm.multiple else [last]
            numbers = [self._unconfirmed.pop(tag) for tag in tags]
            if confirm.ack:
                self._confirmed.update(numbers)
                self.acknowledged += len(numbers)
        return len(self._unconfirmed)
