"""Random histories of several bounded queues, compared after each step with a model that works message by message."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, Final

from hypothesis import assume, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from leveret.broker.core.queues.classic_queue import ClassicQueue
from leveret.broker.core.queues.queue import Holder
from leveret.policies.policy import Policy
from leveret.protocol import properties
from leveret.protocol.field_table import FieldTable, FieldValue, find, longstr, plain_values
from leveret.protocol.properties import Properties, encode_content_header, encode_text
from leveret.protocol.short_strings import encode_shortstr
from leveret.storage.interface import Entry, MessageStore
from leveret.storage.message import Envelope, Message
from leveret.storage.stores.priority_store import PriorityStore, ReturnsStore
from tests.support.examples import examples
from tests.support.fake_consumer import PLENTY, FakeConsumer
from tests.support.manual_loop import ManualLoop
from tests.support.queue_model import Content, Copy, Death, ModelBroker, ModelConsumer, ModelQueue
from tests.support.queues import AnyHolder, declare, new_vhost

MESSAGE_ID: Final = 0x0080
#: Name and kind. The fanout exchange leads to the last one only: where dead letters take two ways to one queue, the
#: order in which they arrive there depends on how long each way takes.
QUEUES: Final = (
    ("one", "classic"),
    ("two", "classic"),
    ("high", "priority"),
    ("counted", "quorum"),
    ("letters", "classic"),
)
NAMES: Final = tuple(name for name, _ in QUEUES)
FANOUT: Final = ("letters-fanout", ("letters",))

#: Queue TTLs of all queues differ and no sum of them is another, so that no two queues have something due at once,
#: in which case either may come first.
TTLS: Final = {name: (0, 11 * 3**position, 20 * 3**position) for position, name in enumerate(NAMES)}


def limits(name: str) -> dict[str, st.SearchStrategy[Any]]:
    return {
        "max-length": st.sampled_from((0, 1, 1, 2, 3, 5)),
        "max-length-bytes": st.sampled_from((0, 1, 4, 9, 9, 15)),
        "length-counts": st.sampled_from(("ready", "all")),
        "message-ttl": st.sampled_from(TTLS[name]),
    }


def definitions(name: str) -> st.SearchStrategy[dict[str, Any]]:
    """What arguments and policies may say."""
    overflow = {"overflow": st.sampled_from(("drop-head", "reject-publish", "reject-publish-dlx"))}
    # A routing key argument is refused where no exchange stands beside it.
    keyed = {"dead-letter-routing-key": st.sampled_from((*NAMES, "nobody"))}
    exchange = {"dead-letter-exchange": st.sampled_from(("", "", FANOUT[0], "missing"))}
    return st.one_of(
        st.fixed_dictionaries({}, optional=limits(name) | overflow),
        st.fixed_dictionaries(exchange, optional=limits(name) | overflow | keyed),
    )


def arguments_of(kind: str, values: dict[str, Any]) -> FieldTable:
    """A queue's arguments from policy keys and values."""
    table = [
        (f"x-{key}", longstr(value) if isinstance(value, str) else FieldValue("l", value))
        for key, value in values.items()
    ]
    return (*table, ("x-queue-type", longstr("quorum" if kind == "quorum" else "classic")))


def published(label: str, name: str, priority: int, expiration: int | None, size: int) -> Envelope:
    """The envelope of a run published to a queue by the default exchange."""
    values = {MESSAGE_ID: encode_text(label)}
    if priority:
        values[properties.PRIORITY] = bytes((priority,))
    if expiration is not None:
        values[properties.EXPIRATION] = encode_text(str(expiration))
    route = encode_shortstr("") + encode_shortstr(name)
    return Envelope(route, encode_content_header(size, values), False, priority, expiration)


