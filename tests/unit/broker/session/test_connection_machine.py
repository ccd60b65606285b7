"""State machine: two clients send valid and invalid input in any order; a model knows what is open."""

from __future__ import annotations

import logging
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from pamqp import commands

from leveret.protocol.faults import ReplyCode
from leveret.protocol.methods import INDEX, METHODS
from leveret.protocol.states import ChannelState, ConnectionState
from tests.support import content, methods
from tests.support.examples import examples
from tests.support.memory_broker import MemoryBroker, MemoryClient, method, publish
from tests.support.methods import Method, MethodType
from tests.support.queues import declare
from tests.support.transport import BODY, HEADER, METHOD, frame

#: What a fault of the client may close a channel, or the connection, with.
CHANNEL_CODES = {403, 404, 405, 406}
CONNECTION_CODES = {501, 503, 504, 505, 530, 540}

QUEUES = st.sampled_from(["a"] * 5 + ["b"] * 5 + ["mine", "missing", ""])
DOOMED = st.sampled_from(["a", "mine", "missing", "missing", ""])
EXCHANGES = st.sampled_from([""] * 5 + ["amq.direct", "amq.fanout"] * 3 + ["x", "missing"])
EXCHANGE_TYPES = st.sampled_from(["direct", "direct", "topic", "zzz"])
TAGS = st.sampled_from(["c1", "c2", ""])
WHO = st.integers(0, 1)
CHANNELS = range(1, 4)
BITS = st.booleans()
RARELY = st.sampled_from([False] * 9 + [True])
NOT_ALWAYS = st.sampled_from([False] * 3 + [True])

#: Requests on a channel: the arguments to try, and the replies that are fine on that channel.
REQUESTS: dict[MethodType, tuple[dict[str, st.SearchStrategy[Any]], tuple[MethodType, ...]]] = {
    commands.Queue.Declare: (
        {"queue": QUEUES, "passive": BITS, "exclusive": RARELY, "auto_delete": RARELY},
        (commands.Queue.DeclareOk,),
    ),
    commands.Queue.Delete: ({"queue": DOOMED, "if_unused": BITS, "if_empty": BITS}, (commands.Queue.DeleteOk,)),
    commands.Queue.Purge: ({"queue": QUEUES}, (commands.Queue.PurgeOk,)),
    commands.Queue.Bind: (
        {"queue": QUEUES, "exchange": EXCHANGES, "routing_key": QUEUES},
        (commands.Queue.BindOk,),
    ),
    commands.Queue.Unbind: (
        {"queue": QUEUES, "exchange": EXCHANGES, "routing_key": QUEUES},
        (commands.Queue.UnbindOk,),
    ),
    commands.Exchange.Declare: (
        {
            "exchange": EXCHANGES,
            "exchange_type": EXCHANGE_TYPES,
            "auto_delete": BITS,
        },
        (commands.Exchange.DeclareOk,),
    ),
    commands.Exchange.Delete: ({"exchange": EXCHANGES, "if_unused": BITS}, (commands.Exchange.DeleteOk,)),
    commands.Basic.Qos: (
        {
            "prefetch_size": RARELY.map(int),
            "prefetch_count": st.sampled_from([0, 1, 3]),
            "global_": BITS,
        },
        (commands.Basic.QosOk,),
    ),
    commands.Basic.Consume: (
        {"queue": QUEUES, "consumer_tag": TAGS, "no_ack": BITS, "exclusive": BITS},
        (commands.Basic.ConsumeOk,),
    ),
    commands.Basic.Cancel: ({"consumer_tag": TAGS}, (commands.Basic.CancelOk,)),
    commands.Basic.Get: ({"queue": QUEUES, "no_ack": BITS}, (commands.Basic.GetOk, commands.Basic.GetEmpty)),
    commands.Basic.Ack: ({"delivery_tag": st.integers(0, 6), "multiple": BITS}, ()),
    commands.Basic.Nack: ({"delivery_tag": st.integers(0, 6), "multiple": BITS, "requeue": BITS}, ()),
    commands.Basic.Reject: ({"delivery_tag": st.integers(1, 6), "requeue": BITS}, ()),
    commands.Basic.Recover: ({"requeue": RARELY.map(lambda rarely: not rarely)}, (commands.Basic.RecoverOk,)),
    commands.Confirm.Select: ({}, (commands.Confirm.SelectOk,)),
    commands.Tx.Select: ({}, (commands.Tx.SelectOk,)),
    commands.Tx.Commit: ({}, (commands.Tx.CommitOk,)),
    commands.Tx.Rollback: ({}, (commands.Tx.RollbackOk,)),
    commands.Channel.Flow: ({"active": RARELY.map(lambda rarely: not rarely)}, (commands.Channel.FlowOk,)),
}

