"""Long work for one event, or many events in one read: other clients are served in between."""

from __future__ import annotations

import pytest
from pamqp import commands

from leveret import compilation
from leveret.broker.core.exchanges.base import Exchange
from leveret.broker.core.scheduling import turn
from leveret.policies.policy import Policy
from leveret.protocol.field_table import FieldTable
from tests.support.long_routes import LONG_KEY, bind_wild
from tests.support.memory_broker import MemoryBroker, MemoryClient, kinds, method, publish
from tests.support.queue_content import contents
from tests.support.stepping_clock import SteppingClock

#: Compiled modules call each other directly. CI runs these tests in pure Python, too.
skip_where_compiled = pytest.mark.skipif(
    compilation.form() == "compiled", reason="functions are replaced in pure Python only"
)


@pytest.fixture
def broker() -> MemoryBroker:
    """A broker whose clock advances by a millisecond with each reading."""
    return MemoryBroker(SteppingClock())


def step(broker: MemoryBroker) -> None:
    """Run one iteration of the event loop."""
    callbacks, broker.loop._soon = broker.loop._soon, []
    for callback in callbacks:
        callback()


def steps_until(broker: MemoryBroker, client: MemoryClient) -> int:
    """Count the iterations of the event loop until a client receives something."""
    for count in range(1, 2000):
        step(broker)
        if client.transport.written:
            return count
    raise AssertionError("nothing comes")


class TestARouteThatTakesLong:
    KEY = LONG_KEY

    def test_other_connections_are_served_in_between(self, broker: MemoryBroker, client: MemoryClient) -> None:
        bind_wild(client, 6)
        other = broker.open()
        client.feed(
            publish(1, self.KEY, b"m", exchange="amq.topic")
            + method(1, commands.Queue.Declare, queue="q", passive=True)
        )
        assert not client.transport.reading
        other.feed(method(1, commands.Queue.Declare, queue="other"))
        assert steps_until(broker, other) <= 3
        assert not client.transport.written
        broker.loop.run()
        assert client.only(commands.Queue.DeclareOk).message_count == 1
        assert client.transport.reading

    def test_confirms_and_order_are_unchanged(self, broker: MemoryBroker, client: MemoryClient) -> None:
        bind_wild(client, 6)
        client.call(1, commands.Confirm.Select)
        keys = [self.KEY, "short", self.KEY + ".c", self.KEY]
        client.send(*(publish(1, key, str(place).encode(), exchange="amq.topic") for place, key in enumerate(keys)))
        assert client.methods()[-1].delivery_tag == 4
        entries, _ = broker.vhost.queues["q"].store.take(10, 1 << 30)
        assert [message.body for _, message, _ in entries] == [b"0", b"1", b"2", b"3"]

    def test_messages_that_get_a_route_each(self, broker: MemoryBroker, client: MemoryClient) -> None:
        bind_wild(client, 6)
        client.call(1, commands.Queue.Declare, queue="other")
        client.call(1, commands.Exchange.Declare, exchange="any", exchange_type="x-random")
        client.call(1, commands.Exchange.Bind, destination="any", source="amq.topic", routing_key="#")
        for number, queue in enumerate(("q", "other", "other")):
            client.call(1, commands.Queue.Bind, queue=queue, exchange="any", routing_key=str(number))
        client.call(1, commands.Confirm.Select)
        client.send(*(publish(1, self.KEY, b"%02d" % number, exchange="amq.topic") for number in range(20)))
        assert client.methods()[-1].delivery_tag == 20
        # All bindings of q match, too, so it gets each of them once.
        entries, _ = broker.vhost.queues["q"].store.take(100, 1 << 30)
        assert [message.body for _, message, _ in entries] == [b"%02d" % number for number in range(20)]
        assert 1 <= broker.vhost.queues["other"].store.ready_count <= 20

    def test_a_change_during_the_search_applies_to_the_next_publish(
        self, broker: MemoryBroker, client: MemoryClient
    ) -> None:
        bind_wild(client, 6)
        other = broker.open()
        other.call(1, commands.Queue.Declare, queue="late")
        wild = publish(1, self.KEY, b"m", exchange="amq.topic")
        client.feed(wild)
        other.call(1, commands.Queue.Bind, queue="late", exchange="amq.topic", routing_key="#")
        client.send(wild)
        assert broker.vhost.queues["q"].store.ready_count == 2
        # Whether the first one finds it depends on how far the search has come.
        assert broker.vhost.queues["late"].store.ready_count in (1, 2)

    def test_closing_the_connection_cancels_the_search(self, broker: MemoryBroker, client: MemoryClient) -> None:
        bind_wild(client, 6)
        client.feed(publish(1, self.KEY, b"m", exchange="amq.topic"))
        client.abort()
        assert broker.loop.is_idle
        assert broker.vhost.queues["q"].store.ready_count == 0


