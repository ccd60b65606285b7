"""A slow reference frame reader for complete frames, based on pamqp; the real one must agree with it."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Any

from pamqp import body, commands, header, heartbeat
from pamqp import frame as pamqp_frame

from leveret.protocol.faults import ConnectionFault, WireFault
from leveret.protocol.frame_reader import AckRun, Event, MethodReceived, PublishRun, VariedRun

#: Kind of event, then its fields. Runs are split into single events, because their length is arbitrary.
Plain = tuple[Any, ...]


def flatten(events: Iterable[Event]) -> list[Plain]:
    """Return the events of the real reader with runs split."""
    flat: list[Plain] = []
    for event in events:
        if isinstance(event, PublishRun):
            publish = event.publish
            route = (publish.exchange, publish.routing_key, publish.mandatory, publish.immediate, publish.route)
            flat += [("message", event.channel, *route, event.header, each) for each in event.bodies]
        elif isinstance(event, VariedRun):
            publish = event.publish
            route = (publish.exchange, publish.routing_key, publish.mandatory, publish.immediate, publish.route)
            contents = zip(event.headers, event.bodies, strict=True)
            flat += [("message", event.channel, *route, payload, each) for payload, each in contents]
        elif isinstance(event, AckRun):
            flat += [("ack", event.channel, tag) for tag in event.tags]
        elif isinstance(event, MethodReceived):
            flat.append(("method", event.channel, event.method.index, event.arguments))
        elif isinstance(event, ConnectionFault):
            flat.append(("fault", event.text, event.method, event.discards_input))
        else:
            assert isinstance(event, WireFault)
            flat.append(("wire", str(event)))
    return flat


class ReferenceReader:
    """Reads streams of well-formed frames; the only errors it detects are frames out of order."""

    def __init__(self) -> None:
        self.events: list[Plain] = []
        # By channel: publish method, content header if received, and the body so far.
        self._open: dict[int, tuple[commands.Basic.Publish, bytes | None, bytes]] = {}

    def read(self, octets: bytes) -> list[Plain]:
        """Return the events of a stream, up to and including the first error."""
        while octets:
            kind, channel, size = struct.unpack_from(">BHI", octets)
            payload, octets = octets[7 : 7 + size], octets[8 + size :]
            if not self._take(kind, channel, payload):
                break
        return self.events

    def _take(self, kind: int, channel: int, payload: bytes) -> bool:
        raw = struct.pack(">BHI", kind, channel, len(payload)) + payload + b"\xce"
        # pamqp refuses frames without payload other than heartbeats.
        is_empty_body = kind == 3 and not payload
        frame: Any = body.ContentBody(b"") if is_empty_body else pamqp_frame.unmarshal(raw)[2]
        if isinstance(frame, heartbeat.Heartbeat):
            return True
        state = self._open.get(channel)
        if state is None:
            return self._expect_method(channel, frame, payload)
        if state[1] is None:
            return self._expect_header(channel, frame, payload, state[0])
        return self._expect_body(channel, frame, state)

    def _expect_method(self, channel: int, frame: Any, payload: bytes) -> bool:
        if isinstance(frame, header.ContentHeader | body.ContentBody):
            return self._refuse("expected method frame, got non method frame instead", 0)
        if isinstance(frame, commands.Basic.Publish):
            self._open[channel] = (frame, None, b"")
        elif isinstance(frame, commands.Basic.Ack) and not frame.multiple:
            self.events.append(("ack", channel, frame.delivery_tag))
        else:
            self.events.append(("method", channel, frame.index, tuple(value for _, value in frame)))
        return True

    def _expect_header(self, channel: int, frame: Any, payload: bytes, publish: commands.Basic.Publish) -> bool:
        if not isinstance(frame, header.ContentHeader):
            text = "expected content header for class 60, got non content header frame instead"
            return self._refuse(text, commands.Basic.Publish.index)
        self._open[channel] = (publish, payload, b"")
        return self._complete(channel, frame.body_size)

    def _expect_body(self, channel: int, frame: Any, state: tuple[commands.Basic.Publish, bytes | None, bytes]) -> bool:
        publish, header_payload, so_far = state
        assert header_payload is not None
        if not isinstance(frame, body.ContentBody):
            text = "expected content body, got non content body frame instead"
            return self._refuse(text, commands.Basic.Publish.index)
        self._open[channel] = (publish, header_payload, so_far + frame.value)
        return self._complete(channel, int.from_bytes(header_payload[4:12], "big"))

    def _complete(self, channel: int, size: int) -> bool:
        publish, header_payload, so_far = self._open[channel]
        if len(so_far) > size:
            text = "FRAME_ERROR - content body frame exceeds remaining content size"
            self.events.append(("fault", text, commands.Basic.Publish.index, False))
            return False
        if len(so_far) == size:
            del self._open[channel]
            names = [name.encode() for name in (publish.exchange, publish.routing_key)]
            route = b"".join(bytes((len(name),)) + name for name in names)
            fields = (publish.exchange, publish.routing_key, publish.mandatory, publish.immediate, route)
            self.events.append(("message", channel, *fields, header_payload, so_far))
        return True

    def _refuse(self, text: str, method: int) -> bool:
        self.events.append(("fault", f"UNEXPECTED_FRAME - {text}", method, False))
        return False
