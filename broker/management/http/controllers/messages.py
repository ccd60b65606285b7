"""Messages of a queue: get, look at, move and delete them, count dead letters; and those that wait until they are due.

RabbitMQ only has the first of these.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from aiohttp import web

from leveret.broker.core.queues.browsing import Browsed, Browser, Place, read_place
from leveret.broker.core.queues.classic_queue import ClassicQueue
from leveret.broker.core.queues.message_selector import Selector
from leveret.broker.core.queues.queue import Holder, Queue
from leveret.broker.core.scheduling.slices import run_in_slices
from leveret.broker.core.vhosts.event_fields import counted_fields
from leveret.broker.management.http.access import http_origin
from leveret.broker.management.http.controller import Controller, route
from leveret.broker.management.http.controllers.exchanges import exchange_name
from leveret.broker.management.http.documents.messages import (
    browsed_document,
    got_document,
    message_text,
    waiting_document,
)
from leveret.broker.management.http.durability import wait_until_settled, wait_until_stored
from leveret.broker.management.http.request_bodies import (
    parse_integer,
    read_flag,
    read_integer,
    read_object,
    read_text,
    require_keys,
)
from leveret.broker.management.http.responses import (
    LongText,
    bad_request,
    bad_request_if,
    encode,
    json_response,
    missing,
    not_authorised,
)
from leveret.broker.operations import queues
from leveret.broker.operations import single_messages as messages
from leveret.broker.operations.jobs.job_options import read_move_options
from leveret.broker.operations.jobs.returning import MoveEnd
from leveret.broker.operations.principal import Principal
from leveret.broker.operations.single_messages import Removal, Waiting
from leveret.policies.dead_letter import DeathOrigin, death_origin
from leveret.policies.message_filter import MessageFilter, read_filter
from leveret.protocol.constants import INT64_END
from leveret.protocol.faults import AmqpFault, ReplyCode
from leveret.protocol.properties import Properties
from leveret.storage.interface import Entry
from leveret.storage.message import Envelope

#: Messages that one request deletes at most.
_KEYS_MAX: Final = 10_000
#: How messages are settled after they were got.
_ACK_MODES: Final = ("ack_requeue_true", "ack_requeue_false", "reject_requeue_true", "reject_requeue_false")


class QueueMessages(Controller):
    """The resources of the messages of a queue, except of those that wait until they are due."""

    @route("POST", "queues/{vhost}/{name}/get")
    async def get(self, request: web.Request) -> web.Response:
        """Get messages. The body has count, ackmode and encoding, optionally truncate."""
        principal = self._access.require_connect(request)
        document = await read_object(request)
        mode = document.get("ackmode", document.get("ack_mode"))
        require_keys({**document, **({} if mode is None else {"ackmode": mode})}, "ackmode", "count", "encoding")
        count = read_integer(document["count"])
        truncate = read_integer(document["truncate"]) if "truncate" in document else None
        as_base64 = _is_base64(document["encoding"])
        if mode not in _ACK_MODES:
            raise bad_request(f"Unsupported ackmode. Please use one of {', '.join(_ACK_MODES)}.")
        try:
            queue = queues.open_for_get(principal, request.match_info["name"])
        except AmqpFault as fault:
            raise _get_error(fault) from None
        if truncate is not None and truncate < 0:
            raise bad_request(f"truncate must be 0 or more, is {truncate}")
        return await _get(principal, queue, count, str(mode), as_base64, truncate)

    @route("POST", "queues/{vhost}/{name}/move-messages")
    async def move(self, request: web.Request) -> web.Response:
        """Move messages to another queue. The body has to, optionally limit and filter; job and rate for a job."""
        principal = self._access.require_connect(request)
        document = await read_object(request, "to")
        if document.get("job") is True:
            return self._begin_job(principal, request.match_info["name"], document)
        target_name, source_name = read_text(document, "to"), request.match_info["name"]
        with bad_request_if(ValueError):
            options = read_move_options(document)
        if options.rate is not None:
            raise bad_request("rate needs job to be true")
        source, target = queues.open_for_move(principal, source_name, target_name)
        if source is target:
            raise bad_request(f"queue '{target_name}' is source and target")
        job, move = await self._context.jobs.move(principal, source, options)
        end = MoveEnd.DELETED if source.deleted or target.deleted else move.end
        return json_response(
            {
                "moved": move.counts.returned,
                "scanned": move.counts.scanned,
                "complete": end in (MoveEnd.EMPTY, MoveEnd.LIMIT),
                "reason": job.error if end is None else end.value,
                "unreadable": move.unreadable,
                "messages_ready": 0 if source.deleted else source.ready_count(),
            }
        )

    @route("POST", "queues/{vhost}/{name}/delete-messages")
    async def delete(self, request: web.Request) -> web.Response:
        """Delete messages by their keys. The body has queue_id and keys, optionally dry_run."""
        principal = self._access.require_connect(request)
        document = await read_object(request, "queue_id", "keys")
        keys, is_trial = _read_keys(document["keys"]), read_flag(document, "dry_run")
        queue_id = read_integer(document["queue_id"])
        queue = queues.open_for_removal(principal, request.match_info["name"], queue_id)
        removal = Removal(queue, keys, is_trial)
        await run_in_slices(removal.steps())
        if removal.removed and not is_trial:
            self._broker.events.tell("message.deleted", counted_fields, queue, removal.removed)
            await wait_until_settled(self._broker)
        return json_response(
            {
                "deleted": removal.removed,
                "dry_run": is_trial,
                "skipped": [
                    {"store_priority": each.level, "seq": each.seq, "reason": each.reason} for each in removal.skipped
                ],
                "messages_ready": 0 if queue.deleted else queue.ready_count(),
            }
        )

    @route("GET", "queues/{vhost}/{name}/browse")
    async def browse(self, request: web.Request) -> web.Response:
        """Show a page of messages, ready and unacked, oldest first. Nothing changes.

        The query may have from, count, filter, truncate and encoding.
        """
        principal = self._access.require_connect(request)
        asked = _read(request.query)
        queue = queues.open_for_browse(principal, request.match_info["name"])
        page = _Page(queue, asked)
        await run_in_slices(page.steps())
        rest = {"next": page.next and str(page.next), "scanned": page.examined, "unreadable": page.unreadable}
        page.text.add(f"],{encode(rest)[1:]}")
        return page.text.response()

    @route("GET", "queues/{vhost}/{name}/dead-letters")
    async def count_dead_letters(self, request: web.Request) -> web.Response:
        """Count the dead letters among the first messages, ready and unacked, by origin. Nothing changes."""
        principal = self._access.require_connect(request)
        queue = queues.open_for_browse(principal, request.match_info["name"])
        counting = _Counting(queue, principal.vhost.dead_letters.trust_publishers)
        await run_in_slices(counting.steps())
        return json_response(counting.document())

    def _begin_job(self, principal: Principal, name: str, document: Mapping[str, Any]) -> web.Response:
        """Let a job move the messages."""
        if name == document["to"]:
            raise bad_request(f"queue '{name}' is source and target")
        with bad_request_if(ValueError):
            job = self._context.jobs.begin("move", principal, name, document)
        return json_response(job.shown(), status=201)


def _is_base64(encoding: object) -> bool:
    """Check whether bodies are encoded as base64 even if they are UTF-8."""
    if encoding not in ("auto", "base64"):
        raise bad_request("Unsupported encoding. Please use auto or base64.")
    return encoding == "base64"


def _read_keys(value: object) -> list[tuple[int, int]]:
    """Return the keys of a body: priority in the files, and number.

    Raises:
        HTTPBadRequest: An entry is not a key, or there are too many.
    """
    if not isinstance(value, list):
        raise bad_request("keys must be a list of pairs [store_priority, seq]")
    if len(value) > _KEYS_MAX:
        raise bad_request(f"keys has {len(value)} entries, {_KEYS_MAX} are allowed in a request")
    for pair in value:
        is_pair = isinstance(pair, list) and [type(part) for part in pair] == [int, int]
        if not is_pair or not (0 <= pair[0] < 256 and 1 <= pair[1] < INT64_END):
            raise bad_request(f"keys has {encode(pair)[:100]}, which is not a pair [store_priority, seq]")
    return [(level, seq) for level, seq in value]


def _get_error(fault: AmqpFault) -> web.HTTPException:
    """Return the error of a refused get. RabbitMQ uses a connection for it, so its texts differ from others."""
    if fault.code is ReplyCode.ACCESS_REFUSED:
        return not_authorised(fault.text)
    if fault.code is ReplyCode.NOT_IMPLEMENTED:
        return bad_request(f"{fault.code:d} {fault.explanation}")
    return missing(fault.text) if fault.code is ReplyCode.NOT_FOUND else bad_request(str(fault))


async def _get(
    principal: Principal, queue: ClassicQueue, count: int, mode: str, as_base64: bool, truncate: int | None
) -> web.Response:
    """Take messages, then settle all of them; return the response with them."""
    vhost = principal.vhost
    holder = None if mode == "ack_requeue_false" else Holder(queue)
    taken: list[Entry] = []
    if holder is not None:
        holder.taken = taken
    text = LongText()

    def steps() -> Iterator[None]:
        while (count < 0 or len(taken) < count) and not queue.deleted:
            entry = queues.get(queue, holder, vhost.statistics.channels)
            if entry is None:
                break
            if vhost.tracer is not None:
                vhost.tracer.delivered(http_origin(principal.user), queue.name, [entry])
            taken.append(entry)
            text.add("," if len(taken) > 1 else "[")
            document = got_document(entry, queue.ready_count())
            yield from text.steps(message_text(document, entry[1].body, as_base64, truncate))

    try:
        await run_in_slices(steps())
    finally:
        if holder is not None and taken:
            queue.release(holder, taken)
            if mode == "reject_requeue_false":
                queue.reject(taken)
            else:
                queue.requeue(taken)
    text.add("]" if taken else "[]")
    return text.response()


_COUNT: Final = 100
_COUNT_MAX: Final = 1000
#: What one request reads at most, in messages and in bytes of their bodies.
_EXAMINED_MAX: Final = 100_000
_EXAMINED_BYTES: Final = 64 << 20
#: Bytes of bodies after which a page ends.
_PAGE_BYTES: Final = 8 << 20


@dataclass(frozen=True, slots=True)
class _Request:
    """What is asked for.

    Args:
        start: The first place; None for the beginning.
        count: Maximum number of messages.
        wanted: Selects messages.
        truncate: Maximum length of a shown body in bytes; None for no limit.
        as_base64: Whether to encode bodies as base64 even if they are UTF-8.
    """

    start: Place | None
    count: int
    wanted: MessageFilter
    truncate: int | None
    as_base64: bool


class _Page:
    """One page of messages.

    Args:
        asked: What is asked for.

    Attributes:
        text: The response as JSON, up to the last message.
        next: The place to continue from; None at the end.
        examined: Number of messages that were read.
    """

    def __init__(self, queue: Queue, asked: _Request) -> None:
        self._timers = queue.host.timers
        self._asked = asked
        self._browser = Browser(queue, asked.start)
        self._selector = Selector(asked.wanted)
        self.text = LongText()
        self.text.add('{"messages":[')
        self._shown = 0
        self.next: Place | None = None
        self.examined = 0
        self._examined_bytes = self._shown_bytes = 0
        #: Messages that the filter could not check, by reason.
        self._unchecked: Counter[str] = Counter()

    @property
    def unreadable(self) -> str | None:
        """Why messages are left out that the system, or the filter, cannot read; None if there are none."""
        failure = self._browser.failure
        reasons = [] if failure is None else [failure.strerror or str(failure)]
        reasons += [f"{count} not checked: {problem}" for problem, count in self._unchecked.items()]
        return "; ".join(reasons) or None

    def steps(self) -> Iterator[None]:
        """Collect the messages, in steps."""
        for step in self._browser.steps():
            for at, found in enumerate(step):
                yield from self._examine(found)
                if self._is_full():
                    self.next = step[at + 1].place if at + 1 < len(step) else self._browser.place
                    return
                yield
            yield
        self.next = self._browser.place

    def _examine(self, found: Browsed) -> Iterator[None]:
        asked, now = self._asked, self._timers.now()
        size = len(found.message.body)
        self.examined += 1
        self._examined_bytes += size
        wanted = yield from self._selector.steps(found.message, found.arrived, now)
        if self._selector.problem:
            self._unchecked[self._selector.problem] += 1
        if wanted:
            self.text.add("," if self._shown else "")
            self._shown += 1
            document, body = browsed_document(found, now), found.message.body
            yield from self.text.steps(message_text(document, body, asked.as_base64, asked.truncate))
            self._shown_bytes += size if asked.truncate is None else min(size, asked.truncate)

    def _is_full(self) -> bool:
        return (
            self._shown >= self._asked.count
            or self._shown_bytes >= _PAGE_BYTES
            or self.examined >= _EXAMINED_MAX
            or self._examined_bytes >= _EXAMINED_BYTES
        )


def _read(query: Mapping[str, str]) -> _Request:
    """Read the query.

    Raises:
        HTTPBadRequest: A parameter is invalid.
    """
    as_base64 = _is_base64(query.get("encoding", "auto"))
    count = _number(query, "count", 1, _COUNT_MAX)
    with bad_request_if(ValueError):
        start = read_place(query["from"]) if query.get("from") else None
        wanted = read_filter(_filter_document(query.get("filter", "")))
    return _Request(start, _COUNT if count is None else count, wanted, _number(query, "truncate", 0), as_base64)


def _filter_document(text: str) -> object:
    """Return the filter of a query: JSON, or conditions as text."""
    if not text.strip():
        return None
    if not text.lstrip().startswith("{"):
        return text
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        # One condition per line may be JSON, too.
        return text


def _number(query: Mapping[str, str], name: str, least: int, most: int = 1 << 62) -> int | None:
    if name not in query:
        return None
    try:
        number = parse_integer(query[name])
    except ValueError:
        number = least - 1
    if not least <= number <= most:
        bounds = f"{least} to {most}" if most < 1 << 62 else f"{least} or more"
        raise bad_request(f"{name} must be {bounds}, is {query[name]}")
    return number


#: What one request reads at most, in messages and in bytes of their bodies.
_COUNTED_MAX: Final = 10_000
_COUNTED_BYTES: Final = 64 << 20
#: Different origins that are counted; those of further ones are counted together.
_ORIGINS_MAX: Final = 100
#: Messages that are looked at between two checks of the time slice.
_CHECK: Final = 32


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
        return self._examined >= _COUNTED_MAX or self._bytes >= _COUNTED_BYTES

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
    return {"messages": count.messages, "oldest": count.oldest // 1000 or None, "newest": count.newest // 1000 or None}


_PATH: Final = "{kind:exchange|queue}s/{vhost}/{name}/delayed"
_ONE: Final = f"{_PATH}/{{id}}"
#: Numbers of messages are at least 1 and take 64 bits.
_NUMBER_MAX: Final = (1 << 64) - 1


class DelayedMessages(Controller):
    """The resource ``delayed`` of exchanges and queues."""

    @route("GET", _PATH)
    async def list(self, request: web.Request) -> web.Response:
        """List waiting messages without their bodies, the next one that is due first."""
        schedule = self._open(request).schedule
        offset = _number_or(request, "offset", 0, 0, None)
        count = _number_or(request, "count", _COUNT, 1, _COUNT_MAX)
        total = 0 if schedule is None else schedule.count
        text = LongText()
        text.add(f'{encode({"messages_delayed": total, "offset": offset})[:-1]},"messages":[')
        waiting = () if schedule is None else schedule.waiting(offset, count)
        await text.add_all(waiting, lambda each: waiting_document(each, _has_delay(request)))
        text.add("]}")
        return text.response()

    @route("GET", _ONE)
    async def show(self, request: web.Request) -> web.Response:
        """Show a waiting message with its body."""
        schedule = self._open(request).schedule
        as_base64 = _is_base64(request.query.get("encoding", "auto"))
        truncate = _number_or(request, "truncate", -1, 0, None)
        found = None if schedule is None else schedule.find(self._number(request))
        if found is None:
            raise self._gone(request)
        document, limit = waiting_document(found, _has_delay(request)), None if truncate < 0 else truncate
        text = LongText()
        await run_in_slices(text.steps(message_text(document, found.message.body, as_base64, limit)))
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


def _number_or(request: web.Request, name: str, default: int, least: int, most: int | None) -> int:
    """Return a number of the query."""
    text = request.query.get(name)
    if text is None:
        return default
    value = read_integer(text)
    if value < least or (most is not None and value > most):
        limits = f"{least} or more" if most is None else f"{least} to {most}"
        raise bad_request(f"{name} must be {limits}, is {value}")
    return value
