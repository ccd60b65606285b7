"""A client with delayed messages: each waits in its exchange, or has come, and none is early."""

from __future__ import annotations

import json
import random
import time
import urllib.request
from collections import Counter
from typing import Any, Final
from urllib.error import HTTPError

from tests.crash.broker_load import number_of
from tests.crash.comparison import End
from tests.crash.confirmed_publisher import ConfirmedPublisher
from tests.support.leveret_process import LeveretProcess
from tests.support.management import Management
from tests.support.wire import Connection

_PATIENCE: Final = 120.0
_EXCHANGE: Final = "later"
_QUEUE: Final = "due"
#: In milliseconds.
_DELAYS: Final = (1, 20, 200, 1000, 1000)
#: A delay that is not over before the end, and maximum number of messages that have it.
_LONG_DELAY: Final = 30 * 86_400_000
_MOST: Final = 500
#: Messages in a page of the API, at most.
_PAGE: Final = 1000


class DelayedClient:
    """One connection with an exchange x-delayed-message, and a queue for what is due."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._number = 0
        self.confirmed: set[int] = set()
        #: When each message is due at the earliest, in seconds since 1970.
        self._due: dict[int, float] = {}
        self._arrived: set[int] = set()
        self._long_delays = 0
        self.may_be_refused = False
        self.is_clock_right = True
        self.counts: Counter[str] = Counter()

    def connect(self, url: str, management: Management) -> None:
        """Begin (again): connect and declare."""
        self._connection = Connection(url, timeout=_PATIENCE)
        channel = self._connection.channel()
        inner = [("x-delayed-type", "S", "direct")]
        channel.exchange_declare(_EXCHANGE, "x-delayed-message", durable=True, arguments=inner)
        channel.queue_declare(_QUEUE, durable=True)
        channel.queue_bind(_QUEUE, _EXCHANGE, _QUEUE)
        self._publisher = ConfirmedPublisher(self._connection.channel(), self.confirmed, self.may_be_refused)

    def disconnect(self) -> None:
        """End the connection without connection.close."""
        self.counts["delayed: confirmed"] += self._publisher.acknowledged
        self._connection.abort()

    def work(self) -> None:
        """Publish some messages."""
        for _ in range(self._random.randrange(1, 20)):
            self._number += 1
            delay = self._choose_delay()
            self._due[self._number] = time.time() + delay / 1000
            headers = [("x-delay", "l", delay)]
            self._publisher.publish(self._number, _EXCHANGE, _QUEUE, headers=headers)
        self._publisher.wait(self._random.choice((0, 50)))

    def _choose_delay(self) -> int:
        if self._random.random() < 0.2 and self._long_delays < _MOST:
            self._long_delays += 1
            return _LONG_DELAY
        return self._random.choice(_DELAYS)

    def compare(self, process: LeveretProcess, end: End) -> None:
        """Compare what waits and what has come with what was promised, after the broker's end; take what has come."""
        deadline, came = time.monotonic() + _PATIENCE, list[int]()
        while True:
            waiting = self._waiting(process)
            came += self._come(process)
            missing = self.confirmed.difference(waiting, came, self._arrived)
            # Many that are due at once are on their way for a moment.
            if not missing or time.monotonic() > deadline:
                break
        assert not missing, f"delayed, confirmed and lost: {sorted(missing)}"
        self.counts["delayed: found"] += len(waiting.union(came))
        # Allowed if the broker ended right after it was due.
        self.counts["delayed: came twice"] += len(came) - len(set(came) - self._arrived)
        self._arrived.update(came)
        self._await_due(process)

    def missing(self, process: LeveretProcess) -> int:
        """Return how many confirmed messages are missing, as after damage."""
        return len(self.confirmed.difference(self._waiting(process), self._come(process), self._arrived))

    def _await_due(self, process: LeveretProcess) -> None:
        """Wait until nothing waits whose time has come."""
        deadline = time.monotonic() + _PATIENCE
        while self.is_clock_right:
            now = time.time()
            late = [number for number in self._waiting(process) if self._due[number] < now]
            if not late:
                break
            assert time.monotonic() < deadline, f"delayed, and not delivered when they were due: {late}"

    def _waiting(self, process: LeveretProcess) -> set[int]:
        """Return what waits. Asked for before what has come: so a message that leaves meanwhile is in both."""
        waiting = set[int]()
        offset = self._page(process, 0)["messages_delayed"]
        # From the last page to the first: what is behind messages that leave meanwhile moves to where is yet to look.
        while offset > 0:
            offset = max(0, offset - _PAGE)
            messages = self._page(process, offset)["messages"]
            waiting.update(int(each["properties"]["message_id"]) for each in messages)
        return waiting

    def _page(self, process: LeveretProcess, offset: int) -> dict[str, Any]:
        management = Management(process.http_url)
        url = f"{management.base}/api/exchanges/%2F/{_EXCHANGE}/delayed?count={_PAGE}&offset={offset}"
        request = urllib.request.Request(url, headers={"Authorization": management.authorization})
        try:
            with urllib.request.urlopen(request, timeout=_PATIENCE) as response:
                page: dict[str, Any] = json.load(response)
                return page
        except HTTPError as error:
            if error.code == 404:
                # Its definition may be what was damaged.
                return {"messages_delayed": 0, "messages": []}
            raise

    def _come(self, process: LeveretProcess) -> list[int]:
        """Take what has come; return its numbers, which may be there twice."""
        numbers: list[int] = []
        with Connection(process.url, timeout=_PATIENCE) as connection:
            channel = connection.channel()
            while (delivery := channel.get(_QUEUE, no_ack=True)) is not None:
                number = number_of(delivery)
                early = self._due[number] - time.time()
                assert early <= 0 or not self.is_clock_right, f"delayed message {number} is {early} s early"
                numbers.append(number)
        return numbers
