"""Direct reply-to: replies to requests without a reply queue.

Source: https://www.rabbitmq.com/docs/direct-reply-to, and RabbitMQ 3.10.8 observed.
"""

from __future__ import annotations

import base64
import secrets
from typing import Final

from leveret.broker.session.channel_host import ChannelHost
from leveret.broker.session.delivery import send_message
from leveret.broker.session.unacked import Unacked
from leveret.protocol.methods import INDEX
from leveret.storage.message import Message

#: The pseudo-queue that clients consume from, and set as reply-to of requests.
REPLY_QUEUE: Final = "amq.rabbitmq.reply-to"
_DELIVER: Final = INDEX["basic.deliver"]


class ReplyConsumer:
    """The direct reply-to consumer of a channel.

    Args:
        host: What the channels of the connection share.
        number: Channel number.
        unacked: Unacknowledged messages of the channel.
        tag: The consumer tag.

    Attributes:
        name: Routing key for replies to this consumer; unique and not guessable.
    """

    __slots__ = ("_host", "_number", "_unacked", "name", "tag")

    def __init__(self, host: ChannelHost, number: int, unacked: Unacked, tag: str) -> None:
        self._host = host
        self._number = number
        self._unacked = unacked
        self.tag = tag
        parts = (base64.b64encode(secrets.token_bytes(size)).decode("ascii") for size in (33, 16))
        self.name = f"{REPLY_QUEUE}.{'.'.join(parts)}"
        host.vhost.replies[self.name] = self

    def deliver_reply(self, message: Message) -> None:
        """Send a reply. As in RabbitMQ 3.10.8, its delivery tag is the channel's next one, which is not advanced."""
        send_message(self._host, self._number, _DELIVER, (self.tag, self._unacked.next_tag, False), message)

    def cancel(self) -> None:
        """Cancel the consumer."""
        self._host.vhost.replies.pop(self.name, None)
