"""Dead-lettering: from a queue that drops a message to the queues behind its dead-letter exchange.

Source: https://www.rabbitmq.com/docs/dlx, and RabbitMQ 3.10.8 observed.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING, Final, NamedTuple, cast

from broker.core.routing import route
from policies.dead_letter import REJECTED, Death, goes_in_circles, record_death
from protocol import properties
from protocol.field_table import FieldTable, find, normalize
from protocol.properties import Properties, encode_headers
from protocol.short_strings import encode_shortstr
from storage.message import Envelope, Message

if TYPE_CHECKING:
    from broker.core.queues.queue import Queue
    from broker.core.vhost import VirtualHost

log = logging.getLogger("leveret.queue")


_envelope: Final = attrgetter("envelope")


class _Letter(NamedTuple):
    """What messages with one envelope become, and where they go."""

    envelope: Envelope
    targets: tuple[Queue, ...]


class DeadLetters:
    """The dead-lettering of one virtual host.

    Args:
        vhost: The virtual host.
        trust_publishers: An x-death header that a publisher made up counts as the broker's own, as in 3.10.8.
    """

    def __init__(self, vhost: VirtualHost, trust_publishers: bool) -> None:
        self._vhost = vhost
        self._trust_publishers = trust_publishers
        self._work: deque[tuple[Queue, Sequence[Message], str]] = deque()
        self._working = False
        self._warned: set[tuple[str, str]] = set()
        #: The last letter and what it was made for: dropped messages come in runs.
        self._made_for: object = None
        self._made: _Letter | None = None

    def publish(self, queue: Queue, messages: Sequence[Message], reason: str) -> None:
        """Publish messages to a queue's dead-letter exchange, oldest first.

        A dead letter may push others out of a full queue; those wait here, so that long chains of queues need
        no deep stack.

        Args:
            queue: Whence they come.
            messages: In order.
            reason: Why.
        """
        if queue.settings.dead_letter_exchange is None:
            return
        self._work.append((queue, messages, reason))
        if not self._working:
            with self.held():
                pass

    @contextmanager
    def held(self) -> Iterator[None]:
        """Hold back all dead letters until the end of the block: not all that they may reach is there yet."""
        self._working = True
        try:
            yield
            while self._work:
                self._publish(*self._work.popleft())
        finally:
            self._working = False

    def _publish(self, queue: Queue, messages: Sequence[Message], reason: str) -> None:
        for envelope, run in groupby(messages, key=_envelope):
            letter = self._letter(queue, envelope, reason)
            originals = list(run)
            taken, arrived = (0, 0) if letter is None else self._send(queue, letter, originals, reason)
            queue.dead_lettered(originals, taken, arrived, reason)

    def _send(self, queue: Queue, letter: _Letter, originals: list[Message], reason: str) -> tuple[int, int]:
        """Publish a letter to its targets; return how many of its messages all have taken, and how many any has."""
        dead = letter.envelope
        letters = [Message(dead, message.body) for message in originals]
        queue.counters.dead_lettered[reason] += len(letters)
        taken, arrived = len(letters) if letter.targets else 0, 0
        for target in letter.targets:
            if not target.deleted:
                accepted = target.publish(letters, len(letters) * len(letters[0].body))
                taken, arrived = min(taken, accepted), max(arrived, accepted)
        return taken, arrived

    def _letter(self, queue: Queue, envelope: Envelope, reason: str) -> _Letter | None:
        """Make the letter, or take the last one if it was the same."""
        now = self._vhost.timers.now() // 1_000_000
        made_for = (envelope, queue, reason, now, queue.settings, self._vhost.topology.generation)
        if made_for != self._made_for:
            self._made_for = made_for
            self._made = self._make_letter(queue, envelope, reason, now)
        return self._made

    def _make_letter(self, queue: Queue, envelope: Envelope, reason: str, now: int) -> _Letter | None:
        settings = queue.settings
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
        found = route(self._vhost.topology, exchange, [*keys, *blind_keys], headers)
        targets = cast("tuple[Queue, ...]", found.queues)
        if reason != REJECTED:
            targets = tuple(target for target in targets if not self._is_cycle(queue, headers, target))
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

    def _is_cycle(self, queue: Queue, headers: FieldTable, target: Queue) -> bool:
        if not goes_in_circles(headers, target.name):
            return False
        if (queue.name, target.name) not in self._warned:
            self._warned.add((queue.name, target.name))
            log.warning(
                "dead letters from queue '%s' reach queue '%s' in vhost '%s' in a cycle; they are dropped there",
                queue.name,
                target.name,
                self._vhost.name,
            )
        return True


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
