"""The broker itself as the end of a shovel: its queues and exchanges are used as by a client, without a socket.

A URI without user may do everything, as in RabbitMQ: who sets a shovel needs the tag policymaker.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from operator import itemgetter
from typing import Any, Final

from leveret.broker.auth.accounts import Accounts, User
from leveret.broker.auth.backend_interface import Login, Refused, Resource
from leveret.broker.auth.backends.chain import AuthBackends
from leveret.broker.core.broker import Broker
from leveret.broker.core.json_values import table_from_json
from leveret.broker.core.messages import Origin
from leveret.broker.core.queues.declaration_checks import check_exclusive_use
from leveret.broker.core.queues.queue import Queue
from leveret.broker.core.queues.stream_queue import StreamQueue
from leveret.broker.core.vhosts.topology import generate_name
from leveret.broker.operations import exchanges, publishing, queues
from leveret.broker.operations.principal import Principal
from leveret.broker.shovels.ends import Delivered, EndFault, Outgoing, Owner
from leveret.broker.unfinished import Unanswered, answered
from leveret.policies.amqp_uri import AmqpUri
from leveret.policies.permissions import Kind, TopicKind
from leveret.policies.shovel import Shovel, ShovelEnd
from leveret.protocol.erlang_terms import format_text
from leveret.protocol.faults import AmqpFault, ReplyCode, precondition_failed
from leveret.protocol.field_table import FieldTable, find
from leveret.protocol.header_scan import STREAM_OFFSET
from leveret.protocol.properties import Properties
from leveret.storage.interface import Entry
from leveret.storage.message import Message

#: User of URIs that name none, as RabbitMQ calls it.
_NOBODY: Final = User("none", tags=("impersonator",))
#: Value of x-stream-offset with which a shovel goes on behind what its destination, a stream of this broker, has.
CONTINUE: Final = "continue"
_OFFSET: Final = STREAM_OFFSET.decode()
#: Messages, and bytes of their bodies, that are read at once to find the last offset.
_LOOK: Final = 64
_LOOK_BYTES: Final = 1 << 30
#: With more targets than this, messages are published one at a time.
_FEW: Final = 16


class _AllAllowed(Accounts):
    """Accounts that refuse nothing."""

    def check(self, user: User, vhost: str, kind: Kind, resource: Resource, name: str) -> None:
        """Refuse nothing."""

    def check_any(self, user: User, vhost: str, resource: Resource, name: str) -> None:
        """Refuse nothing."""

    def check_topic(self, user: User, vhost: str, kind: TopicKind, exchange_name: str, routing_key: str) -> None:
        """Refuse nothing."""


async def open_principal(broker: Broker, backends: AuthBackends, uri: AmqpUri) -> Principal:
    """Return the user of a URI in its virtual host. As in RabbitMQ, a password is checked only if there is one.

    Raises:
        EndFault: The user or the virtual host does not exist, or the password is wrong.
    """
    vhost = broker.vhosts.get(uri.vhost)
    if vhost is None:
        raise EndFault(f"vhost {format_text(uri.vhost)} not found", is_refused=True)
    if uri.user is None:
        return Principal(_AllAllowed(), _NOBODY, vhost)
    secret = None if uri.password is None else uri.password.encode()
    accounts = backends.accounts
    try:
        user = await backends.login(Login(uri.user, secret, "127.0.0.1", True, None))
        if await answered(lambda: accounts.enters(user, vhost.name)):
            return Principal(accounts, user, vhost)
    except Refused:
        pass
    raise EndFault(f"user {format_text(uri.user)} is refused", is_refused=True)


def fault_of(fault: AmqpFault) -> EndFault:
    """Return what ends a shovel for which the broker refuses something."""
    return EndFault(format_text(fault.text))


def _open_queue(principal: Principal, end: ShovelEnd) -> Queue:
    """Find the queue of an end; declare it if it does not exist.

    Raises:
        AmqpFault: It is refused.
    """
    assert end.queue is not None
    try:
        return queues.find(principal, end.queue)
    except AmqpFault as fault:
        if fault.code is not ReplyCode.NOT_FOUND or end.predeclared:
            raise
    return queues.declare(principal, end.queue, True, False, table_from_json(end.arguments))


@dataclass(frozen=True, slots=True)
class _Client:
    """What identifies the consumer of a shovel in documents; see ClientIdentity and ClientChannel."""

    name: str
    username: str
    vhost_name: str
    number: int = 1
    peer: tuple[str, int] = ("", 0)
    client_properties: FieldTable = ()

    @property
    def client(self) -> _Client:
        """Itself."""
        return self


class LocalSource:
    """A queue of the broker; see Source. It is its only consumer; see QueueConsumer.

    Args:
        broker: The broker.
        principal: With whose permissions it reads; see open_principal().
        shovel: What is read.
    Raises:
        AmqpFault: The queue cannot be used.
    """

    exclusive = False
    no_ack = False

    def __init__(self, broker: Broker, principal: Principal, uri: AmqpUri, shovel: Shovel, owner: Owner) -> None:
        self.uri = uri
        self._broker = broker
        self._principal = principal
        self._owner = owner
        self._prefetch = shovel.prefetch
        self.arguments: FieldTable = ()
        self.tag = generate_name("amq.ctag")
        self.channel = _Client(f"Shovel {owner.name}", principal.user.name, principal.vhost.name)
        self.channel_id = id(self)
        self.priority = self.unacked = 0
        self.prefetch = shovel.prefetch
        self.blocked = False
        self.timeout_ms: int | None = None
        self._is_consuming = False
        self._held: dict[int, Entry] = {}
        self._next_tag = 1
        self._is_own = shovel.source.queue is None
        self.queue = self._bind(shovel.source) if self._is_own else _open_queue(principal, shovel.source)
        self.message_count = self.queue.ready_count()

    def _bind(self, end: ShovelEnd) -> Queue:
        """Return a queue of its own, bound to an exchange."""
        queue = queues.declare(self._principal, "", False, False, (), owner=self)
        assert end.exchange is not None
        ends = exchanges.Ends(end.exchange, queue.name, True)
        try:
            for _ in exchanges.bind(self._principal, ends, end.key or "", (), owner=self).history:
                pass
        except AmqpFault:
            self._principal.vhost.delete_queue(queue)
            raise
        return queue

    async def consume(self, arguments: Mapping[str, Any]) -> None:
        """Begin to deliver messages; see Source."""
        self.arguments = table_from_json(arguments)
        try:
            queue = await answered(lambda: queues.open_for_reading(self._principal, self.queue.name, self))
            given = queues.read_consumer_arguments(queue, self.arguments)
            check_exclusive_use(queue, False)
            self.priority = given.priority
            if isinstance(queue, StreamQueue):
                queue.add_consumer(self, given.place, given.name, given.wanted)
            else:
                queue.add_consumer(self)
        except AmqpFault as fault:
            raise fault_of(fault) from None
        self._is_consuming = True

    def credit(self) -> int:
        """Return how many messages can be delivered now; see QueueConsumer."""
        room = self._owner.room()
        return min(room, self._prefetch - self.unacked) if self._prefetch else room

    def deliver(self, entries: Sequence[Entry], body_bytes: int) -> None:
        """Hand messages on; see QueueConsumer."""
        first, delivered = self._next_tag, []
        for tag, entry in enumerate(entries, first):
            message = entry[1]
            self._held[tag] = entry
            delivered.append(Delivered(tag, message.envelope.route, message.envelope.header, message.body))
        self._next_tag += len(entries)
        self.unacked += len(entries)
        tracer = self._principal.vhost.tracer
        if tracer is not None:
            origin = Origin(self.channel.name, 1, self._principal.user.name)
            tracer.delivered(origin, self.queue.name, entries)
        self._owner.delivered(delivered)

    def cancelled(self) -> None:
        """Note that the queue was deleted; see QueueConsumer."""
        self._is_consuming = False
        self._owner.failed(EndFault(format_text(f"queue '{self.queue.name}' was deleted")))

    def unblock(self) -> None:
        """Let the queue serve it again; see QueueConsumer."""
        self.queue.unblock(self)

    def unacked_entries(self, from_tag: int = 0) -> Iterator[Entry]:
        """Iterate over its unacked messages; see Holder."""
        return iter([entry for tag, entry in self._held.items() if tag >= from_tag])

    def next_tag(self) -> int:
        """Return the delivery tag of the next message."""
        return self._next_tag

    def settle(self, tags: Sequence[int]) -> None:
        """Acknowledge messages; see Source."""
        entries = [self._held.pop(tag) for tag in tags]
        self.queue.release(self, entries)
        self.queue.acknowledge(entries)
        self._go_on()

    def give_back(self, tags: Sequence[int]) -> None:
        """Return messages to the queue; see Source."""
        entries = [self._held.pop(tag) for tag in tags]
        self.queue.release(self, entries, "returned")
        self.queue.requeue(entries)
        self._go_on()

    def resume(self) -> None:
        """Deliver again; see Source."""
        self._go_on()

    def _go_on(self) -> None:
        if self._is_consuming and self.blocked and self.credit() > 0:
            self.queue.unblock(self)
        self._broker.turn.end_later()

    async def close(self) -> None:
        """Cancel the consumer, and return its messages; see End."""
        if self._is_consuming:
            self._is_consuming = False
            self.queue.remove_consumer(self)
        entries, self._held = [*self._held.values()], {}
        if entries and not self.queue.deleted:
            self.queue.release(self, entries, "abandoned")
            self.queue.requeue(entries, abandoned=True, failed=True)
        if self._is_own and not self.queue.deleted:
            self._principal.vhost.delete_queue(self.queue)
        self._broker.turn.end_later()

    def abort(self) -> None:
        """Do nothing: it ends with the broker; see End."""


class LocalDestination:
    """The exchanges of the broker; see Destination.

    Args:
        principal: With whose permissions it publishes; see open_principal().
        max_message_size: Maximum size of a body in bytes.
        confirms: Whether the owner waits for confirms.
    Raises:
        AmqpFault: The queue cannot be used.
    """

    def __init__(
        self,
        broker: Broker,
        principal: Principal,
        uri: AmqpUri,
        end: ShovelEnd,
        owner: Owner,
        max_message_size: int,
        confirms: bool,
    ) -> None:
        self.uri = uri
        self._broker = broker
        self._principal = principal
        self._owner = owner
        self._max_message_size = max_message_size
        self._confirms = confirms
        self._origin = Origin(f"Shovel {owner.name}", 1, principal.user.name)
        self._prepared: tuple[tuple[bytes, bytes], publishing.Prepared] | None = None
        self._is_waiting = False
        self._asking: asyncio.Task[None] | None = None
        self._queue = None if end.queue is None else _open_queue(principal, end)

    async def last_offset(self) -> int | None:
        """Return the offset at the source of the last message here that has come from a stream; None if none has.

        A message has it in the header with which it was delivered.

        Raises:
            EndFault: The destination is no stream.
        """
        if not isinstance(self._queue, StreamQueue):
            raise EndFault(format_text(f"x-stream-offset '{CONTINUE}' needs a stream of this broker as destination"))
        ((_, level),) = self._queue.store.ordered_levels()
        end = self._queue.stream.next_number
        while end > self._queue.stream.first_number:
            begin = max(self._queue.stream.first_number, end - _LOOK)
            for seen in reversed(level.look(begin, end - begin, _LOOK_BYTES).seen):
                field = find(Properties(seen.message.envelope.header).headers(), _OFFSET)
                if field is not None and isinstance(field.value, int):
                    return field.value
            end = begin
            await asyncio.sleep(0)
        return None

    @property
    def is_blocked(self) -> bool:
        """Whether an alarm is set, or another server is asked about the user; see Destination."""
        alarms = self._broker.alarms
        if alarms.any and not self._is_waiting:
            self._is_waiting = True
            alarms.wait(self, self._resume)
        return alarms.any or self._asking is not None

    def _resume(self) -> None:
        self._is_waiting = False
        self._owner.writable()

    def publish(self, first: int, messages: Sequence[Outgoing]) -> None:
        """Publish messages; see Destination."""
        done = 0
        if self._queue is not None and self._queue.deleted:
            # They would have no way, and be confirmed.
            raise EndFault(format_text(f"queue '{self._queue.name}' was deleted"))
        try:
            for (route, header), same in groupby(messages, key=itemgetter(0, 1)):
                bodies = [message.body for message in same]
                self._check_size(len(bodies[0]))
                while bodies:
                    prepared = self._prepare(route, header)
                    count = 1 if prepared.varies or len(prepared.targets) > _FEW else len(bodies)
                    self._send(first + done, prepared, bodies[:count])
                    done += count
                    del bodies[:count]
        except Unanswered as question:
            rest = self._publish_later(question, first + done, messages[done:])
            self._asking = asyncio.get_running_loop().create_task(rest)
        except AmqpFault as fault:
            raise fault_of(fault) from None
        finally:
            self._broker.turn.end_later()

    async def _publish_later(self, question: Unanswered, first: int, messages: Sequence[Outgoing]) -> None:
        """Publish messages when another server has answered; until then no others are taken."""
        await question.ask()
        self._asking = None
        try:
            self.publish(first, messages)
        except EndFault as fault:
            self._owner.failed(fault)
        self._owner.writable()

    def _check_size(self, size: int) -> None:
        if size > self._max_message_size:
            raise precondition_failed(
                f"message size {size} is larger than configured max size {self._max_message_size}"
            )

    def _send(self, first: int, prepared: publishing.Prepared, bodies: Sequence[bytes]) -> None:
        """Publish messages, which are alike, and have them answered."""
        messages, size = [Message(prepared.envelope, body) for body in bodies], len(bodies[0]) * len(bodies)
        taken = publishing.send(self._principal, prepared, messages, size, self._origin, mandatory=False)
        if not self._confirms:
            return
        accepted = min(taken, default=len(bodies))
        if accepted:
            self._broker.stores.when_synced(partial(self._answer, first, accepted))
        for number in range(first + accepted, first + len(bodies)):
            self._owner.answered(number, multiple=False, accepted=False)

    def _prepare(self, route: bytes, header: bytes) -> publishing.Prepared:
        key, known = (route, header), self._prepared
        if known is not None and known[0] == key:
            prepared = known[1]
            if prepared.generation == self._principal.generation and not prepared.varies:
                return prepared
        split = 1 + route[0]
        exchange, routing_key = (
            octets.decode("utf-8", "surrogateescape") for octets in (route[1:split], route[split + 1 :])
        )
        prepared = publishing.prepare(self._principal, exchange, routing_key, header, keeps_deaths=True)
        self._prepared = key, prepared
        return prepared

    def _answer(self, first: int, count: int) -> None:
        """Confirm messages, which are on disk."""
        for number in range(first, first + count):
            self._owner.answered(number, multiple=False, accepted=True)

    async def close(self) -> None:
        """Wait for nothing more; see End."""
        self._broker.alarms.forget(self)
        if self._asking is not None:
            self._asking.cancel()

    def abort(self) -> None:
        """Do nothing: it ends with the broker; see End."""
