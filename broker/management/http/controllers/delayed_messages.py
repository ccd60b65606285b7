"""Lists, shows, cancels and delivers messages that wait in an exchange x-delayed-message or for their retry."""

from __future__ import annotations

import asyncio
from typing import Final

from aiohttp import web

from leveret.broker.core.scheduling.slices import in_slices, run_in_slices
from leveret.broker.management.http.controller import Controller, route
from leveret.broker.management.http.controllers.exchanges import exchange_name
from leveret.broker.management.http.documents.messages import message_text, waiting_document
from leveret.broker.management.http.durability import wait_until_stored
from leveret.broker.management.http.request_bodies import read_integer
from leveret.broker.management.http.responses import LongText, bad_request, encode, missing
from leveret.broker.operations import single_messages as messages
from leveret.broker.operations.single_messages import Waiting

_PATH: Final = "{kind:exchange|queue}s/{vhost}/{name}/delayed"
_ONE: Final = f"{_PATH}/{{id}}"
_COUNT_DEFAULT: Final = 100
_COUNT_MAX: Final = 1000
#: Numbers of messages are at least 1 and take 64 bits.
_NUMBER_MAX: Final = (1 << 64) - 1


class DelayedMessages(Controller):
    """The resource ``delayed`` of exchanges and queues."""

    @route("GET", _PATH)
    async def list(self, request: web.Request) -> web.Response:
        """List waiting messages without their bodies, the next one that is due first."""
        schedule = self._open(request).schedule
        offset = _read(request, "offset", 0, 0, None)
        count = _read(request, "count", _COUNT_DEFAULT, 1, _COUNT_MAX)
        total = 0 if schedule is None else schedule.count
        text = LongText()
        text.add(f'{encode({"messages_delayed": total, "offset": offset})[:-1]},"messages":[')
        comma = ""
        async for each in in_slices(() if schedule is None else schedule.waiting(offset, count)):
            text.add(comma + encode(waiting_document(each, _has_delay(request))))
            comma = ","
        text.add("]}")
        return text.response()

    @route("GET", _ONE)
    async def show(self, request: web.Request) -> web.Response:
        """Show a waiting message with its body."""
        schedule = self._open(request).schedule
        encoding = request.query.get("encoding", "auto")
        if encoding not in ("auto", "base64"):
            raise bad_request("Unsupported encoding. Please use auto or base64.")
        truncate = _read(request, "truncate", -1, 0, None)
        found = None if schedule is None else schedule.find(self._number(request))
        if found is None:
            raise self._gone(request)
        document, limit = waiting_document(found, _has_delay(request)), None if truncate < 0 else truncate
        text = LongText()
        await run_in_slices(text.steps(message_text(document, found.message.body, encoding == "base64", limit)))
        return text.response()

    @route("DELETE", _ONE)
    async def cancel(self, request: web.Request) -> web.Response:
        """Remove a waiting message."""
        if not self._open(request).cancel(self._number(request)):
            raise self._gone(request)
        self._tell("cancelled", request)
        await wait_until_stored(self._broker)
        return web.Response(status=204)

    @route("POST", f"{_ONE}/deliver")
    async def deliver(self, request: web.Request) -> web.Response:
        """Treat a waiting message as if it were due."""
        waiting = self._open(request)
        done: asyncio.Future[bool] = asyncio.get_running_loop().create_future()

        def finish(was_waiting: bool) -> None:
            # The client may have gone.
            if not done.done():
                done.set_result(was_waiting)

        waiting.deliver_now(self._number(request), finish)
        if not await done:
            raise self._gone(request)
        self._tell("delivered", request)
        await wait_until_stored(self._broker)
        return web.Response(status=204)

    def _tell(self, what: str, request: web.Request) -> None:
        match = request.match_info
        about = {"vhost": match["vhost"], "name": match["name"], match["kind"]: match["name"], "message_count": 1}
        self._broker.events.tell(f"message.{what}", dict, {**about, "id": match["id"]})

    def _number(self, request: web.Request) -> int:
        """Return the number of the message in the path."""
        text = request.match_info["id"]
        if not (text.isascii() and text.isdigit()) or len(text) > len(str(_NUMBER_MAX)) or int(text) > _NUMBER_MAX:
            raise self._gone(request)
        return int(text)

    def _gone(self, request: web.Request) -> web.HTTPException:
        match = request.match_info
        where = f"{match['kind']} '{match['name']}' in vhost '{match['vhost']}'"
        return missing(f"no message {match['id']} waits in {where}")

    def _open(self, request: web.Request) -> Waiting:
        """Find the messages, which the user may see."""
        principal, name = self._access.require_connect(request), request.match_info["name"]
        if request.match_info["kind"] == "queue":
            return messages.open_queue(principal, name)
        return messages.open_exchange(principal, exchange_name(name))


def _has_delay(request: web.Request) -> bool:
    """Check whether the messages say how long they wait: those of exchanges do."""
    return request.match_info["kind"] == "exchange"


def _read(request: web.Request, name: str, default: int, least: int, most: int | None) -> int:
    """Return a number of the query."""
    text = request.query.get(name)
    if text is None:
        return default
    value = read_integer(text)
    if value < least or (most is not None and value > most):
        limits = f"{least} or more" if most is None else f"{least} to {most}"
        raise bad_request(f"{name} must be {limits}, is {value}")
    return value
