"""Counts the dead letters in a queue by where they come from and why. RabbitMQ does not have this resource."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from aiohttp import web

from leveret.broker.core.queues.browsing import Browsed, Browser
from leveret.broker.core.queues.queue import Queue
from leveret.broker.core.scheduling.slices import run_in_slices
from leveret.broker.management.http.controller import Controller, resource
from leveret.broker.management.http.responses import json_response
from leveret.broker.operations import queues
from leveret.policies.dead_letter import DeathOrigin, death_origin
from leveret.protocol.properties import Properties
from leveret.storage.message import Envelope

#: What one request reads at most, in messages and in bytes of their bodies.
_EXAMINED_MAX: Final = 10_000
_EXAMINED_BYTES: Final = 64 << 20
#: Different origins that are counted; those of further ones are counted together.
_ORIGINS_MAX: Final = 100
#: Messages that are looked at between two checks of the time slice.
_CHECK: Final = 32


class DeadLetters(Controller):
    """The resource ``/api/queues/{vhost}/{name}/dead-letters``."""

    def routes(self) -> list[web.RouteDef]:
        """Return the path and its handler."""
        return [*resource("queues/{vhost}/{name}/dead-letters", GET=self.count)]

    async def count(self, request: web.Request) -> web.Response:
        """Count the dead letters among the first messages, ready and unacked, by origin. Nothing changes."""
        principal = self._access.require_connect(request)
        queue = queues.open_for_browse(principal, request.match_info["name"])
        counting = _Counting(queue, principal.vhost.dead_letters.trust_publishers)
        await run_in_slices(counting.steps())
        return json_response(counting.document())


@dataclass(slots=True)
class _Count:
    """Dead letters of one origin.

    Args:
        messages: How many there are.
        oldest: When the first of them arrived in the queue, in microseconds since 1970; 0 if it is unknown.
        newest: When the last of them arrived.
    """

    messages: int
    oldest: int
    newest: int


class _Counting:
    """Counts the dead letters of a queue.

    Args:
        queue: The queue.
        trust_publishers: Whether the headers of dead-lettering that a publisher has set count, too.
    """

    def __init__(self, queue: Queue, trust_publishers: bool) -> None:
        self._queue = queue.name
        self._trust_publishers = trust_publishers
        self._browser = Browser(queue)
        self._examined = self._bytes = 0
        self._counts: dict[tuple[str, str, str], _Count] = {}
        self._others = _Count(0, 0, 0)
        self._kept: tuple[Envelope, DeathOrigin | None] | None = None

    def steps(self) -> Iterator[None]:
        """Look at the messages, in steps."""
        for step in self._browser.steps():
            for at, found in enumerate(step):
                if self._is_enough:
                    return
                self._examine(found)
                if at % _CHECK == _CHECK - 1:
                    yield
            yield

    @property
    def _is_enough(self) -> bool:
        return self._examined >= _EXAMINED_MAX or self._bytes >= _EXAMINED_BYTES

    def _examine(self, found: Browsed) -> None:
        envelope = found.message.envelope
        if self._kept is None or self._kept[0] is not envelope:
            is_trusted = envelope.dead or self._trust_publishers
            self._kept = envelope, death_origin(Properties(envelope.header).headers(), "first") if is_trusted else None
        self._examined += 1
        self._bytes += len(found.message.body)
        origin = self._kept[1]
        # A message that was returned still has the headers.
        if origin is None or origin.queue == self._queue:
            return
        key = origin.queue, origin.reason, origin.exchange
        count = self._counts.get(key)
        if count is None and len(self._counts) < _ORIGINS_MAX:
            count = self._counts[key] = _Count(0, 0, 0)
        count = count or self._others
        count.messages += 1
        if found.arrived:
            count.oldest = min(count.oldest or found.arrived, found.arrived)
            count.newest = max(count.newest, found.arrived)

    def document(self) -> dict[str, Any]:
        """Return what was counted as JSON, the largest numbers first."""
        origins: list[dict[str, Any]] = [
            {"queue": queue, "reason": reason, "exchange": exchange, **_shown(count)}
            for (queue, reason, exchange), count in self._counts.items()
        ]
        if self._others.messages:
            origins.append({"queue": None, "reason": None, "exchange": None, **_shown(self._others)})
        return {
            "scanned": self._examined,
            "complete": not self._is_enough,
            "dead_letters": sum(each["messages"] for each in origins),
            "origins": sorted(origins, key=lambda each: -each["messages"]),
        }


def _shown(count: _Count) -> dict[str, Any]:
    return {
        "messages": count.messages,
        "oldest": count.oldest // 1000 or None,
        "newest": count.newest // 1000 or None,
    }
