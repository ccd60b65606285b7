"""The commands delete_queue and purge_queue."""

from __future__ import annotations

import threading
from typing import Final

from leveret.broker.management.cli.api import Api, ApiFault, Unreachable
from leveret.broker.management.cli.command import Command, CommandContext, Outcome, Result, ok_result
from leveret.broker.management.cli.faults import USAGE, RequestTimeout, failed
from leveret.broker.management.cli.progress import ProgressLine

SECTION: Final = "Queues"
# Purging shows progress from this number of ready messages on.
_MANY: Final = 10_000
_POLL_INTERVAL: Final = 0.2


def _ready(api: Api, vhost: str, name: str) -> int | None:
    """Return the number of ready messages of a queue, None if the queue does not exist."""
    found = api.find("queues", vhost, name, columns="name,messages_ready")
    return None if found is None else int(found.get("messages_ready", 0))


def _delete(context: CommandContext) -> Result:
    (name,) = context.arguments
    ready = _ready(context.api, context.vhost, name)
    if ready is None:
        raise failed("Queue not found", USAGE)
    conditions = {option: True for option in ("if-empty", "if-unused") if context.flag(option)}
    try:
        context.api.request("DELETE", ("queues", context.vhost, name), query=conditions)
    except ApiFault as fault:
        for phrase, text in (("not empty", "Queue is not empty"), ("in use", "Queue is in use")):
            if fault.status == 400 and phrase in fault.reason:
                raise failed(text, USAGE) from fault
        if fault.not_found:
            raise failed("Queue not found", USAGE) from fault
        raise
    text = f"Queue was successfully deleted with {ready} ready messages"
    return Outcome(text, {"message": text})


def _delete_banner(context: CommandContext) -> str:
    conditions = [f"if queue is {word[3:]}" for word in ("if-empty", "if-unused") if context.flag(word)]
    condition = f" {' and '.join(conditions)}" if conditions else ""
    return f"Deleting queue '{context.arguments[0]}' on vhost '{context.vhost}'{condition} ..."


def _purge(context: CommandContext) -> Result:
    (name,) = context.arguments
    ready = _ready(context.api, context.vhost, name)
    if ready is None:
        raise failed("not_found")
    silent = ready < _MANY or context.flag("silent") or context.flag("quiet")
    with ProgressLine("Purging", ready, silent=silent) as progress:
        watch = _PurgeProgress(context, name, ready, progress)
        try:
            context.api.delete("queues", context.vhost, name, "contents")
        finally:
            watch.stop()
    return ok_result(context)


class _PurgeProgress:
    """Thread that polls a queue while it is purged and updates the progress bar, if that is visible."""

    def __init__(self, context: CommandContext, name: str, ready: int, progress: ProgressLine) -> None:
        self._api = Api(context.api.address, 2.0)
        self._queue = context.vhost, name
        self._ready = ready
        self._progress = progress
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._poll, daemon=True)
        if progress.visible:
            self._thread.start()

    def stop(self) -> None:
        """Stop polling and close the connection."""
        self._stopped.set()
        if self._thread.is_alive():
            self._thread.join()
        self._api.close()

    def _poll(self) -> None:
        while not self._stopped.wait(_POLL_INTERVAL):
            try:
                left = _ready(self._api, *self._queue)
            except (ApiFault, RequestTimeout, Unreachable):
                # Only the progress bar depends on this request.
                continue
            self._progress.update(self._ready - (left or 0))


COMMANDS: Final = (
    Command(
        name="delete_queue",
        section=SECTION,
        summary="Deletes a queue",
        usage="[--vhost <vhost>] <queue_name> [--if-empty|-e] [--if-unused|-u] [--timeout <timeout>]",
        run=_delete,
        min_arguments=1,
        max_arguments=1,
        options=("if-empty", "if-unused"),
        banner=_delete_banner,
        explanations=(
            ("<queue_name>", "the queue's name"),
            ("--if-empty", "delete only if no message is ready for delivery"),
            ("--if-unused", "delete only if the queue has no consumers"),
        ),
    ),
    Command(
        name="purge_queue",
        section=SECTION,
        summary="Removes all ready messages from a queue",
        usage="[--vhost <vhost>] <queue> [--timeout <timeout>]",
        run=_purge,
        min_arguments=1,
        max_arguments=1,
        timeout=None,
        banner=lambda context: f"Purging queue '{context.arguments[0]}' in vhost '{context.vhost}' ...",
        explanations=(("<queue>", "the queue's name; unacknowledged messages are kept"),),
    ),
)