class Reader:
    """Turns the broker's messages into the model's contents."""

    def __init__(self) -> None:
        self._known: dict[Envelope, Content] = {}

    def read(self, message: Message, redelivered: bool) -> tuple[Content, bool, int]:
        """Content, redelivered, delivery count (0 where there is none)."""
        envelope = message.envelope
        count = envelope.delivery_count
        if envelope not in self._known:
            self._known[envelope] = self._read(envelope)
        content = self._known[envelope]
        body = message.body.decode()
        if count is not None:
            assert find(Properties(envelope.header).headers(), "x-delivery-count") == FieldValue("l", count)
        return Content(content.label, body, *_rest(content)), redelivered, count or 0

    def _read(self, envelope: Envelope) -> Content:
        header = Properties(envelope.header)
        split = 1 + envelope.route[0]
        exchange, key = envelope.route[1:split].decode(), envelope.route[split + 1 :].decode()
        expiration = header.text(properties.EXPIRATION)
        assert envelope.expiration_ms == (None if expiration is None else int(expiration))
        assert envelope.priority == header.octet(properties.PRIORITY, 0)
        deaths = find(header.headers(), "x-death")
        read = () if deaths is None else tuple(_death(plain_values(entry.value)) for entry in deaths.value)
        return Content(
            header.text(MESSAGE_ID) or "", "", exchange, key, envelope.priority, envelope.expiration_ms, read
        )


def _rest(content: Content) -> tuple[Any, ...]:
    return content.exchange, content.key, content.priority, content.expiration, content.deaths


def _death(entry: dict[str, Any]) -> Death:
    (key,) = (value.value.decode() for value in entry["routing-keys"])
    return Death(entry["queue"], entry["reason"], entry["count"], entry["exchange"], key)


def waiting(store: MessageStore) -> list[tuple[Message, bool]]:
    """The ready messages of a store, with whether they were delivered before, without taking them."""
    if isinstance(store, PriorityStore):
        levels = sorted(store.levels.items(), key=lambda each: _rank(store, each[0]), reverse=True)
        return [each for _, level in levels for each in waiting(level)]
    found = [each for each in store.ordered_levels()[0][1].look(0, 1 << 30, 1 << 60).seen if each.is_ready]
    return [(each.message, each.redelivered or each.message.envelope.delivery_count is not None) for each in found]


def _rank(store: PriorityStore, level: int) -> tuple[int, bool]:
    """The priority of a level, and whether it is that of returned messages, which come first."""
    if isinstance(store, ReturnsStore) and level >= store.first_returned:
        return level - store.first_returned, True
    return level, False


class Pair:
    """A consumer of the broker and the model's; or, of one queue, who holds what came by basic.get.

    Attributes:
        taken: What the broker's one got.
        held: What it has not settled, oldest first.
    """

    def __init__(
        self, queue: ClassicQueue, reader: Reader, room: int = 0, no_ack: bool = False, priority: int = 0
    ) -> None:
        self.real: AnyHolder = Holder(queue)
        self.model = ModelConsumer(room, no_ack, priority)
        self.taken: list[tuple[Content, bool, int]] = []
        self.held: list[Entry] = []
        self._reader = reader

    def note(self, entry: Entry) -> None:
        """Remember what came."""
        self.taken.append(self._reader.read(entry[1], entry[2]))


class Recorder(FakeConsumer):
    """A consumer that tells its pair what it gets."""

    def __init__(self, pair: Pair, room: int, no_ack: bool, priority: int) -> None:
        super().__init__(pair.real.queue, "c", room, no_ack, priority=priority)
        self._pair = pair
        self.held = pair.held
        pair.real = self

    def deliver(self, entries: Sequence[Entry], body_bytes: int) -> None:
        super().deliver(entries, body_bytes)
        for entry in entries:
            self._pair.note(entry)


