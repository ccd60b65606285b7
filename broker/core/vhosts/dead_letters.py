"""Dead-lettering: republishes messages that a queue drops to its dead-letter exchange.

Source: https://www.rabbitmq.com/docs/dlx, and RabbitMQ 3.10.8 observed.
"""

from __future__ import annotations

import logging
from collections import OrderedDict, deque
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from itertools import chain, groupby, islice
from operator import attrgetter
from typing import Final, NamedTuple

from leveret.broker.core.messages import Remembering, Target, leave_out, names_of
from leveret.broker.core.queues.outbox import DeadLetterBatch, DeadLetterOutbox
from leveret.broker.core.scheduling.timers import Timers
from leveret.broker.core.scheduling.turn import UNLIMITED, Turn
from leveret.broker.core.vhosts.routing import route_in_steps
from leveret.broker.core.vhosts.topology import Topology
from leveret.policies.dead_letter import REJECTED, Death, record_death, visited_queues
from leveret.protocol import properties
from leveret.protocol.field_table import FieldTable, FieldValue, find, normalize
from leveret.protocol.properties import Properties, encode_headers
from leveret.protocol.short_strings import encode_shortstr
from leveret.storage.message import Envelope, Message

log = logging.getLogger("leveret.queue")


_envelope: Final = attrgetter("envelope")

#: Messages that one step publishes at most; they share an envelope.
_STEP: Final = 256
#: Logged reasons why dead letters do not arrive that are remembered, so that each is logged once.
_WARNED_MAX: Final = 1000
_CYCLE: Final = "dead letters from queue '%s' reach queue '%s' in vhost '%s' in a cycle; they are dropped there"
_END: Final = object()
#: With more targets than this the time slice is checked after each.
_FEW: Final = 4


class _Letter(NamedTuple):
    """The new envelope of dead-lettered messages that shared one, and where they are routed to.

    Args:
        envelope: The new envelope.
        targets: The queues.
        histories: What has to remember the messages.
        varies: Whether the queues are those of one message only.
    """

    envelope: Envelope
    targets: tuple[Target, ...]
    histories: tuple[Remembering, ...]
    varies: bool


