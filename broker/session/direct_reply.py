"""Direct reply-to: replies to requests without a reply queue.

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

#: The pseudo-queue that clients consume from, and set as reply-to of requests.
REPLY_QUEUE: Final = "amq.rabbitmq.reply-to"
_DELIVER: Final = INDEX["basic.deliver"]


class ReplyConsumer:
    """The direct reply-to consumer of a channel.

    Args:
        channel: The channel.
        tag: The consumer tag.

    Attributes:
        name: Routing key for replies to this consumer; unique and not guessable.
    """

    __slots__ = ("_channel", "name", "tag")

    def __init__(self, channel: Channel, tag: str) -> None:
        self._channel = channel
        self.tag = tag
        parts = (base64.b64encode(secrets.token_bytes(size)).decode("ascii") for size in (33, 16))
        self.name = f"{REPLY_QUEUE}.{'.'.join(parts)}"
        channel.vhost.replies[self.name] = self

    def deliver_reply(self, message: Message) -> None:
        """Send a reply. As in RabbitMQ 3.10.8, its delivery tag is the channel's next one, which is not advanced."""
        channel = self._channel
        send_message(channel, _DELIVER, (self.tag, channel.next_tag, False), message)

    def cancel(self) -> None:
        """Cancel the consumer."""
        self._channel.vhost.replies.pop(self.name, None)
        self._channel.reply_consumer = None