class Side:
    """One queue of the broker and the model's."""

    def __init__(self, real: ClassicQueue, model: ModelQueue, reader: Reader) -> None:
        self.real = real
        self.model = model
        self.consumers: list[Pair] = []
        self.left: list[Pair] = []
        self.getter = Pair(real, reader)

    def holders(self) -> list[Pair]:
        """All who hold messages."""
        return [pair for pair in (*self.consumers, *self.left, self.getter) if pair.held]


class BoundedQueues(RuleBasedStateMachine):
    """Five queues with limits that dead-letter to each other; the turn ends with each step."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = ManualLoop()
        self.vhost = new_vhost(self.loop)
        self.broker = ModelBroker(FANOUT)
        self.reader = Reader()
        self.sides: dict[str, Side] = {}
        self.policies: dict[tuple[str, bool], dict[str, Any]] = {}
        self.runs = 0
        #: Messages settled by being sent, a queue.
        self.sent_away: Counter[str] = Counter()

    @initialize(data=st.data())
    def declare(self, data: st.DataObject) -> None:
        for name, kind in QUEUES:
            values = data.draw(definitions(name), label=name)
            if kind == "quorum":
                values["delivery-limit"] = data.draw(st.integers(0, 3))
            if kind == "priority":
                values["max-priority"] = 3
            if data.draw(st.booleans(), label="counts returns"):
                values["redelivery-limit"] = data.draw(st.integers(0, 3))
            real = declare(self.vhost, name, arguments=arguments_of(kind, values))
            model = self.broker.queues[name] = ModelQueue(name, kind, values)
            self.sides[name] = Side(real, model, self.reader)
        exchange = self.vhost.topology.declare_exchange(FANOUT[0], "fanout", True, False, False, ())
        for name in FANOUT[1]:
            self.vhost.topology.bind(exchange, self.sides[name].real, "", ())

    # -- what may happen -----------------------------------------------------------------------------------

    @rule(
        names=st.lists(st.sampled_from(NAMES), min_size=1, max_size=2, unique=True),
        count=st.integers(1, 7),
        size=st.sampled_from((0, 1, 1, 3, 4, 10, 16)),
        priority=st.sampled_from((0, 0, 1, 3, 9)),
        expiration=st.sampled_from((None, None, None, 0, 7, 50)),
    )
    def publish(self, names: list[str], count: int, size: int, priority: int, expiration: int | None) -> None:
        self.runs += 1
        label = str(self.runs)
        envelope = published(label, names[0], priority, expiration, size)
        bodies = [str(number).zfill(size)[:size] for number in range(count)]
        messages = [Message(envelope, body.encode()) for body in bodies]
        for name in names:
            # Each run has a microsecond of its own in each queue, see TTLS.
            self._advance(1)
            side = self.sides[name]
            taken = side.real.publish(messages, size * count)
            contents = [Content(label, body, "", names[0], priority, expiration) for body in bodies]
            assert self.broker.publish(side.model, contents) == [True] * taken + [False] * (count - taken)
        self._end_turn()

    @rule(
        name=st.sampled_from(NAMES),
        room=st.sampled_from((0, 1, 2, 5, PLENTY)),
        no_ack=st.booleans(),
        priority=st.integers(0, 1),
    )
    def consume(self, name: str, room: int, no_ack: bool, priority: int) -> None:
        side = self.sides[name]
        pair = Pair(side.real, self.reader, room, no_ack, priority)
        recorder = Recorder(pair, room, no_ack, priority)
        side.consumers.append(pair)
        side.real.add_consumer(recorder)
        self.broker.add_consumer(side.model, pair.model)
        self._end_turn()

    @precondition(lambda self: any(side.consumers for side in self.sides.values()))
    @rule(data=st.data(), room=st.sampled_from((None, 0, 1, 2, 6)))
    def change_room(self, room: int | None, data: st.DataObject) -> None:
        """Change the credit of a consumer, or cancel it."""
        side, pair = data.draw(
            st.sampled_from([(side, pair) for side in self.sides.values() for pair in side.consumers])
        )
        if room is None:
            side.consumers.remove(pair)
            side.left.append(pair)
            side.real.remove_consumer(_recorder(pair))
            self.broker.remove_consumer(side.model, pair.model)
        else:
            _recorder(pair).room = room
            side.real.unblock(_recorder(pair))
            self.broker.set_room(side.model, pair.model, room)
        self._end_turn()

    @precondition(lambda self: any(side.holders() for side in self.sides.values()))
    @rule(data=st.data(), outcome=st.sampled_from(("acknowledge", "reject", "requeue", "requeue")))
    def settle(self, data: st.DataObject, outcome: str) -> None:
        """Settle one message of a holder, or its oldest ones, or all of all holders of a queue."""
        side = data.draw(st.sampled_from([side for side in self.sides.values() if side.holders()]))
        if data.draw(st.booleans(), label="channel closes"):
            for pair in side.holders():
                self._settle(side, pair, range(len(pair.held)), outcome)
            return
        pair = data.draw(st.sampled_from(side.holders()))
        at = data.draw(st.integers(0, len(pair.held) - 1))
        self._settle(side, pair, range(0 if data.draw(st.booleans(), label="multiple") else at, at + 1), outcome)

    def _settle(self, side: Side, pair: Pair, chosen: range, outcome: str) -> None:
        entries, copies = [pair.held[at] for at in chosen], [pair.model.held[at] for at in chosen]
        del pair.held[chosen.start : chosen.stop]
        side.real.release(pair.real, entries)
        if isinstance(pair.real, Recorder):
            side.real.unblock(pair.real)
        getattr(side.real, outcome)(entries)
        self.broker.settle(side.model, pair.model, copies, outcome)
        self._end_turn()

    @rule(name=st.sampled_from(NAMES), no_ack=st.booleans())
    def get(self, name: str, no_ack: bool) -> None:
        side = self.sides[name]
        pair = side.getter
        pair.model.no_ack = no_ack
        entry = side.real.get(None if no_ack else pair.real)
        expected: Copy | None = self.broker.get(side.model, pair.model)
        assert (entry is None) == (expected is None)
        if entry is not None:
            pair.note(entry)
            if no_ack:
                self.sent_away[name] += 1
            else:
                pair.held.append(entry)
        self._end_turn()

    @rule(name=st.sampled_from(NAMES))
    def purge(self, name: str) -> None:
        side = self.sides[name]
        assert side.real.purge() == self.broker.purge(side.model)
        self._end_turn()

    @rule(name=st.sampled_from(NAMES), data=st.data())
    def set_policy(self, name: str, data: st.DataObject) -> None:
        definition = data.draw(definitions(name).filter(bool))
        self.vhost.policies.set(Policy(f"for {name}", f"^{name}$", definition, 0, "queues"), operator=False)
        self._apply(name, definition, operator=False)

    @rule(name=st.sampled_from(NAMES), data=st.data())
    def set_operator_policy(self, name: str, data: st.DataObject) -> None:
        allowed = limits(name) | {"overflow": st.sampled_from(("drop-head", "reject-publish"))}
        definition = data.draw(st.fixed_dictionaries({}, optional=allowed).filter(bool))
        self.vhost.policies.set(Policy(f"for {name}", f"^{name}$", definition, 0, "queues"), operator=True)
        self._apply(name, definition, operator=True)

    @rule(name=st.sampled_from(NAMES), operator=st.booleans())
    def clear_policy(self, name: str, operator: bool) -> None:
        known = self.policies.get((name, operator), {})
        assert self.vhost.policies.clear(f"for {name}", operator) == bool(known)
        self._apply(name, {}, operator)

    def _apply(self, name: str, definition: dict[str, Any], operator: bool) -> None:
        self.policies[name, operator] = definition
        user, operators = (self.policies.get((name, operator), {}) for operator in (False, True))
        self.broker.apply(self.sides[name].model, user, operators)
        self._end_turn()

    @rule(milliseconds=st.sampled_from((1, 7, 11, 33, 100, 1000)))
    def wait(self, milliseconds: int) -> None:
        self._advance(milliseconds * 1000)

    def _end_turn(self) -> None:
        # Not only what is due at the end of the turn, but also timers that are due at once.
        self.loop.advance(0)
        assume(not self.broker.undecided)

    def _advance(self, microseconds: int) -> None:
        now = self.vhost.timers.now() + microseconds
        # A little further and back: the timers due now must not miss it by a rounding error.
        self.loop.advance(now / 1_000_000 + 0.000_000_4 - self.loop.now)
        self.loop.now = now / 1_000_000
        self.broker.advance(now)

    # -- what always holds ---------------------------------------------------------------------------------

    @invariant()
    def all_agree(self) -> None:
        for name, side in self.sides.items():
            self._check_messages(side)
            self._check_limits(side)
            assert (name, counted(side.real)) == (name, +side.model.counters)
            self._check_balance(side, self.sent_away[name])
            if side.real.store.ready_count:
                assert all(_recorder(pair).credit() <= 0 for pair in side.consumers)

    def _check_messages(self, side: Side) -> None:
        """What is ready, what was delivered and what is held, in order and with all that it says."""
        found = [self.reader.read(message, again) for message, again in waiting(side.real.store)]
        # Only some queues show how often messages came back.
        shows = side.model.counts_returns()
        assert found == [(copy.content, copy.redelivered, copy.returns * shows) for copy in side.model.ready]
        for pair in (*side.consumers, *side.left, side.getter):
            assert pair.taken == [(content, again, count * shows) for content, again, count in pair.model.received]
            held = [self.reader.read(entry[1], entry[2])[:2] for entry in pair.held]
            assert held == [(copy.content, copy.redelivered) for copy in pair.model.held]

    @staticmethod
    def _check_limits(side: Side) -> None:
        """Ready messages are counted, and never too many where old ones are dropped.

        If unacked ones count, there may be more, because they came back.
        """
        store, in_force = side.real.store, side.real.settings
        sizes = [len(message.body) for message, _ in waiting(store)]
        assert (store.ready_count, store.ready_bytes) == (len(sizes), sum(sizes))
        if not side.model.refuses() and not side.model.counts_all():
            assert in_force.max_length is None or len(sizes) <= in_force.max_length
            assert in_force.max_length_bytes is None or sum(sizes) <= in_force.max_length_bytes

    @staticmethod
    def _check_balance(side: Side, sent_away: int) -> None:
        """All that came in is ready, is held by someone or has gone, and only once."""
        counters, unacked = side.real.counters, sum(len(pair.held) for pair in side.holders())
        assert side.real.unacked_count == unacked
        assert all(pair.real.unacked == len(pair.held) for pair in (*side.consumers, *side.left, side.getter))
        no_ack = sum(len(pair.taken) for pair in side.consumers + side.left if pair.model.no_ack)
        gone = counters.acknowledged + counters.dropped.total() + no_ack + sent_away
        assert counters.published == side.real.store.ready_count + unacked + gone


def counted(queue: ClassicQueue) -> Counter[str]:
    """A queue's counters under the model's names."""
    counters = queue.counters
    names = ("published", "refused", "delivered", "got", "redelivered", "acknowledged", "requeued")
    flat = Counter({name: getattr(counters, name) for name in names})
    flat.update({f"dropped {reason}": count for reason, count in counters.dropped.items()})
    flat.update({f"dead-lettered {reason}": count for reason, count in counters.dead_lettered.items()})
    return +flat


def _recorder(pair: Pair) -> Recorder:
    assert isinstance(pair.real, Recorder)
    return pair.real


BoundedQueues.TestCase.settings = settings(max_examples=examples(100), stateful_step_count=40)
TestBoundedQueues = BoundedQueues.TestCase
