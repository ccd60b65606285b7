"""Dead-lettering: from a queue that drops a message to the queues behind its dead-letter exchange.

Source: https://www.rabbitmq.com/docs/dlx, and RabbitMQ 3.10.8 observed.
"""

from __future__ import annotations

import logging
from collections import OrderedDict, deque
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from itertools import groupby, islice
from operator import attrgetter
from typing import TYPE_CHECKING, Final, NamedTuple, cast

from leveret.broker.core.routing import route_in_steps
from leveret.policies.dead_letter import REJECTED, Death, queues_on_the_way, record_death
from leveret.protocol import properties
from leveret.protocol.field_table import FieldTable, find, normalize
from leveret.protocol.properties import Properties, encode_headers
from leveret.protocol.short_strings import encode_shortstr
from leveret.storage.message import Envelope, Message

if TYPE_CHECKING:
    from leveret.broker.core.queues.dead_letter_batch import DeadLetterBatch
    from leveret.broker.core.queues.queue import Queue
    from leveret.broker.core.vhost import VirtualHost

log = logging.getLogger("leveret.queue")


_envelope: Final = attrgetter("envelope")

#: Messages of one envelope that are published in a step.
_STEP: Final = 256
#: Cycles that the log has told of: queues come and go.
_WARNED_MAX: Final = 1000
_END: Final = object()


class _Letter(NamedTuple):
    """What messages with one envelope become, and where they go."""

    envelope: Envelope
    targets: tuple[Queue, ...]