#: The requests by what they are about, so that each has its share.
TOPOLOGY = [kind for kind in REQUESTS if kind.name.startswith(("Queue", "Exchange"))]
SETTLING = [commands.Basic.Ack, commands.Basic.Nack, commands.Basic.Reject, commands.Basic.Recover]
OTHERS = [kind for kind in REQUESTS if kind not in TOPOLOGY and kind not in SETTLING]

#: What a channel may get unasked, at any time.
UNASKED = {
    commands.Basic.Deliver,
    commands.Basic.Ack,
    commands.Basic.Nack,
    commands.Basic.Cancel,
    commands.Basic.Return,
}

#: Frames that no channel, and no connection, is in order for.
GARBAGE = st.one_of(
    st.builds(frame, st.sampled_from([0, 4, 7, 9, 255]), st.integers(0, 3), st.binary(max_size=20)),
    st.builds(frame, st.sampled_from([HEADER, BODY]), st.integers(0, 3), st.binary(max_size=20)),
    st.builds(frame, st.just(METHOD), st.integers(0, 3), st.binary(max_size=3)),
    st.builds(lambda end: frame(METHOD, 1, b"\x00\x14\x00\x0a\x00", end=end), st.integers(0, 0xCD)),
)

#: Methods with content that clients do not send.
FOREIGN_CONTENT = {INDEX[name] for name in ("basic.return", "basic.deliver", "basic.get-ok")}

#: What may come after the end.
LATE = st.one_of(GARBAGE, st.sampled_from([publish(1, "a", b"x"), method(1, commands.Channel.Open)]))

#: What clients do wrong with well-formed frames; mostly nothing.
MISTAKES = ["open twice", "not open", "close-ok", "half", "unknown", *["none"] * 15]


class Peer:
    """A client, with the model of its connection.

    Attributes:
        channels: Channel numbers in use; the value says whether the server has closed it.
        closing: The server has sent connection.close.
    """

    def __init__(self, broker: MemoryBroker) -> None:
        self.client: MemoryClient = broker.open(channels=0)
        self.channels: dict[int, bool] = {}
        self.closing = False

    @property
    def dead(self) -> bool:
        """Whether the connection is closed."""
        return self.closing or self.client.transport.closed


