"""Messages with different headers have the same effect in one read as in several."""

from __future__ import annotations

from typing import Any, Final

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from pamqp import commands

from leveret import compilation
from leveret.broker.session import publishing
from tests.support import methods
from tests.support.examples import examples
from tests.support.long_routes import LONG_KEY, bind_wild
from tests.support.memory_broker import MemoryBroker, MemoryClient, method, publish
from tests.support.stepping_clock import SteppingClock
from tests.support.transport import METHOD

#: Compiled modules call each other directly. CI runs these tests in pure Python, too.
skip_where_compiled = pytest.mark.skipif(
    compilation.form() == "compiled", reason="functions are replaced in pure Python only"
)

_ARGUMENTS: Final = st.fixed_dictionaries(
    {},
    optional={
        "x-overflow": st.sampled_from(("drop-head", "reject-publish")),
        "x-max-length": st.integers(0, 4),
        "x-max-length-bytes": st.integers(0, 9),
        "x-max-priority": st.just(3),
        "x-message-ttl": st.sampled_from((0, 60_000)),
    },
)
#: Properties of a message; each publish gets a message-id beside them, so that no two headers are equal.
_PROPERTIES: Final[tuple[dict[str, Any], ...]] = (
    {},
    {},
    {},
    {"delivery_mode": 2},
    {"priority": 2},
    {"priority": 200, "delivery_mode": 1},
    {"headers": [("n", "I", 1), ("t", "F", [("CC", "S", "other")])]},
    {"headers": [("CC", "A", [("S", "other")])]},
    {"headers": [("BCC", "A", [("S", "other")])]},
    {"expiration": "60000"},
    {"user_id": "guest"},
    {"reply_to": "somewhere"},
)
_FAULTS: Final[tuple[dict[str, Any], ...]] = (
    {"delivery_mode": 3},
    {"expiration": "soon"},
    {"user_id": "somebody"},
    {"headers": [("CC", "S", "other")]},
    {"headers": b"\0\0\0\1\xff"},
    {"reply_to": "amq.rabbitmq.reply-to"},
)


def messages(kinds: list[tuple[dict[str, Any], int]], routing_key: str, **options: Any) -> list[bytes]:
    """Return the frames of messages with these properties and body sizes."""
    return [
        publish(1, routing_key, b"%03d" % number * size, message_id=str(number), **given, **options)
        for number, (given, size) in enumerate(kinds)
    ]


class Client:
    """A client in confirm mode, the queue q, and a second queue for CC and BCC."""

    def __init__(self, arguments: dict[str, Any], broker: MemoryBroker | None = None) -> None:
        self.broker = broker or MemoryBroker()
        self.client: MemoryClient = self.broker.open(channels=2)
        table = [(key, "S" if isinstance(value, str) else "l", value) for key, value in arguments.items()]
        self.client.send(
            method(2, commands.Queue.Declare, queue="q", arguments=table),
            method(2, commands.Queue.Declare, queue="other"),
            method(1, commands.Confirm.Select),
        )
        self.client.frames()
        self.confirmed: dict[int, str] = {}
        self.answers: list[Any] = []

    def send(self, *frames: bytes) -> None:
        """Send frames in one read, and record the replies, with confirms by number."""
        self.client.send(*frames)
        for each in self.client.frames():
            if each.type != METHOD:
                self.answers.append(each.payload)
                continue
            came = methods.parse(each.payload)
            if came.kind in (commands.Basic.Ack, commands.Basic.Nack):
                tags = range(1, came.delivery_tag + 1) if came.multiple else (came.delivery_tag,)
                for tag in tags:
                    self.confirmed.setdefault(tag, came.kind.name)
            else:
                self.answers.append((came.kind.name, came.arguments))

    def is_open(self) -> bool:
        """Whether the connection is open."""
        return not self.client.transport.closed

    def contents(self) -> list[Any]:
        """Return the messages in both queues: methods, headers and bodies."""
        self.answers.clear()
        gets = [method(2, commands.Basic.Get, queue=name, no_ack=True) for name in ("q", "other") for _ in range(40)]
        self.send(*gets)
        return self.answers


_KINDS: Final = st.tuples(st.sampled_from(_PROPERTIES), st.integers(0, 3))
_FAULTY: Final = st.tuples(st.sampled_from(_FAULTS), st.integers(1, 3))
_PLAIN: Final[dict[str, Any]] = {}


