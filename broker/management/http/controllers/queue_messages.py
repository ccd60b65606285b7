"""Gets messages of a queue, moves messages to another queue, and deletes messages by their keys."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, Final

from aiohttp import web

from leveret.broker.core.queues.classic_queue import ClassicQueue
from leveret.broker.core.queues.queue import Holder
from leveret.broker.core.scheduling.slices import run_in_slices
from leveret.broker.core.vhosts.event_fields import counted_fields
from leveret.broker.management.http.access import http_origin
from leveret.broker.management.http.controller import Controller, route
from leveret.broker.management.http.documents.messages import got_document, message_text
from leveret.broker.management.http.durability import wait_until_settled
from leveret.broker.management.http.error_responses import bad_request, missing, not_authorised
from leveret.broker.management.http.json_fields import read_flag, read_integer, read_text, require_keys
from leveret.broker.management.http.request_bodies import read_object
from leveret.broker.management.http.responses import LongText, encode, json_response
from leveret.broker.operations import queues
from leveret.broker.operations.jobs.job_options import read_move_options
from leveret.broker.operations.jobs.returning import MoveEnd
from leveret.broker.operations.principal import Principal
from leveret.broker.operations.single_messages import Removal
from leveret.protocol.constants import INT64_END
from leveret.protocol.faults import AmqpFault, ReplyCode
from leveret.storage.interface import Entry

#: Messages that one request deletes at most.
_KEYS_MAX: Final = 10_000
#: How messages are settled after they were got.
_ACK_MODES: Final = ("ack_requeue_true", "ack_requeue_false", "reject_requeue_true", "reject_requeue_false")


class QueueMessages(Controller):
    """The resources ``/api/queues/{vhost}/{name}/get``, ``/move-messages`` and ``/delete-messages``."""

    @route("POST", "queues/{vhost}/{name}/get")
    async def get(self, request: web.Request) -> web.Response:
        """Get messages. The body has count, ackmode and encoding, optionally truncate."""
        principal = self._access.require_connect(request)
        document = await read_object(request)
        mode = document.get("ackmode", document.get("ack_mode"))
        require_keys({**document, **({} if mode is None else {"ackmode": mode})}, "ackmode", "count", "encoding")
        count = read_integer(document["count"])
        truncate = read_integer(document["truncate"]) if "truncate" in document else None
        if document["encoding"] not in ("auto", "base64"):
            raise bad_request("Unsupported encoding. Please use auto or base64.")
        if mode not in _ACK_MODES:
            raise bad_request(f"Unsupported ackmode. Please use one of {', '.join(_ACK_MODES)}.")
        try:
            queue = queues.open_for_get(principal, request.match_info["name"])
        except AmqpFault as fault:
            raise _get_error(fault) from None
        if truncate is not None and truncate < 0:
            raise bad_request(f"truncate must be 0 or more, is {truncate}")
        take = partial(_take, principal, queue)
        return await _get(queue, count, str(mode), document["encoding"] == "base64", truncate, take)

    @route("POST", "queues/{vhost}/{name}/move-messages")
    async def move(self, request: web.Request) -> web.Response:
        """Move messages to another queue. The body has to, optionally limit and filter; job and rate for a job."""
        principal = self._access.require_connect(request)
        document = await read_object(request)
        require_keys(document, "to")
        if document.get("job") is True:
            return self._begin_job(principal, request.match_info["name"], document)
        target_name, source_name = read_text(document, "to"), request.match_info["name"]
        try:
            options = read_move_options(document)
        except ValueError as error:
            raise bad_request(str(error)) from None
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
        document = await read_object(request)
        require_keys(document, "queue_id", "keys")
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

    def _begin_job(self, principal: Principal, name: str, document: Mapping[str, Any]) -> web.Response:
        """Let a job move the messages."""
        if name == document["to"]:
            raise bad_request(f"queue '{name}' is source and target")
        try:
            job = self._context.jobs.begin("move", principal, name, document)
        except ValueError as error:
            raise bad_request(str(error)) from None
        return json_response(job.shown(), status=201)


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


def _take(principal: Principal, queue: ClassicQueue, holder: Holder | None) -> Entry | None:
    """Take the message at the head of a queue, count and trace it."""
    vhost = principal.vhost
    entry = queues.get(queue, holder, vhost.statistics.channels)
    if entry is not None and vhost.tracer is not None:
        vhost.tracer.delivered(http_origin(principal.user), queue.name, [entry])
    return entry


async def _get(
    queue: ClassicQueue,
    count: int,
    mode: str,
    as_base64: bool,
    truncate: int | None,
    take: Callable[[Holder | None], Entry | None],
) -> web.Response:
    """Take messages, then settle all of them; return the response with them."""
    holder = None if mode == "ack_requeue_false" else Holder(queue)
    taken: list[Entry] = []
    if holder is not None:
        holder.taken = taken
    text = LongText()

    def steps() -> Iterator[None]:
        while (count < 0 or len(taken) < count) and not queue.deleted:
            entry = take(holder)
            if entry is None:
                break
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
