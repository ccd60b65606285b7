"""Keeps who acts for a request apart from who acts for others, while the request waits."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Generator
from typing import Any, TypeVar

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from leveret.broker.core.events import BROKER, Events

Result = TypeVar("Result")


def act_for_requests(events: Events) -> Middleware:
    """Return a middleware with which a request has an actor of its own: its user, from the login on."""

    @web.middleware
    async def act(request: web.Request, handler: Handler) -> web.StreamResponse:
        return await _Acting(events, _run(handler, request))

    return act


async def _run(handler: Handler, request: web.Request) -> web.StreamResponse:
    return await handler(request)


class _Acting(Awaitable[Result]):
    """Runs a coroutine. Whenever it waits the actor is the broker, and when it goes on its own one.

    Args:
        work: The coroutine, which may set the actor.
    """

    __slots__ = ("_events", "_work")

    def __init__(self, events: Events, work: Coroutine[Any, Any, Result]) -> None:
        self._events = events
        self._work = work

    def __await__(self) -> Generator[Any, Any, Result]:
        """Run the coroutine."""
        events, actor = self._events, BROKER
        step: Callable[[Any], Any] = self._work.send
        value: Any = None
        while True:
            events.actor = actor
            try:
                waited = step(value)
            except StopIteration as end:
                result: Result = end.value
                return result
            finally:
                actor, events.actor = events.actor, BROKER
            try:
                step, value = self._work.send, (yield waited)
            except BaseException as error:  # noqa: BLE001 - it is for the coroutine, as after any await
                step, value = self._work.throw, error