class DeadLetters:
    """The dead-lettering of one virtual host.

    A dead letter may evict messages from a full queue, or expire on arrival, and so cause further dead letters. Each
    queue has a list of pending batches, and the queue that got a batch last is served first. So long chains of queues
    need no deep stack, and trees of queues no more memory than their height. The number of dead letters may be
    practically unlimited: the work is done in time slices.

    Args:
        trust_publishers: Whether x-death headers set by publishers are treated as the broker's own, as in 3.10.8.

    Attributes:
        trust_publishers: See Args.
    """

    def __init__(self, topology: Topology, turn: Turn, timers: Timers, trust_publishers: bool) -> None:
        self._topology = topology
        self._turn = turn
        self._timers = timers
        self.trust_publishers = trust_publishers
        #: The remaining steps of each batch, by the queue that dropped the messages.
        self._work: OrderedDict[DeadLetterOutbox, deque[Iterator[bool | None]]] = OrderedDict()
        #: The queue whose letters have reached some of their targets: the others come before all other work.
        self._interrupted: DeadLetterOutbox | None = None
        self._time_slice = UNLIMITED
        self._working = False
        self._is_scheduled = False
        #: Cycles that have been logged, oldest first.
        self._warned: dict[tuple[str, str, str], None] = {}
        #: The last dead letter and its cache key: consecutive messages often share an envelope.
        self._cache_key: object = None
        self._cached_letter: _Letter | None = None

    def publish(self, batch: DeadLetterBatch) -> None:
        """Publish messages to the dead-letter exchange of their queue; long work is continued in later turns."""
        self._work.setdefault(batch.outbox, deque()).append(self._publish(batch))
        self._work.move_to_end(batch.outbox)
        if not self._working:
            # Pending work of other queues is left to later turns.
            self._run(pending_queues=len(self._work) - 1)

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Delay all dead letters until the end of the block, for example until all queues have been restored."""
        self._working = True
        try:
            yield
        finally:
            self._working = False
        self._run()

    def clear_cache(self) -> None:
        """Drop the cached dead letter, which refers to a queue that is deleted."""
        self._cache_key = self._cached_letter = None

    def _run(self, pending_queues: int = 0) -> None:
        """Work until the time slice is over, or until only this many queues have pending work."""
        time_slice = self._time_slice = self._turn.slice()
        self._working = True
        try:
            while len(self._work) > pending_queues:
                self._step()
                if time_slice.is_over():
                    break
        finally:
            self._working = False
            if self._work and not self._is_scheduled:
                self._is_scheduled = True
                self._timers.call_later(0, self._continue)

    def _continue(self) -> None:
        self._is_scheduled = False
        self._run()

    def _step(self) -> None:
        """Do one step for the queue that got a batch last."""
        outbox = self._interrupted or next(reversed(self._work))
        self._interrupted = None
        batches = self._work[outbox]
        is_done = True
        try:
            result = next(batches[0], _END)
            is_done = result is _END
            if result is True:
                self._interrupted = outbox
        finally:
            if is_done:
                batches.popleft()
                if not batches:
                    del self._work[outbox]

    def _publish(self, batch: DeadLetterBatch) -> Iterator[bool | None]:
        """Publish a batch; a step publishes messages of one envelope to one target, or more.

        Yields:
            After a step, whether there are further targets for its messages.
        """
        outbox, done = batch.outbox, 0
        for envelope, same in groupby(batch.messages, key=_envelope):
            run: Iterator[Message] = same
            size = _STEP
            while originals := list(islice(run, size)):
                if done:
                    yield False
                letter = yield from self._letter(batch, envelope)
                if letter is not None and letter.varies:
                    # Each message has a route of its own.
                    size, run, originals = 1, chain(originals[1:], run), originals[:1]
                taken, arrived = (0, 0) if letter is None else (yield from self._send(batch, letter, originals))
                outbox.sent(originals, taken, arrived, batch)
                # In the same step: whoever got the letter may acknowledge it before the next one.
                outbox.settle(batch, done, done + len(originals))
                done += len(originals)

    def _send(
        self, batch: DeadLetterBatch, letter: _Letter, originals: list[Message]
    ) -> Generator[bool, None, tuple[int, int]]:
        """Publish dead letters to their targets; return how many were accepted by all targets, and by any target."""
        dead = letter.envelope
        letters = [Message(dead, message.body) for message in originals]
        batch.outbox.counters.dead_lettered[batch.reason] += len(letters)
        for history in letter.histories:
            history.remember(letters)
        taken, arrived = len(letters) if letter.targets else 0, 0
        for position, target in enumerate(letter.targets):
            if position >= _FEW:
                yield True
            if not target.deleted:
                if dead.persistent:
                    self._time_slice.count_published(len(letters))
                accepted = target.publish(letters, len(letters) * len(letters[0].body))
                taken, arrived = min(taken, accepted), max(arrived, accepted)
        return taken, arrived

    def _letter(self, batch: DeadLetterBatch, envelope: Envelope) -> Generator[None, None, _Letter | None]:
        """Return the dead letter of an envelope, cached if it is the same as the last one."""
        now = self._timers.seconds()
        cache_key = (envelope, batch.outbox, batch.reason, now, batch.settings, self._topology.generation)
        if cache_key == self._cache_key:
            return self._cached_letter
        made = yield from self._make_letter(batch, envelope, now)
        if made is None or not made.varies:
            self._cache_key, self._cached_letter = cache_key, made
        return made

    def _make_letter(
        self, batch: DeadLetterBatch, envelope: Envelope, now: int
    ) -> Generator[None, None, _Letter | None]:
        reason, settings = batch.reason, batch.settings
        exchange = self._topology.exchanges.get(settings.dead_letter_exchange or "")
        if exchange is None:
            self._warn_once(
                "dead letters of queue '%s' reach no queue: exchange '%s' does not exist in vhost '%s'",
                batch.outbox.queue_name,
                settings.dead_letter_exchange or "",
            )
            return None
        published = Properties(envelope.header)
        headers = published.headers()
        published_to, keys = _published_route(envelope, headers)
        death = Death(batch.outbox.queue_name, reason, now, published_to, keys, published.text(properties.EXPIRATION))
        blind_keys = envelope.blind_keys
        if settings.dead_letter_routing_key is not None:
            keys, blind_keys = [settings.dead_letter_routing_key], ()
            headers = tuple(entry for entry in headers if entry[0] != "CC")
        recorded = record_death(headers, death, envelope.dead or self.trust_publishers)
        headers = normalize(tuple((key, FieldValue(*value)) for key, value in recorded))
        all_keys = [*keys, *blind_keys]
        found = yield from route_in_steps(self._topology, exchange, all_keys, headers, envelope.header)
        targets = found.queues
        if reason != REJECTED:
            known = visited_queues(headers)
            for name in names_of(targets):
                if name in known:
                    self._warn_once(_CYCLE, batch.outbox.queue_name, name)
            targets = leave_out(targets, known)
        changes: dict[int, bytes | None] = {properties.HEADERS: encode_headers(headers), properties.EXPIRATION: None}
        dead = Envelope(
            encode_shortstr(exchange.name) + encode_shortstr(_octets(keys[0])[:255]),
            published.replaced(changes),
            envelope.persistent,
            envelope.priority,
            dead=True,
            blind_keys=blind_keys,
        )
        return _Letter(dead, targets, found.histories, found.varies)

    def _warn_once(self, text: str, source: str, target: str) -> None:
        """Log where dead letters of a queue do not arrive, unless it has been logged recently."""
        logged = text, source, target
        if logged in self._warned:
            return
        if len(self._warned) >= _WARNED_MAX:
            del self._warned[next(iter(self._warned))]
        self._warned[logged] = None
        log.warning(text, source, target, self._topology.vhost_name)


def _published_route(envelope: Envelope, headers: FieldTable) -> tuple[str, list[str]]:
    """Return exchange and routing keys, including those of CC, that a message was last published with."""
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