class ConnectionModel(RuleBasedStateMachine):
    """Model of open connections and channels, and of valid replies."""

    def __init__(self) -> None:
        super().__init__()
        self.broker = MemoryBroker()
        for name in ("a", "b"):
            declare(self.broker.vhost, name, durable=False)
        self.peers = [Peer(self.broker), Peer(self.broker)]
        self.faults = _ErrorLog()
        log = logging.getLogger("leveret")
        log.addHandler(self.faults)
        # Names of any bytes stand in the log, which pytest-xdist cannot carry from process to process.
        log.propagate = False

    def teardown(self) -> None:
        """Close both connections, and check that all resources are released."""
        log = logging.getLogger("leveret")
        log.removeHandler(self.faults)
        log.propagate = True
        for peer in self.peers:
            peer.client.abort()
        broker = self.broker.broker
        assert not broker.connections
        assert (broker.connections.channel_count, +broker.connections.channels_by_user) == (0, {})
        assert len(self.broker.connections) == 0
        for queue in self.broker.vhost.queues.values():
            assert (queue.owner, queue.unacked_count, len(queue.consumers)) == (None, 0, 0)
        assert self.faults.messages == []

    # -- what always holds -------------------------------------------------------------------------------

    @invariant()
    def the_model_and_the_broker_agree(self) -> None:
        for who, peer in enumerate(self.peers):
            self._read_unasked(who)
            expected = set() if peer.dead else set(peer.channels)
            assert {channel.number for channel in peer.client.connection.channels} == expected
        broker = self.broker.broker
        alive = [peer for peer in self.peers if not peer.dead]
        assert len(broker.connections) == len(alive)
        assert broker.connections.channel_count == sum(len(peer.channels) for peer in alive)

    @invariant()
    def queues_know_who_holds_what(self) -> None:
        channels = [channel for peer in self.peers for channel in peer.client.connection.channels]
        for queue in self.broker.vhost.queues.values():
            consumers = {consumer for channel in channels for consumer in channel.consumers.values()}
            assert set(queue.consumers) == {consumer for consumer in consumers if consumer.queue is queue}
            if any(channel.transaction for channel in channels):
                continue
            held = sum(holder.queue is queue for channel in channels for holder, _ in channel.unacked.held.values())
            assert queue.unacked_count == held

    # -- the model -----------------------------------------------------------------------------------------

    def _alive(self, who: int) -> Peer:
        """Return a client; open a new connection if the last one is closed."""
        if self.peers[who].dead:
            self.peers[who].client.abort()
            self.peers[who] = Peer(self.broker)
        return self.peers[who]

    def _channel(self, who: int, data: st.DataObject) -> int:
        """Return a channel that is open, or closed by the server; open one if there is none."""
        if not self._alive(who).channels:
            self._open(who, 1)
        number = data.draw(st.sampled_from(sorted(self.peers[who].channels)), "channel")
        if self.peers[who].channels[number] and not data.draw(RARELY, "stay closed"):
            assert self._on(self._send(who, method(number, commands.Channel.CloseOk)), number) == []
            self._open(who, number)
        return number

    def _open(self, who: int, number: int) -> None:
        assert self._on(self._send(who, method(number, commands.Channel.Open)), number) == [commands.Channel.OpenOk]
        self.peers[who].channels[number] = False

    def _request(self, who: int, kind: MethodType, data: st.DataObject) -> None:
        number = self._channel(who, data)
        arguments, replies = REQUESTS[kind]
        given = {name: data.draw(values, name) for name, values in arguments.items()}
        if given.get("delivery_tag") and not data.draw(RARELY, "any tag"):
            channels = {channel.number: channel for channel in self.peers[who].client.connection.channels}
            if not channels[number].unacked:
                return
            given["delivery_tag"] = data.draw(st.sampled_from(sorted(channels[number].unacked.held)), "tag")
        self._check_reply(who, number, self._send(who, method(number, kind, **given)), replies)

    def _send(self, who: int, octets: bytes) -> list[tuple[int, Method]]:
        """Send octets; return the received methods with their channels."""
        client = self.peers[who].client
        client.send(octets)
        return [(each.channel, methods.parse(each.payload)) for each in client.frames() if each.type == METHOD]

    def _on(self, came: list[tuple[int, Method]], number: int) -> list[MethodType]:
        """Return the methods received on a channel, except those that are always allowed."""
        for channel, each in came:
            assert channel == number or each.kind in UNASKED, each
        return [each.kind for channel, each in came if channel == number and each.kind not in UNASKED]

    def _check_reply(
        self, who: int, number: int, came: list[tuple[int, Method]], replies: tuple[MethodType, ...]
    ) -> None:
        """Check the reply to a request on a channel that is open, or closed by the server."""
        if self.peers[who].channels[number]:
            # What the last declared queue is comes even before whether the channel is open.
            late = [each for _, each in came if each.kind is commands.Channel.Close]
            assert self._on(came, number) == [each.kind for each in late]
            assert all(each.reply_text == "NOT_FOUND - no previously declared queue" for each in late)
        elif came and came[-1][1].kind is commands.Connection.Close:
            self._expect_connection_close(who, came, CONNECTION_CODES)
        elif any(each.kind is commands.Channel.Close for _, each in came):
            self._note_channel_close(who, came)
        else:
            kinds = self._on(came, number)
            assert len(kinds) == bool(replies)
            assert set(kinds) <= set(replies)

    def _expect_connection_close(self, who: int, came: list[tuple[int, Method]], codes: set[int]) -> None:
        channel, close = came[-1]
        assert (channel, close.kind) == (0, commands.Connection.Close), came
        assert close.reply_code in codes, close
        assert close.reply_text.startswith(ReplyCode(close.reply_code).name)
        peer = self.peers[who]
        peer.closing = True
        peer.channels.clear()
        assert peer.client.connection.state is ConnectionState.CLOSING

    def _note_channel_close(self, who: int, came: list[tuple[int, Method]]) -> None:
        closes = [(channel, each) for channel, each in came if each.kind is commands.Channel.Close]
        assert len(closes) == 1
        number, close = closes[0]
        assert close.reply_code in CHANNEL_CODES, close
        assert close.reply_text.startswith(ReplyCode(close.reply_code).name)
        assert self.peers[who].channels[number] is False
        self.peers[who].channels[number] = True

    def _follow(self, who: int, came: list[tuple[int, Method]], codes: set[int]) -> None:
        """After an arbitrary method, update the model from the server's reply, if that is valid."""
        peer = self.peers[who]
        if came and came[-1][1].kind is commands.Connection.Close:
            self._expect_connection_close(who, came, codes)
        elif any(each.kind is commands.Channel.Close for _, each in came):
            self._note_channel_close(who, came)
        # Methods that open and close take arguments that may just happen to be right.
        connection = peer.client.connection
        peer.closing = peer.closing or connection.state is ConnectionState.CLOSED
        peer.channels = {channel.number: channel.state is ChannelState.CLOSING for channel in connection.channels}

    def _read_unasked(self, who: int) -> None:
        """Process methods caused by the other client or by time."""
        frames = self.peers[who].client.frames()
        for each in frames:
            if each.type == METHOD:
                assert methods.parse(each.payload).kind in UNASKED