class TestKeysThatHaveNoSay:
    @skip_where_compiled
    @pytest.mark.parametrize("exchange", ["amq.headers", "amq.fanout"])
    def test_a_message_with_thousands_of_keys_is_searched_once(
        self, broker: MemoryBroker, client: MemoryClient, exchange: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        client.call(1, commands.Queue.Bind, queue="q", exchange=exchange)
        found = type(broker.vhost.topology.exchanges[exchange])
        looks: list[str] = []
        destinations = found.destinations

        def counted(self: Exchange, key: str, headers: FieldTable) -> object:
            looks.append(key)
            return destinations(self, key, headers)

        monkeypatch.setattr(found, "destinations", counted)
        copies = [("CC", "A", [("S", f"{number}") for number in range(6000)])]
        client.send(publish(1, "k", b"m", exchange=exchange, headers=copies))
        assert looks == ["k"]
        assert broker.vhost.queues["q"].store.ready_count == 1


class TestManyEventsAtOnce:
    def test_they_are_handled_in_slices(self, broker: MemoryBroker, client: MemoryClient) -> None:
        other = broker.open()
        names = [f"n{number}" for number in range(500)]
        client.feed(b"".join(method(1, commands.Queue.Declare, queue=name) for name in names))
        assert 0 < len(broker.vhost.queues) < 200
        assert not client.transport.reading
        other.feed(method(1, commands.Queue.Declare, queue="other"))
        assert steps_until(broker, other) <= 3
        broker.loop.run()
        assert [came.queue for came in client.methods()] == names
        assert client.transport.reading


class TestAQueueThatShrinks:
    @pytest.mark.parametrize(
        ("asked", "answer"),
        [
            (method(1, commands.Queue.Declare, queue="q", passive=True), commands.Queue.DeclareOk),
            (method(1, commands.Queue.Purge, queue="q"), commands.Queue.PurgeOk),
            (method(1, commands.Queue.Delete, queue="q"), commands.Queue.DeleteOk),
            (method(1, commands.Basic.Get, queue="q", no_ack=True), commands.Basic.GetOk),
        ],
        ids=["declare", "purge", "delete", "get"],
    )
    def test_only_the_requesting_client_waits(
        self, broker: MemoryBroker, client: MemoryClient, asked: bytes, answer: type
    ) -> None:
        client.send(publish(1, "q", b"m") * 10_000)
        other = broker.open()
        broker.vhost.policies.set(Policy("p", "^q", {"max-length": 10}, 0, "queues"), operator=False)
        client.feed(asked)
        other.feed(method(1, commands.Queue.Declare, queue="other"))
        assert steps_until(broker, other) <= 3
        assert not client.transport.written
        broker.loop.run()
        (came,) = client.methods()
        assert kinds([came]) == [answer]
        assert came.message_count == (9 if answer is commands.Basic.GetOk else 10)


QUORUM = [("x-queue-type", "S", "quorum")]
MANY = 20_000


class TestManyUnackedMessagesThatReturn:
    @pytest.fixture(params=["classic", "quorum"])
    def holder(self, broker: MemoryBroker, request: pytest.FixtureRequest) -> MemoryClient:
        """A client with all messages of the queue unacked, but for one that arrived later."""
        opened = broker.open()
        arguments = QUORUM if request.param == "quorum" else []
        opened.call(1, commands.Queue.Declare, queue="u", durable=True, arguments=arguments)
        opened.send(publish(1, "u", b"old") * MANY)
        opened.send(method(1, commands.Basic.Consume, queue="u", consumer_tag="c"))
        opened.transport.take()
        opened.call(1, commands.Basic.Cancel, consumer_tag="c")
        opened.send(publish(1, "u", b"new"))
        assert broker.vhost.queues["u"].unacked_count == MANY
        return opened

    LEAVING = pytest.mark.parametrize(
        "leave",
        [
            method(1, commands.Channel.Close, reply_code=200, reply_text="", class_id=0, method_id=0),
            method(0, commands.Connection.Close, reply_code=200, reply_text="", class_id=0, method_id=0),
            method(1, commands.Basic.Nack, delivery_tag=0, multiple=True, requeue=True),
            method(1, commands.Basic.Recover, requeue=True),
        ],
        ids=["channel", "connection", "nack", "recover"],
    )

    @LEAVING
    def test_others_are_served_in_between(self, broker: MemoryBroker, holder: MemoryClient, leave: bytes) -> None:
        other, queue = broker.open(), broker.vhost.queues["u"]
        holder.feed(leave)
        other.feed(method(1, commands.Queue.Declare, queue="other"))
        assert steps_until(broker, other) <= 3
        assert 0 < queue.unacked_count < MANY
        assert queue.store.ready_count + queue.unacked_count == MANY + 1
        broker.loop.run()
        assert (queue.store.ready_count, queue.unacked_count) == (MANY + 1, 0)

    def test_no_newer_message_overtakes_them(self, broker: MemoryBroker, holder: MemoryClient) -> None:
        other = broker.open()
        other.send(method(1, commands.Basic.Qos, prefetch_count=3))
        other.send(method(1, commands.Basic.Consume, queue="u", consumer_tag="o"))
        other.send(method(1, commands.Basic.Ack, delivery_tag=1))
        other.transport.take()
        holder.send(method(1, commands.Channel.Close, reply_code=200, reply_text="", class_id=0, method_id=0))
        delivered = [each for each in other.methods() if each.kind is commands.Basic.Deliver]
        assert len(delivered) == 3
        assert all(each.redelivered for each in delivered)

    def test_basic_get_waits_for_them(self, broker: MemoryBroker, holder: MemoryClient) -> None:
        other = broker.open()
        holder.feed(method(1, commands.Channel.Close, reply_code=200, reply_text="", class_id=0, method_id=0))
        other.feed(method(1, commands.Basic.Get, queue="u", no_ack=True))
        broker.loop.run()
        got = other.only(commands.Basic.GetOk)
        assert (got.redelivered, got.message_count) == (True, MANY)

    def test_a_later_publish_of_the_same_client_follows_them(self, broker: MemoryBroker, holder: MemoryClient) -> None:
        holder.feed(
            method(1, commands.Basic.Nack, delivery_tag=0, multiple=True, requeue=True) + publish(1, "u", b"last")
        )
        assert not holder.transport.reading
        broker.loop.run()
        assert holder.transport.reading
        entries, _ = broker.vhost.queues["u"].store.take(2 * MANY, 1 << 30)
        assert len(entries) == MANY + 2
        assert entries[-1][1].body == b"last"

    def test_a_full_queue_refuses_publishes_meanwhile(self, broker: MemoryBroker) -> None:
        opened, other = broker.open(), broker.open()
        arguments = [("x-max-length", "l", MANY), ("x-overflow", "S", "reject-publish")]
        opened.call(1, commands.Queue.Declare, queue="u", arguments=arguments)
        opened.send(publish(1, "u", b"old") * MANY)
        opened.send(method(1, commands.Basic.Consume, queue="u", consumer_tag="c"))
        opened.transport.take()
        other.call(1, commands.Confirm.Select)
        opened.feed(method(0, commands.Connection.Close, reply_code=200, reply_text="", class_id=0, method_id=0))
        other.send(publish(1, "u", b"more"))
        assert kinds(other.methods()) == [commands.Basic.Nack]
        assert broker.vhost.queues["u"].store.ready_count == MANY

    def test_an_exclusive_queue_waits_with_its_deletion(self, broker: MemoryBroker) -> None:
        owner, other = broker.open(), broker.open()
        owner.call(1, commands.Queue.Declare, queue="own", exclusive=True)
        owner.send(publish(1, "own", b"m") * MANY)
        owner.send(method(1, commands.Basic.Consume, queue="own", consumer_tag="c"))
        owner.transport.lose()
        other.feed(method(1, commands.Queue.Declare, queue="other"))
        assert steps_until(broker, other) <= 3
        assert "own" in broker.vhost.queues
        broker.loop.advance(1)
        assert "own" not in broker.vhost.queues


@pytest.mark.parametrize("requested", [commands.Basic.Ack, commands.Basic.Nack])
def test_many_messages_that_are_settled_by_one_method(
    broker: MemoryBroker, client: MemoryClient, requested: type
) -> None:
    other, queue = broker.open(), broker.vhost.queues["q"]
    other.send(publish(1, "q", b"m") * MANY)
    client.send(method(1, commands.Basic.Consume, queue="q", consumer_tag="c"))
    client.transport.take()
    extra = {} if requested is commands.Basic.Ack else {"requeue": False}
    client.feed(method(1, requested, delivery_tag=MANY, multiple=True, **extra))
    other.feed(method(1, commands.Queue.Declare, queue="other"))
    assert steps_until(broker, other) <= 3
    assert 0 < queue.unacked_count < MANY
    broker.loop.run()
    assert (queue.store.ready_count, queue.unacked_count) == (0, 0)
    assert client.call(1, commands.Queue.Declare, queue="q", passive=True)[0].message_count == 0


class TestACommitOfManyMessages:
    @pytest.fixture
    def client(self, broker: MemoryBroker) -> MemoryClient:
        opened = broker.open()
        opened.call(1, commands.Queue.Declare, queue="q")
        opened.call(1, commands.Tx.Select)
        return opened

    COMMIT = method(1, commands.Tx.Commit)

    def hold_publishes(self, client: MemoryClient) -> None:
        # The header differs from the one before, so each is a run of its own.
        pair = publish(1, "q", b"a", priority=1) + publish(1, "q", b"b", priority=2)
        client.send(pair * 300)

    def test_others_are_served_between_publishes(self, broker: MemoryBroker, client: MemoryClient) -> None:
        self.hold_publishes(client)
        other, queue = broker.open(), broker.vhost.queues["q"]
        client.feed(self.COMMIT)
        other.feed(method(1, commands.Queue.Declare, queue="other"))
        assert steps_until(broker, other) <= 3
        assert 0 < queue.store.ready_count < 600
        assert not client.transport.written
        broker.loop.run()
        client.only(commands.Tx.CommitOk)
        assert queue.store.ready_count == 600

    def test_others_are_served_between_acknowledgements(self, broker: MemoryBroker, client: MemoryClient) -> None:
        other, queue = broker.open(), broker.vhost.queues["q"]
        other.send(publish(1, "q", b"m") * 100_000)
        client.send(method(1, commands.Basic.Consume, queue="q", consumer_tag="c"))
        client.send(method(1, commands.Basic.Ack, delivery_tag=0, multiple=True))
        client.transport.take()
        client.feed(self.COMMIT)
        other.feed(method(1, commands.Queue.Declare, queue="other"))
        assert steps_until(broker, other) <= 3
        assert 0 < queue.unacked_count < 100_000
        broker.loop.run()
        client.only(commands.Tx.CommitOk)
        assert (queue.store.ready_count, queue.unacked_count) == (0, 0)

    def test_messages_that_are_requeued(self, broker: MemoryBroker, client: MemoryClient) -> None:
        other, queue = broker.open(), broker.vhost.queues["q"]
        other.send(publish(1, "q", b"m") * MANY)
        client.send(method(1, commands.Basic.Consume, queue="q", consumer_tag="c"))
        client.send(method(1, commands.Basic.Cancel, consumer_tag="c"))
        client.send(method(1, commands.Basic.Nack, delivery_tag=0, multiple=True, requeue=True))
        client.transport.take()
        client.feed(self.COMMIT)
        other.feed(method(1, commands.Queue.Declare, queue="other"))
        assert steps_until(broker, other) <= 3
        assert 0 < queue.unacked_count < MANY
        broker.loop.run()
        client.only(commands.Tx.CommitOk)
        assert queue.store.ready_count == MANY

    def test_a_commit_goes_on_if_the_connection_is_lost(self, broker: MemoryBroker, client: MemoryClient) -> None:
        self.hold_publishes(client)
        client.feed(self.COMMIT)
        client.abort()
        broker.loop.run()
        assert broker.vhost.queues["q"].store.ready_count == 600

    def test_a_refused_publish_is_told_at_the_end(self, broker: MemoryBroker, client: MemoryClient) -> None:
        arguments = [("x-max-length", "l", 599), ("x-overflow", "S", "reject-publish")]
        client.call(1, commands.Queue.Declare, queue="r", arguments=arguments)
        client.send((publish(1, "r", b"a", priority=1) + publish(1, "r", b"b", priority=2)) * 300)
        client.send(self.COMMIT)
        assert client.only(commands.Channel.Close).reply_code == 406
        assert broker.vhost.queues["r"].store.ready_count == 599


def test_the_turn_has_the_slices() -> None:
    assert not turn.Turn(lambda _: None).slice().is_over()


def test_the_exclusive_queues_of_a_client_that_leaves(broker: MemoryBroker, client: MemoryClient) -> None:
    owner, other = broker.open(), broker.open()
    for number in range(300):
        owner.send(method(1, commands.Queue.Declare, queue=f"own{number}", exclusive=True))
    owner.transport.lose()
    step(broker)
    assert len(broker.vhost.queues) > 200
    assert len(other.call(1, commands.Queue.Declare, queue="other")) == 1
    broker.loop.advance(0)
    assert sorted(broker.vhost.queues) == ["other", "q"]
    assert broker.vhost._owned == {}


class TestAFanoutToManyFullQueues:
    QUEUES = 30

    @pytest.fixture
    def client(self, broker: MemoryBroker) -> MemoryClient:
        opened = broker.open()
        opened.call(1, commands.Queue.Declare, queue="dead")
        arguments = [
            ("x-max-length", "l", 10),
            ("x-dead-letter-exchange", "S", ""),
            ("x-dead-letter-routing-key", "S", "dead"),
        ]
        for number in range(self.QUEUES):
            opened.call(1, commands.Queue.Declare, queue=f"q{number}", arguments=arguments)
            opened.call(1, commands.Queue.Bind, queue=f"q{number}", exchange="amq.fanout")
        opened.call(1, commands.Confirm.Select)
        return opened

    def counts(self, broker: MemoryBroker) -> set[tuple[int, int]]:
        queues = [broker.vhost.queues[f"q{number}"] for number in range(self.QUEUES)]
        return {(queue.store.ready_count, queue.counters.published) for queue in queues}

    @pytest.mark.parametrize("varied", [False, True])
    def test_other_connections_are_served_in_between(
        self, broker: MemoryBroker, client: MemoryClient, varied: bool
    ) -> None:
        other = broker.open()
        identities = range(1000, 1100) if varied else [0] * 100
        sent = [publish(1, "", b"m", exchange="amq.fanout", message_id=str(number)) for number in identities]
        client.feed(b"".join(sent) + publish(1, "dead", b"after"))
        other.feed(method(1, commands.Queue.Declare, queue="other"))
        assert steps_until(broker, other) <= 3
        assert not client.transport.written
        assert (0, 0) in self.counts(broker)
        broker.loop.advance(0)
        assert self.counts(broker) == {(10, 100)}
        acks = [each for each in client.methods() if each.kind is commands.Basic.Ack]
        assert acks[-1].delivery_tag == 101
        entries, _ = broker.vhost.queues["dead"].store.take(10_000, 1 << 30)
        assert len(entries) == self.QUEUES * 90 + 1

    def test_it_goes_on_if_the_connection_is_lost(self, broker: MemoryBroker, client: MemoryClient) -> None:
        client.feed(publish(1, "", b"m", exchange="amq.fanout") * 100)
        step(broker)
        client.abort()
        broker.loop.advance(0)
        assert self.counts(broker) == {(10, 100)}

    def test_dead_letters_to_many_full_queues(self, broker: MemoryBroker, client: MemoryClient) -> None:
        arguments = [("x-max-length", "l", 0), ("x-dead-letter-exchange", "S", "amq.fanout")]
        client.call(1, commands.Queue.Declare, queue="source", arguments=arguments)
        other = broker.open()
        client.feed(publish(1, "source", b"m") * 100)
        other.feed(method(1, commands.Queue.Declare, queue="other"))
        assert steps_until(broker, other) <= 3
        assert (0, 0) in self.counts(broker)
        broker.loop.advance(0)
        assert self.counts(broker) == {(10, 100)}


def test_dead_letters_of_one_turn_are_bounded() -> None:
    # They are written at its end. The clock stands still, so no slice ends for want of time.
    broker = MemoryBroker()
    client, other = broker.open(), broker.open()
    client.call(1, commands.Queue.Declare, queue="dead")
    arguments = [("x-dead-letter-exchange", "S", ""), ("x-dead-letter-routing-key", "S", "dead")]
    client.call(1, commands.Queue.Declare, queue="q", arguments=arguments)
    client.send(
        publish(1, "q", b"head", delivery_mode=2) + publish(1, "q", b"m", delivery_mode=2, expiration="1") * 20_000
    )
    broker.loop.advance(1)
    client.feed(method(1, commands.Basic.Get, queue="q", no_ack=True))
    other.feed(method(1, commands.Queue.Declare, queue="other"))
    assert steps_until(broker, other) <= 3
    assert 0 < broker.vhost.queues["dead"].store.ready_count < 20_000
    broker.loop.advance(0)
    assert broker.vhost.queues["dead"].store.ready_count == 20_000


def test_a_new_binding_gets_a_long_history_in_slices(broker: MemoryBroker) -> None:
    count = 600
    client, other = broker.open(), broker.open()
    length = [("x-recent-history-length", "I", count)]
    client.call(1, commands.Exchange.Declare, exchange="h", exchange_type="x-recent-history", arguments=length)
    for name in ("q", "o"):
        client.call(1, commands.Queue.Declare, queue=name)
    client.send(*[publish(1, "", b"%d" % number, exchange="h") for number in range(count)])
    client.methods()
    bind = method(1, commands.Queue.Bind, queue="q", exchange="h", routing_key="")
    client.feed(bind + publish(1, "q", b"later"))
    other.feed(publish(1, "o", b"served"))
    queues = broker.vhost.queues
    assert 0 < queues["q"].store.ready_count < count
    assert queues["o"].store.ready_count == 1
    broker.loop.run()
    # The client's own methods wait until it has the whole history.
    assert kinds(client.methods()) == [commands.Queue.BindOk]
    assert contents(queues["q"]) == [*map(str, range(count)), "later"]


def test_a_message_behind_which_very_many_have_expired(broker: MemoryBroker) -> None:
    # Dead letters have to be made, so messages leave one by one.
    count, letters = 6000, [("x-dead-letter-exchange", "S", ""), ("x-dead-letter-routing-key", "S", "letters")]
    client, other = broker.open(), broker.open()
    client.call(1, commands.Queue.Declare, queue="q", arguments=letters)
    for name in ("letters", "o"):
        client.call(1, commands.Queue.Declare, queue=name)
    expiring = [publish(1, "q", b"%d" % number, expiration="100") for number in range(count)]
    client.send(publish(1, "q", b"head"), *expiring)
    broker.loop.advance(1)
    queue, served = broker.vhost.queues["q"], broker.vhost.queues["o"]
    assert queue.store.ready_count == count + 1
    get = method(1, commands.Basic.Get, queue="q", no_ack=True)
    client.feed(get + publish(1, "o", b"later"))
    other.feed(publish(1, "o", b"first"))
    assert 0 < queue.store.ready_count < count
    assert served.store.ready_count == 1
    broker.loop.run()
    (answer,) = client.methods()
    assert kinds([answer]) == [commands.Basic.GetOk]
    assert answer.message_count == 0
    # The client's later methods wait for the answer.
    assert served.store.ready_count == 2
