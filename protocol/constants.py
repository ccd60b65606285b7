"""Constants of AMQP 0-9-1, and limits that RabbitMQ adds."""

from __future__ import annotations

from typing import Final

PROTOCOL_HEADER: Final = b"AMQP\x00\x00\x09\x01"

FRAME_METHOD: Final = 1
FRAME_HEADER: Final = 2
FRAME_BODY: Final = 3
FRAME_HEARTBEAT: Final = 8
FRAME_END: Final = 0xCE

#: Bytes before a payload (type, channel, payload size), and with the end octet behind it (spec 4.2.3).
FRAME_HEAD_SIZE: Final = 7
FRAME_OVERHEAD: Final = 8

#: The smallest frame-max that a peer may ask for, and the frame-max before tuning (spec 4.2.3).
FRAME_MIN_SIZE: Final = 4096

#: Largest message body in bytes, whatever is configured (RabbitMQ's hard cap, 512 MiB).
MESSAGE_SIZE_CAP: Final = 536_870_912

#: Largest short string in bytes. Names, routing keys and keys of field tables are short strings (spec 4.2.5.3).
SHORTSTR_MAX: Final = 255

#: Integers of a field table are in -INT64_END..INT64_END - 1.
INT64_END: Final = 1 << 63

#: Reply text is a short string: longer text is truncated to 252 bytes and "...".
REPLY_TEXT_LIMIT: Final = SHORTSTR_MAX

CLASS_BASIC: Final = 60

#: class-id << 16 | method-id of the methods that the frame reader knows by number.
BASIC_PUBLISH: Final = 0x003C0028
BASIC_ACK: Final = 0x003C0050