class DeadLetters:
    """The dead-lettering of one virtual host.

    A dead letter may push others out of a full queue, or expire where it arrives, and these have letters in turn: each
    queue has its batches waiting in order, and the queue that was last given one goes first. So a long chain of queues
    needs no deep stack, and a tree of them no more memory than its height. There may be more letters in a tree than can
    ever be published: the work goes in slices of time.

    Args:
        vhost: The virtual host.
        trust_publishers: An x-death header that a publisher made up counts as the broker's own, as in 3.10.8.
    """

    def __init__(self, vhost: VirtualHost, trust_publishers: bool) -> None:
        self._vhost = vhost
        self._trust_publishers = trust_publishers
        #: The steps of publishing each batch, by the queue that it comes from.
        self._work: OrderedDict[Queue, deque[Iterator[None]]] = OrderedDict()
        self._working = False
        self._goes_on = False
        #: Cycles that the log has told of, oldest first.
        self._warned: dict[tuple[str, str], None] = {}
        #: The last letter and what it was made for: dropped messages come in runs.
        self._made_for: object = None
        self._made: _Letter | None = None

    def publish(self, batch: DeadLetterBatch) -> None:
        """Publish messages to the dead-letter exchange of their queue; what takes long is done later."""
        queue = batch.queue
        self._work.setdefault(queue, deque()).append(self._publish(batch))
        self._work.move_to_end(queue)
        if not self._working:
            # What others have left is not to be done here.
            self._go(others=len(self._work) - 1)

    @contextmanager
    def held(self) -> Iterator[None]:
        """Hold back all dead letters until the end of the block: not all that they may reach is there yet."""
        self._working = True
        try:
            yield
        finally:
            self._working = False
        self._go()

    def forget(self) -> None:
        """Forget the last letter: a queue that it names is deleted."""
        self._made_for = self._made = None

    def _go(self, others: int = 0) -> None:
        """Work as long as time is left, until there is work for so many other queues only."""
        time_slice = self._vhost.turn.slice()
        self._working = True
        try:
            while len(self._work) > others:
                self._step()
                if time_slice.is_over():
                    break
        finally:
            self._working = False
            if self._work and not self._goes_on:
                self._goes_on = True
                self._vhost.timers.call_later(0, self._go_on)

    def _go_on(self) -> None:
        self._goes_on = False
        self._go()

    def _step(self) -> None:
        """Do one step for the queue that was last given work."""
        queue = next(reversed(self._work))
        batches = self._work[queue]
        is_done = True
        try:
            is_done = next(batches[0], _END) is _END
        finally:
            if is_done:
                batches.popleft()
                if not batches:
                    del self._work[queue]

    def _publish(self, batch: DeadLetterBatch) -> Iterator[None]:
        """Publish a batch, a run of messages with one envelope in a step."""
        queue, done = batch.queue, 0
        for envelope, run in groupby(batch.messages, key=_envelope):
            while originals := list(islice(run, _STEP)):
                if done:
                    yield
                letter = yield from self._letter(batch, envelope)
                taken, arrived = (0, 0) if letter is None else self._send(batch, letter, originals)
                queue.dead_lettered(originals, taken, arrived, batch.reason)
                done += len(originals)
        queue.settle_dead_letters(batch)

    def _send(self, batch: DeadLetterBatch, letter: _Letter, originals: list[Message]) -> tuple[int, int]:
        """Publish a letter to its targets; return how many of its messages all have taken, and how many any has."""
        dead = letter.envelope
        letters = [Message(dead, message.body) for message in originals]
        batch.queue.counters.dead_lettered[batch.reason] += len(letters)
        taken, arrived = len(letters) if letter.targets else 0, 0
        for target in letter.targets:
            if not target.deleted:
                accepted = target.publish(letters, len(letters) * len(letters[0].body))
                taken, arrived = min(taken, accepted), max(arrived, accepted)
        return taken, arrived

    def _letter(self, batch: DeadLetterBatch, envelope: Envelope) -> Generator[None, None, _Letter | None]:
        """Make the letter, or take the last one if it was the same."""
        now = self._vhost.timers.now() // 1_000_000
        made_for = (envelope, batch.queue, batch.reason, now, batch.settings, self._vhost.topology.generation)
        if made_for == self._made_for:
            return self._made
        made = yield from self._make_letter(batch, envelope, now)
        self._made_for, self._made = made_for, made
        return made

    def _make_letter(
        self, batch: DeadLetterBatch, envelope: Envelope, now: int
    ) -> Generator[None, None, _Letter | None]:
        queue, reason, settings = batch.queue, batch.reason, batch.settings
        exchange = self._vhost.topology.exchanges.get(settings.dead_letter_exchange or "")
        if exchange is None:
            return None
        published = Properties(envelope.header)
        headers = published.headers()
        published_to, keys = _published_route(envelope, headers)
        death = Death(queue.name, reason, now, published_to, keys, published.text(properties.EXPIRATION))
        blind_keys = envelope.blind_keys
        if settings.dead_letter_routing_key is not None:
            keys, blind_keys = [settings.dead_letter_routing_key], ()
            headers = tuple(entry for entry in headers if entry[0] != "CC")
        recorded = record_death(headers, death, envelope.dead or self._trust_publishers)
        headers = normalize(cast("FieldTable", recorded))
        found = yield from route_in_steps(self._vhost.topology, exchange, [*keys, *blind_keys], headers)
        targets = cast("tuple[Queue, ...]", found.queues)
        if reason != REJECTED:
            known = queues_on_the_way(headers)
            for target in targets:
                if target.name in known:
                    self._warn(queue, target)
            targets = tuple(target for target in targets if target.name not in known)
        changes: dict[int, bytes | None] = {properties.HEADERS: encode_headers(headers), properties.EXPIRATION: None}
        dead = Envelope(
            encode_shortstr(exchange.name) + encode_shortstr(_octets(keys[0])[:255]),
            published.replaced(changes),
            envelope.persistent,
            envelope.priority,
            dead=True,
            blind_keys=blind_keys,
        )
        return _Letter(dead, targets)

    def _warn(self, queue: Queue, target: Queue) -> None:
        """Tell of a cycle once, as far as that can be remembered."""
        cycle = queue.name, target.name
        if cycle in self._warned:
            return
        if len(self._warned) >= _WARNED_MAX:
            del self._warned[next(iter(self._warned))]
        self._warned[cycle] = None
        log.warning(
            "dead letters from queue '%s' reach queue '%s' in vhost '%s' in a cycle; they are dropped there",
            *cycle,
            self._vhost.name,
        )


def _published_route(envelope: Envelope, headers: FieldTable) -> tuple[str, list[str]]:
    """Exchange and routing keys, those of CC included, that a message was last published with."""
    octets = envelope.route
    split = 1 + octets[0]
    exchange = octets[1:split].decode("utf-8", "surrogateescape")
    keys = [octets[split + 1 :].decode("utf-8", "surrogateescape")]
    copies = find(headers, "CC")
    if copies is not None and copies.kind == "A":
        keys += [key.value.decode("utf-8", "surrogateescape") for key in copies.value if key.kind == "S"]
    return exchange, keys


def _octets(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")
