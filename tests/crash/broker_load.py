"""A client that does all that clients do to queues, as fast as it can, and writes down what it was promised."""

from __future__ import annotations

import random
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from tests.crash.ledger import Ledger, Place
from tests.support.management import Management
from tests.support.tables import Triple
from tests.support.wire import Channel, Connection, Delivery

_PREFETCH = 120
#: Seconds until dead letters have to be in their queue.
_PATIENCE = 120.0
#: Bodies are cut from this at a place that the message's number says.
_NOISE = random.Random(0).randbytes(8192)
#: The level of messages that have come back to a quorum queue.
RETURNED: Final = 1
_LAZY: Final[Triple] = ("x-queue-mode", "S", "lazy")


@dataclass(frozen=True)
class Kind:
    """A queue of the load."""

    name: str
    arguments: Sequence[Triple] = ()
    switched: bool = False
    quorum: bool = False
    levels: int = 1


@dataclass
class Used:
    """A queue as its client sees it."""

    kind: Kind
    ledger: Ledger
    channel: Channel
    held: dict[int, int] = field(default_factory=dict)


def body_of(number: int) -> bytes:
    """The body of a message: its number, and between 0 and 3000 further bytes."""
    size = number * 7919 % 3001 if number % 5 else number * 7919 % 100
    return b"%d:" % number + _NOISE[number % 4096 : number % 4096 + size]


def number_of(delivery: Delivery) -> int:
    """The number of a message, whose content must be what was published."""
    number = int(delivery.body.partition(b":")[0])
    assert delivery.body == body_of(number), f"the body of {number} has changed"
    assert delivery.properties["message_id"] == str(number)
    return number


