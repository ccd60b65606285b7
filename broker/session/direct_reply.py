"""Direct reply-to: answers to requests without a queue for them.

Source: https://www.rabbitmq.com/docs/direct-reply-to, and RabbitMQ 3.10.8 observed.
"""

from __future__ import annotations

import base64
import secrets
from typing import TYPE_CHECKING, Final

from leveret.broker.session.delivery import send_message
from leveret.protocol.methods import INDEX
from leveret.storage.message import Message

if TYPE_CHECKING:
    from leveret.broker.session.channel import Channel

#: The pseudo-queue that a client consumes from, and the reply-to of its requests.
REPLY_QUEUE: Final = "amq.rabbitmq.reply-to"
_DELIVER: Final = INDEX["basic.deliver"]


class ReplyConsumer:
    """A channel's consumer of direct replies.

    Args:
        channel: Its channel.
        tag: Its consumer tag.

    Attributes:
        name: The routing key that its replies are published to; it stands for this consumer alone.
    """

    __slots__ = ("_channel", "name", "tag")

    def __init__(self, channel: Channel, tag: str) -> None:
        self._channel = channel
        self.tag = tag
        parts = (base64.b64encode(secrets.token_bytes(size)).decode("ascii") for size in (33, 16))
        self.name = f"{REPLY_QUEUE}.{'.'.join(parts)}"
        channel.vhost.replies[self.name] = self

    def deliver_reply(self, message: Message) -> None:
        """Send a reply. It carries the channel's next delivery tag without using it up, as in 3.10.8."""
        channel = self._channel
        send_message(channel, _DELIVER, (self.tag, channel.next_tag, False), message)

    def cancel(self) -> None:
        """Take no more replies."""
        self._channel.vhost.replies.pop(self.name, None)
        self._channel.reply_consumer = None
