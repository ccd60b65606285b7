"""delete_queue and purge_queue."""

from __future__ import annotations

import threading
from typing import Final

from leveret.broker.management.cli.api import Api, ApiFault, Unreachable
from leveret.broker.management.cli.command import Command, CommandContext, Outcome, Result, done
from leveret.broker.management.cli.faults import USAGE, OutOfTime, failed
from leveret.broker.management.cli.progress import ProgressLine

SECTION: Final = "Queues"
# More ready messages than this take long enough to show progress.
_MANY: Final = 10_000
_LOOK_EVERY: Final = 0.2


def _ready(api: Api, vhost: str, name: str) -> int | None:
    """Return how many messages of a queue are ready, None if there is no such queue."""
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
        if fault.missing:
            raise failed("Queue not found", USAGE) from fault
        raise
    text = f"Queue was successfully deleted with {ready} ready messages"
    return Outcome(text, {"message": text})


def _deleting(context: CommandContext) -> str:
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
        watch = _Watch(context, name, ready, progress)
        try:
            context.api.delete("queues", context.vhost, name, "contents")
        finally:
            watch.stop()
    return done(context)


class _Watch:
    """Looks at a queue while it is purged, over a connection of its own, if anybody sees the progress."""

    def __init__(self, context: CommandContext, name: str, ready: int, progress: ProgressLine) -> None:
        self._api = Api(context.api.address, 2.0)
        self._where = context.vhost, name
        self._ready = ready
        self._progress = progress
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)
        if progress.shown:
            self._thread.start()

    def stop(self) -> None:
        """Look no more."""
        self._over.set()
        if self._thread.is_alive():
            self._thread.join()
        self._api.close()

    def _look(self) -> None:
        while not self._over.wait(_LOOK_EVERY):
            try:
                left = _ready(self._api, *self._where)
            except (ApiFault, OutOfTime, Unreachable):
                # A bar that does not move is all that this costs.
                continue
            self._progress.at(self._ready - (left or 0))


COMMANDS: Final = (
    Command(
        name="delete_queue",
        section=SECTION,
        summary="Deletes a queue",
        usage="[--vhost <vhost>] <queue_name> [--if-empty|-e] [--if-unused|-u] [--timeout <timeout>]",
        run=_delete,
        least=1,
        most=1,
        options=("if-empty", "if-unused"),
        banner=_deleting,
        explanations=(
            ("<queue_name>", "the queue's name"),
            ("--if-empty", "only if no message is ready for delivery"),
            ("--if-unused", "only if it has no consumers"),
        ),
    ),
    Command(
        name="purge_queue",
        section=SECTION,
        summary="Removes all ready messages from a queue",
        usage="[--vhost <vhost>] <queue> [--timeout <timeout>]",
        run=_purge,
        least=1,
        most=1,
        timeout=None,
        banner=lambda context: f"Purging queue '{context.arguments[0]}' in vhost '{context.vhost}' ...",
        explanations=(("<queue>", "the queue's name; messages out for delivery stay"),),
    ),
)
