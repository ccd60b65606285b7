"""What a failed assertion says of messages."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from leveret.broker.testing.messages import PublishedMessage, QueuedMessage, explain_differences
from tests.integration.embedding.test_fixtures import run


def message(body: bytes, key: str = "k", **headers: object) -> PublishedMessage:
    return PublishedMessage("e", key, body, {"priority": 1}, headers)


ONE, TWO, THREE = message(b"1"), message(b"2"), message(b"3")


@pytest.mark.parametrize(
    ("left", "right", "expected"),
    [
        ([ONE, TWO], [TWO], ["2 messages == 1 message", f"only on the left, at 0: {ONE!r}"]),
        ([], [TWO], ["0 messages == 1 message", f"only on the right, at 0: {TWO!r}"]),
        (
            [ONE, TWO, THREE],
            [ONE, message(b"2", "other", x=1), THREE],
            [
                "3 messages == 3 messages",
                "message 1 on the left, 1 on the right:",
                "  routing_key: 'k' == 'other'",
                "  headers['x']: nothing == 1",
            ],
        ),
        (
            message(b'{"number": 1, "same": true}'),
            message(b'{"number": 2, "same": true, "more": null}'),
            ["the messages differ", "  body['number']: 1 == 2", "  body['more']: nothing == None"],
        ),
        (
            message(b"[1]"),
            message(b"x" * 300),
            ["the messages differ", f"  body: b'[1]' == b'{'x' * 198}… (303 characters)"],
        ),
        (
            QueuedMessage("e", "k", b"1", {"priority": 1}, {}, False, True),
            QueuedMessage("e", "k", b"1", {"priority": 1}, {}, True, True),
            ["the messages differ", "  is_ready: False == True"],
        ),
        (ONE, QueuedMessage("e", "k", b"1", {"priority": 1}, {}, True, True),
         ["the messages differ", "  one is a PublishedMessage, the other a QueuedMessage"]),
        ([], [], None),
        ([ONE], [b"1"], None),
        ([b"1"], [b"2"], None),
        (1, ONE, None),
    ],
)  # fmt: skip
def test_differences(left: object, right: object, expected: list[str] | None) -> None:
    assert explain_differences(left, right) == expected


_SUITE = """
import pika

def send(url, *bodies):
    with pika.BlockingConnection(pika.URLParameters(url)) as connection:
        channel = connection.channel()
        channel.queue_declare("q")
        channel.confirm_delivery()
        for body in bodies:
            channel.basic_publish("", "q", body)

def test_messages(leveret):
    send(leveret.url, b"1", b"2")
    before = leveret.messages("q")
    send(leveret.url, b"3")
    assert leveret.messages("q") == before

def test_others(leveret):
    assert [1, 2] == [1, 3]
"""


def test_pytest_says_so(tmp_path: Path) -> None:
    ran = run(tmp_path, _SUITE)
    assert "2 failed" in ran.stdout, ran.stdout + ran.stderr
    assert re.search(r"^E .*assert 3 messages == 2 messages$", ran.stdout, re.MULTILINE), ran.stdout
    assert "only on the left, at 2: <QueuedMessage b'3' exchange='' routing_key='q'" in ran.stdout
    assert "At index 1 diff: 2 != 3" in ran.stdout
