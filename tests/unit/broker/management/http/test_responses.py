"""Columns, and bodies that are sent in pieces."""

from __future__ import annotations

import json

from leveret.broker.management.http.responses import ChunkedBody, LongText

DOCUMENT = {"a": 1, "b": {"c": 2, "d": {"e": 3}}, "f": [{"g": 4, "h": 5}, {"h": 6}], "i": None}


def test_short_text_is_one_body() -> None:
    text = LongText()
    for part in ("[", "1", "]"):
        text.add(part)
    assert text.response().body == b"[1]"


def test_long_text_is_sent_in_pieces() -> None:
    text = LongText()
    parts = ["é" * 1000] * 500
    for part in parts:
        text.add(part)
    body = text.response().body
    assert isinstance(body, ChunkedBody)
    assert body.decode() == "".join(parts)
    assert body.size == len("".join(parts).encode())


def test_long_text_that_waits_for_its_reader_takes_little_memory() -> None:
    text = LongText()
    for number in range(5000):
        text.add(json.dumps({**DOCUMENT, "name": f"queue {number}", "node": "leveret@host", "arguments": {}}))
    body = text.response().body
    assert isinstance(body, ChunkedBody)
    assert (sum(map(len, body._pieces)) + len(body._end)) * 4 < (body.size or 0)
