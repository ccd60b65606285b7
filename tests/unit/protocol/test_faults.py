from __future__ import annotations

from collections.abc import Callable

import pytest

from leveret.protocol import faults
from leveret.protocol.faults import AmqpFault, ChannelFault, ConnectionFault, ReplyCode, encode_reply_text

MAKERS: list[tuple[Callable[[str], AmqpFault], type[AmqpFault], str, int | None]] = [
    (faults.access_refused, ChannelFault, "403 ACCESS_REFUSED", None),
    (faults.not_found, ChannelFault, "404 NOT_FOUND", None),
    (faults.resource_locked, ChannelFault, "405 RESOURCE_LOCKED", None),
    (faults.precondition_failed, ChannelFault, "406 PRECONDITION_FAILED", None),
    (faults.frame_error, ConnectionFault, "501 FRAME_ERROR", 0),
    (faults.unexpected_frame, ConnectionFault, "505 UNEXPECTED_FRAME", 0),
    (faults.not_implemented, ConnectionFault, "540 NOT_IMPLEMENTED", None),
]


@pytest.mark.parametrize(("make", "kind", "text", "method"), MAKERS, ids=lambda value: str(value)[:20])
def test_a_fault_carries_code_text_and_method(
    make: Callable[[str], AmqpFault], kind: type[AmqpFault], text: str, method: int | None
) -> None:
    fault = make("why")
    assert type(fault) is kind
    assert str(fault) == f"{text} - why"
    assert f"{int(fault.code)} {fault.text}" == str(fault)
    assert fault.method == method


def test_codes_and_names() -> None:
    numbers = {312, 320, 403, 404, 405, 406, 501, 503, 504, 505, 506, 530, 540, 541, 200}
    assert {int(code) for code in ReplyCode} == numbers


def test_without_explanation_there_is_no_dash() -> None:
    assert ConnectionFault(ReplyCode.INTERNAL_ERROR).text == "INTERNAL_ERROR"


@pytest.mark.parametrize(
    ("text", "encoded"),
    [
        ("", b""),
        ("x" * 255, b"x" * 255),
        ("x" * 256, b"x" * 252 + b"..."),
        ("x" * 1000, b"x" * 252 + b"..."),
        # Cut by bytes, in the middle of a character too.
        ("x" + "\u00e4" * 127, b"x" + "\u00e4".encode() * 127),
        ("x" + "\u00e4" * 128, b"x" + "\u00e4".encode() * 125 + b"\xc3..."),
        ("\udcff", b"\xff"),
    ],
)
def test_reply_texts_fit_a_short_string(text: str, encoded: bytes) -> None:
    assert encode_reply_text(text) == encoded
