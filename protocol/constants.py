"""Numbers that AMQP 0-9-1 fixes, and the bounds that RabbitMQ sets beside them."""

from __future__ import annotations

from typing import Final

PROTOCOL_HEADER: Final = b"AMQP\x00\x00\x09\x01"

FRAME_METHOD: Final = 1
FRAME_HEADER: Final = 2
FRAME_BODY: Final = 3
FRAME_HEARTBEAT: Final = 8
FRAME_END: Final = 0xCE

#: Type, channel and payload size before a payload, the end octet behind it (spec 4.2.3).
FRAME_HEAD_SIZE: Final = 7
FRAME_OVERHEAD: Final = 8

#: The smallest frame-max a peer may ask for, and what applies before tuning (spec 4.2.3).
FRAME_MIN_SIZE: Final = 4096

#: A message is never longer than this, whatever is configured (RabbitMQ's own hard cap, 512 MiB).
MESSAGE_SIZE_CAP: Final = 536_870_912

#: Bytes that a short string may have, as all names, routing keys and the keys of field tables are (spec 4.2.5.3).
SHORTSTR_MAX: Final = 255

#: The integers of a field table are at least minus this, and below it.
INT64_END: Final = 1 << 63

#: Reply text is a short string: longer text is cut to 252 bytes and "...".
REPLY_TEXT_LIMIT: Final = SHORTSTR_MAX

CLASS_BASIC: Final = 60

#: class-id << 16 | method-id of the methods that the frame reader knows by number.
BASIC_PUBLISH: Final = 0x003C0028
BASIC_ACK: Final = 0x003C0050