@settings(max_examples=examples(300))
@given(_ARGUMENTS, st.lists(_KINDS, max_size=12), st.lists(_FAULTY, max_size=1), st.lists(_KINDS, max_size=4))
@example({"x-max-length-bytes": 9}, [(_PLAIN, 1), (_PLAIN, 2), (_PLAIN, 3), (_PLAIN, 1)], [], [])
def test_one_read_and_one_read_per_message_have_the_same_effect(
    arguments: dict[str, Any],
    before: list[tuple[dict[str, Any], int]],
    faulty: list[tuple[dict[str, Any], int]],
    behind: list[tuple[dict[str, Any], int]],
) -> None:
    at_once, one_by_one = Client(arguments), Client(arguments)
    # The first ones teach the connection where the routing key leads.
    frames = messages([(_PLAIN, 1), (_PLAIN, 1), *before, *faulty, *behind], "q")
    at_once.send(b"".join(frames))
    for frame in frames:
        if one_by_one.is_open():
            one_by_one.send(frame)
    assert at_once.confirmed == one_by_one.confirmed
    assert at_once.answers == one_by_one.answers
    assert at_once.is_open() == one_by_one.is_open()
    if at_once.is_open():
        assert at_once.contents() == one_by_one.contents()


@pytest.mark.parametrize("mandatory", [False, True])
def test_without_a_queue(mandatory: bool) -> None:
    at_once, one_by_one = Client({}), Client({})
    frames = messages([(_PLAIN, size) for size in (1, 2, 3, 2)], "nowhere", mandatory=mandatory)
    at_once.send(b"".join(frames))
    for frame in frames:
        one_by_one.send(frame)
    assert at_once.confirmed == one_by_one.confirmed == dict.fromkeys(range(1, 5), "Basic.Ack")
    assert at_once.answers == one_by_one.answers
    assert len(at_once.answers) == (3 * 4 if mandatory else 0)


@skip_where_compiled
def test_headers_without_relevant_properties_are_not_decoded(monkeypatch: pytest.MonkeyPatch) -> None:
    client = Client({})
    frames = messages([({"headers": [("id", "S", str(number))]}, 1 + number % 3) for number in range(20)], "q")
    client.send(*frames[:2])

    def refuse(payload: bytes) -> None:
        raise AssertionError(f"decoded {payload!r}")

    monkeypatch.setattr(publishing, "Properties", refuse)
    client.send(b"".join(frames[2:]))
    assert client.confirmed == dict.fromkeys(range(1, 21), "Basic.Ack")
    monkeypatch.undo()
    assert len([each for each in client.contents() if isinstance(each, tuple) and each[0] == "Basic.GetOk"]) == 20


def test_what_precedes_a_long_route_search_is_published_once() -> None:
    client = Client({}, MemoryBroker(SteppingClock()))
    bind_wild(client.client, 6)
    client.send(method(2, commands.Queue.Bind, queue="other", exchange="amq.topic", routing_key="copy"))
    copied = {"headers": [("CC", "A", [("S", "copy")])]}
    kinds = [(_PLAIN, 1), (_PLAIN, 1), (_PLAIN, 2), (copied, 1), (_PLAIN, 1), (copied, 2)]
    frames = messages(kinds, LONG_KEY, exchange="amq.topic")
    client.send(frames[0])
    client.client.feed(b"".join(frames[1:]))
    assert not client.client.transport.reading
    client.send()
    assert client.confirmed == dict.fromkeys(range(1, 7), "Basic.Ack")
    counts = [client.broker.vhost.queues[name] for name in ("q", "other")]
    assert [queue.store.ready_count for queue in counts] == [6, 2]


def test_counters_count_each_message() -> None:
    client = Client({})
    frames = messages([(_PLAIN, size) for size in (1, 2, 3, 2)], "q")
    client.send(frames[0])
    client.send(b"".join(frames[1:]))
    counters = client.client.connection.channels.find(1, 0).counters
    queue = client.broker.vhost.queues["q"]
    assert (counters.publish, counters.publish_confirm, counters.confirm) == (4, 4, 4)
    assert (queue.counters.published, queue.store.ready_count, queue.store.ready_bytes) == (4, 4, 3 * (1 + 2 + 3 + 2))