class Client:
    """One connection with queues of its own."""

    def __init__(
        self, kinds: Sequence[Kind], letters: str, seed: int, letters_arguments: Sequence[Triple] = ()
    ) -> None:
        self.kinds = {kind.name: kind for kind in kinds}
        self.letters = Ledger(letters)
        self.ledgers = {name: Ledger(name) for name in self.kinds}
        self._letters_arguments = list(letters_arguments)
        self._marker = f"{letters}-marker"
        self._random = random.Random(seed)
        self._number = 0
        self._place = 0
        self.may_be_refused = False
        self.transient: set[int] = set()
        counted = ("published", "confirmed", "refused", "acked", "requeued", "dead-lettered", "purged")
        self.counts = dict.fromkeys(counted, 0)

    def connect(self, url: str, management: Management) -> None:
        """Begin (again): connect, declare, consume."""
        self._management = management
        self._connection = Connection(url, timeout=120)
        #: Done as soon as the broker answers anything that was sent after what they are about.
        self._unanswered: list[Callable[[], None]] = []
        #: Without the ledgers of those that had an answer.
        self._unconfirmed: deque[tuple[Ledger | None, int]] = deque()
        self._first_unconfirmed = 1
        self._publisher = self._connection.channel()
        self._publisher.confirm_select()
        self._committer = self._connection.channel()
        self._committer.tx_select()
        self._has_moved = False
        #: Dead letters since their queue was empty, and how many of them have been seen in it.
        self._letters_sent = self._letters_seen = 0
        declarer = self._connection.channel()
        declarer.queue_declare(self._marker, durable=True, arguments=[("x-max-length", "I", 1)])
        declarer.queue_declare(self.letters.queue, durable=True, arguments=self._letters_arguments)
        dead: list[Triple] = [
            ("x-dead-letter-exchange", "S", ""),
            ("x-dead-letter-routing-key", "S", self.letters.queue),
        ]
        self._used = []
        for name, kind in self.kinds.items():
            declarer.queue_declare(name, durable=True, arguments=[*kind.arguments, *dead])
            channel = self._connection.channel()
            channel.qos(_PREFETCH)
            channel.consume(name)
            self._used.append(Used(kind, self.ledgers[name], channel))

    def sync(self, channel: Channel) -> None:
        """Publish a message, and wait until it has been synced, and with it all that was done before."""
        channel.tx_select()
        channel.publish("", self._marker, b"", {"delivery_mode": 2})
        channel.tx_commit()

    def disconnect(self) -> None:
        """End the connection without connection.close."""
        self._connection.abort()

    def work(self) -> None:
        """Do one thing, whatever it is."""
        used = self._random.choice(self._used)
        things = [self._publish, self._settle, self._commit, self._purge, self._switch]
        (thing,) = self._random.choices(things, [50, 60, 5, 1, 3])
        thing(used)

    # Publishing

    def _publish(self, used: Used) -> None:
        for _ in range(self._random.randrange(1, 60)):
            self._unconfirmed.append((used.ledger, self._publish_one(used, self._publisher)))
        if self._random.random() < 0.5:
            self._ask(self._publisher)

    def _commit(self, used: Used) -> None:
        numbers = [self._publish_one(used, self._committer) for _ in range(self._random.randrange(1, 20))]
        self._committer.tx_commit()
        used.ledger.confirmed(numbers)
        self._answered()

    def _publish_one(self, used: Used, channel: Channel) -> int:
        rng, kind = self._random, used.kind
        self._number += 1
        number, persistent, level = self._number, rng.random() < 0.9, rng.randrange(kind.levels)
        used.ledger.published(number, self.places(1, level), persistent or kind.quorum)
        if not persistent:
            self.transient.add(number)
        properties: dict[str, Any] = {
            "message_id": str(number),
            "delivery_mode": 2 if persistent else 1,
            "priority": level,
        }
        channel.publish("", kind.name, body_of(number), properties)
        self.counts["published"] += 1
        return number

    def places(self, count: int, level: int = 0) -> list[Place]:
        """Places at the tail of a level."""
        self._place += count
        return [(-level, place) for place in range(self._place - count, self._place)]

    # Settling

    def _settle(self, used: Used) -> None:
        self._read()
        if not used.held:
            self._ask(used.channel)
        for _ in range(self._random.randrange(1, 25)):
            if not used.held:
                break
            outcome = self._random.choices([self._ack, self._requeue, self._bury], [6, 2, 2])[0]
            tags = sorted(used.held)
            tag = self._random.choice(tags)
            multiple = self._random.random() < 0.1
            chosen = [each for each in tags if each <= tag] if multiple else [tag]
            outcome(used, [used.held.pop(each) for each in chosen], tag, multiple)
        if self._random.random() < 0.5:
            self._ask(used.channel)

    def _ack(self, used: Used, numbers: list[int], tag: int, multiple: bool) -> None:
        used.ledger.leaving(numbers)
        self._unanswered.append(lambda: used.ledger.ended(numbers))
        used.channel.ack(tag, multiple=multiple)
        self.counts["acked"] += len(numbers)

    def _requeue(self, used: Used, numbers: list[int], tag: int, multiple: bool) -> None:
        if used.kind.quorum:
            places = self.places(len(numbers), RETURNED)
            used.ledger.moved(numbers, places)
            self._unanswered.append(lambda: used.ledger.stands(numbers, places))
            self._has_moved = True
        used.channel.nack(tag, multiple=multiple)
        self.counts["requeued"] += len(numbers)

    def _bury(self, used: Used, numbers: list[int], tag: int, multiple: bool) -> None:
        places = self.places(len(numbers))
        for number in numbers:
            self.letters.published(number, places, number not in self.transient, used.kind.name)
        used.ledger.leaving(numbers, letters=True)
        self._unanswered.append(lambda: used.ledger.ended(numbers))
        self._unanswered.append(lambda: self.letters.confirmed(numbers))
        self._has_moved = True
        self._letters_sent += len(numbers)
        used.channel.nack(tag, multiple=multiple, requeue=False)
        self.counts["dead-lettered"] += len(numbers)

    # Other things

    def _purge(self, used: Used) -> None:
        if self._random.random() < 0.5:
            self._read()
            self._await_letters()
            self.letters.leaving(list(self.letters.kept))
            purged = self._publisher.queue_purge(self.letters.queue).message_count
            assert purged == self._letters_sent, f"{self.letters.queue}: {purged} purged, not {self._letters_sent}"
            self._letters_sent = self._letters_seen = 0
            # What was sent before has been done before.
            self._answered()
            self.letters.ended(list(self.letters.kept))
            return
        ready = used.ledger.kept.keys() - set(used.held.values())
        used.ledger.leaving(ready)
        self.counts["purged"] += used.channel.queue_purge(used.kind.name).message_count
        self._answered()
        taken = ready & set(used.held.values())
        used.ledger.staying(taken & used.ledger.kept.keys())
        used.ledger.ended(ready - taken)

    def _switch(self, used: Used) -> None:
        if used.kind.switched:
            mode = self._random.choice(["lazy", "default"])
            policy = {"pattern": f"^{used.kind.name}$", "definition": {"queue-mode": mode}}
            self._management.request("PUT", "policies", "/", used.kind.name, body=policy)

    # Reading

    def _ask(self, channel: Channel) -> None:
        """Have all that was sent until now answered."""
        channel.sync()
        self._answered()

    def _read(self) -> None:
        """Take what has come, without waiting."""
        try:
            while True:
                self._connection.read(0.0005)
        except TimeoutError:
            pass
        self._sort()

    def _answered(self) -> None:
        if self._has_moved:
            self._await_letters()
            # Where they were they stay until they are on the disk where they are, and this is on it later.
            self._committer.publish("", self._marker, b"", {"delivery_mode": 2})
            self._committer.tx_commit()
            self._has_moved = False
        for each in self._unanswered:
            each()
        self._unanswered.clear()
        self._sort()

    def _await_letters(self) -> None:
        """Wait until all dead letters are in their queue: an answer does not say that, as they are made in slices."""
        deadline = time.monotonic() + _PATIENCE
        while self._letters_seen < self._letters_sent:
            assert time.monotonic() < deadline, f"{self.letters.queue}: {self._letters_seen} of {self._letters_sent}"
            self._letters_seen = self._publisher.queue_declare(self.letters.queue, passive=True).message_count

    def _sort(self) -> None:
        """Take deliveries and confirms."""
        for used in self._used:
            pending = used.channel.pending
            while pending:
                delivery = pending.popleft()
                used.held[delivery.delivery_tag] = number_of(delivery)
        self._take_confirms()

    def _take_confirms(self) -> None:
        confirms = self._publisher.confirms
        while confirms:
            confirm = confirms.popleft()
            assert confirm.ack or self.may_be_refused, "a publish was refused"
            if confirm.multiple:
                while self._first_unconfirmed <= confirm.delivery_tag:
                    self._take_confirm(confirm.ack, *self._unconfirmed.popleft())
                    self._first_unconfirmed += 1
            elif (at := confirm.delivery_tag - self._first_unconfirmed) >= 0:
                answered, self._unconfirmed[at] = self._unconfirmed[at], (None, 0)
                self._take_confirm(confirm.ack, *answered)

    def _take_confirm(self, is_confirmed: bool, ledger: Ledger | None, number: int) -> None:
        if ledger is None:
            # It had an answer of its own.
            return
        if is_confirmed:
            ledger.confirmed([number])
        self.counts["confirmed" if is_confirmed else "refused"] += 1


def make_clients(seed: int) -> list[Client]:
    """Clients that between them use queues of every kind."""
    quorum = [("x-queue-type", "S", "quorum"), ("x-delivery-limit", "l", 1_000_000)]
    return [
        Client([Kind("default"), Kind("lazy", [_LAZY])], "letters-0", seed),
        Client([Kind("switched", switched=True), Kind("quorum", quorum, quorum=True)], "letters-1", seed + 1, [_LAZY]),
        Client(
            [
                Kind("priority", [("x-max-priority", "I", 3)], levels=4, switched=True),
                Kind("lazy-priority", [("x-max-priority", "I", 2), _LAZY], levels=3),
            ],
            "letters-2",
            seed + 2,
        ),
    ]
