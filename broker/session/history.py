"""Gives a new binding what its source remembers, in time slices."""

from __future__ import annotations

from collections.abc import Iterator

from leveret.broker.core.scheduling.time_slice import Unfinished
from leveret.broker.session.channel import Channel


def give_history(channel: Channel, history: Iterator[None]) -> None:
    """Run the steps that give a new binding its history; see Bound.

    Args:
        channel: The channel of queue.bind or exchange.bind.
        history: The steps.
    Raises:
        Unfinished: It takes longer than a time slice. The method is handled again then, and finds its binding.
    """
    new_slice = channel.host.vhost.turn.slice

    def run() -> bool:
        time_slice = new_slice()
        return all(not time_slice.is_over() for _ in history)

    if not run():
        raise Unfinished(run)
