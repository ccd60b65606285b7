"""Finds queues by name."""

from __future__ import annotations

from leveret.broker.app import App
from leveret.broker.core.queues.queue import Queue


def find_queue(app: App, queue: str, vhost: str | None) -> Queue:
    """Return a queue.

    Args:
        app: The broker.
        queue: Name of the queue.
        vhost: Name of its virtual host; None for the default one.
    Raises:
        LookupError: There is no such queue, or virtual host; the text names those that there are.
    """
    name = app.settings.default_vhost if vhost is None else vhost
    found = app.broker.vhosts.get(name)
    if found is None:
        raise LookupError(f"no virtual host '{name}'; there are {sorted(app.broker.vhosts)}")
    if queue not in found.queues:
        raise LookupError(f"no queue '{queue}' in virtual host '{name}'; there are {sorted(found.queues)}")
    return found.queues[queue]