class ConnectionMachine(ConnectionModel):
    """The input of clients."""

    # -- what clients do -----------------------------------------------------------------------------------

    @rule(who=WHO, data=st.data())
    def open_channel(self, who: int, data: st.DataObject) -> None:
        free = sorted(set(CHANNELS) - set(self._alive(who).channels))
        if free:
            self._open(who, data.draw(st.sampled_from(free), "channel"))

    @rule(who=WHO, data=st.data())
    def close_channel(self, who: int, data: st.DataObject) -> None:
        number = self._channel(who, data)
        octets = method(number, commands.Channel.Close, reply_code=200, reply_text="", class_id=0, method_id=0)
        assert self._on(self._send(who, octets), number)[-1] is commands.Channel.CloseOk
        if not self.peers[who].channels[number]:
            del self.peers[who].channels[number]

    @rule(who=WHO)
    def answer_close(self, who: int) -> None:
        peer = self._alive(who)
        for number in [number for number, closed in peer.channels.items() if closed]:
            assert self._on(self._send(who, method(number, commands.Channel.CloseOk)), number) == []
            del peer.channels[number]

    @rule(who=WHO, kind=st.sampled_from(TOPOLOGY), data=st.data())
    def change_topology(self, who: int, kind: MethodType, data: st.DataObject) -> None:
        self._request(who, kind, data)

    @rule(who=WHO, kind=st.sampled_from(SETTLING), data=st.data())
    def settle(self, who: int, kind: MethodType, data: st.DataObject) -> None:
        self._request(who, kind, data)

    @rule(who=WHO, kind=st.sampled_from(OTHERS), data=st.data())
    def use(self, who: int, kind: MethodType, data: st.DataObject) -> None:
        self._request(who, kind, data)

    @rule(who=WHO, queue=QUEUES, tag=TAGS, no_ack=BITS, data=st.data())
    def consume(self, who: int, queue: str, tag: str, no_ack: bool, data: st.DataObject) -> None:
        number = self._channel(who, data)
        if any(tag in channel.consumers for channel in self.peers[who].client.connection.channels):
            tag = ""
        octets = method(number, commands.Basic.Consume, queue=queue, consumer_tag=tag, no_ack=no_ack)
        self._check_reply(who, number, self._send(who, octets), (commands.Basic.ConsumeOk,))

    @rule(who=WHO, key=QUEUES, exchange=EXCHANGES, mandatory=BITS, size=st.integers(0, 9), data=st.data())
    def publish_something(
        self, who: int, key: str, exchange: str, mandatory: bool, size: int, data: st.DataObject
    ) -> None:
        number = self._channel(who, data)
        octets = publish(number, key, bytes(size), exchange=exchange, mandatory=mandatory)
        self._check_reply(who, number, self._send(who, octets), ())

    # -- what they should not ------------------------------------------------------------------------------

    @rule(who=WHO, number=st.integers(0, 3), index=st.sampled_from(sorted(METHODS)), go=NOT_ALWAYS, data=st.data())
    def any_method(self, who: int, number: int, index: int, go: bool, data: st.DataObject) -> None:
        """Send any method with arbitrary arguments."""
        self._alive(who)
        if not go:
            return
        payload = index.to_bytes(4, "big") + data.draw(st.one_of(st.binary(max_size=12), st.just(bytes(12))))
        # Methods with content are refused once it is there.
        behind = frame(HEADER, number, content.header(0)) if number and index in FOREIGN_CONTENT else b""
        # On channel 0, arguments that cannot be decoded are an internal error, as in RabbitMQ.
        codes = CONNECTION_CODES if number else CONNECTION_CODES | {541}
        self._follow(who, self._send(who, frame(METHOD, number, payload) + behind), codes)

    @rule(who=WHO, kind=st.sampled_from(MISTAKES), data=st.data())
    def mistake(self, who: int, kind: str, data: st.DataObject) -> None:
        number = self._channel(who, data)
        if kind == "open twice":
            self._expect_connection_close(who, self._send(who, method(number, commands.Channel.Open)), {504})
        elif kind == "not open":
            octets = data.draw(st.sampled_from([method(9, commands.Channel.CloseOk), publish(9, "a", b"x")]))
            self._expect_connection_close(who, self._send(who, octets), {504})
        elif kind == "half":
            # Frame assembly comes first, whatever state the channel is in.
            half = publish(number, "a", bytes(30))[: data.draw(st.sampled_from([-38, -38 - 22]))]
            came = self._send(who, half + method(number, commands.Basic.Qos))
            self._expect_connection_close(who, came, {505})
        elif kind == "unknown":
            assert self._send(who, frame(METHOD, number, b"\x00\x63\x00\x01")) == []
            assert self.peers[who].client.transport.closed
        elif kind == "close-ok" and not self.peers[who].channels[number]:
            self._expect_connection_close(who, self._send(who, method(number, commands.Channel.CloseOk)), {503})

    @rule(who=WHO, octets=GARBAGE, go=NOT_ALWAYS)
    def garbage(self, who: int, octets: bytes, go: bool) -> None:
        self._alive(who)
        if go:
            self._expect_connection_close(who, self._send(who, octets), {501, 505})

    @rule(who=WHO, octets=LATE)
    def speak_after_the_end(self, who: int, octets: bytes) -> None:
        peer = self.peers[who]
        if peer.dead:
            peer.client.send(octets)
            assert peer.client.frames() == []

    @rule(who=WHO, politely=BITS, go=NOT_ALWAYS)
    def leave(self, who: int, politely: bool, go: bool) -> None:
        peer = self.peers[who]
        if not go:
            return
        if politely and not peer.dead:
            close = method(0, commands.Connection.Close, reply_code=200, reply_text="", class_id=0, method_id=0)
            peer.client.send(close)
            assert peer.client.methods()[-1].kind is commands.Connection.CloseOk
        peer.client.abort()

    @rule(seconds=st.sampled_from([0.1, 3.1, 40.0]))
    def wait(self, seconds: float) -> None:
        self.broker.loop.advance(seconds)


class _ErrorLog(logging.Handler):
    """Log handler that collects records with a traceback."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.messages: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info:
            self.messages.append(self.format(record))


ConnectionMachine.TestCase.settings = settings(max_examples=examples(150), stateful_step_count=60)
TestConnectionMachine = ConnectionMachine.TestCase
