"""The frames of a delivery do not depend on what was delivered before."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from pamqp import commands

from leveret.broker.session.delivery_frames import DeliveryFrames
from leveret.protocol.constants import FRAME_BODY, FRAME_HEADER
from leveret.protocol.properties import encode_content_header, encode_text
from leveret.protocol.short_strings import encode_shortstr
from leveret.storage.interface import Entry
from leveret.storage.message import Envelope, Message
from tests.support.amqp_strategies import frame
from tests.support.examples import examples
from tests.support.memory_broker import method

CHANNEL = 3
#: So small that the longest bodies take several frames.
FRAME_MAX = 64
#: The last three take one, two and four frames.
BODIES = [b"", b"a", b"b", b"c" * (FRAME_MAX - 8), b"d" * (FRAME_MAX - 7), b"e" * 200]
#: First delivery tags, just before another of their octets changes.
FIRST_TAGS = [1, 254, 255, 256, 2**16 - 1, 2**32 - 2, 2**56 - 1, 2**63]
MESSAGE_ID = 0x0080


@st.composite
def entries(draw: st.DrawFn) -> list[Entry]:
    """Messages of some envelopes: equal ones, ones that differ in one thing only, and the very same."""
    envelopes: dict[Any, Envelope] = {}
    found: list[Entry] = []
    for seq in range(draw(st.integers(1, 12))):
        key, header_id, body = draw(st.tuples(st.sampled_from(["", "k", "l"]), st.sampled_from("xy"), bodies()))
        header = encode_content_header(len(body), {MESSAGE_ID: encode_text(header_id)})
        made = Envelope(encode_shortstr("") + encode_shortstr(key), header)
        shared = draw(st.booleans())
        envelope = envelopes.setdefault((key, header), made) if shared else made
        found.append((seq, Message(envelope, body), draw(st.booleans())))
    return found


def bodies() -> st.SearchStrategy[bytes]:
    return st.sampled_from(BODIES)


def expected(tag: int, entry: Entry) -> bytes:
    """Return the frames of one delivery, encoded by pamqp or by hand."""
    _, message, redelivered = entry
    exchange_end = 1 + message.envelope.route[0]
    deliver = method(
        CHANNEL,
        commands.Basic.Deliver,
        consumer_tag="ctag",
        delivery_tag=tag,
        redelivered=redelivered,
        exchange=message.envelope.route[1:exchange_end].decode(),
        routing_key=message.envelope.route[exchange_end + 1 :].decode(),
    )
    largest = FRAME_MAX - 8
    chunks = [message.body[at : at + largest] for at in range(0, len(message.body), largest)]
    return b"".join(
        [
            deliver,
            frame(FRAME_HEADER, CHANNEL, message.envelope.header),
            *[frame(FRAME_BODY, CHANNEL, chunk) for chunk in chunks],
        ]
    )


@settings(max_examples=examples(300))
@given(batches=st.lists(st.tuples(st.sampled_from(FIRST_TAGS), entries()), min_size=1, max_size=5))
def test_each_delivery_is_what_it_would_be_alone(batches: list[tuple[int, list[Entry]]]) -> None:
    frames = DeliveryFrames(CHANNEL, "ctag", FRAME_MAX)
    for first, batch in batches:
        out: list[bytes] = []
        assert frames.append(out, batch, first) == first + len(batch)
        assert b"".join(out) == b"".join([expected(first + at, entry) for at, entry in enumerate(batch)])
