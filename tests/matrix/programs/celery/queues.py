"""Queues that the application names itself: one for all workers, one with dead letters."""

from __future__ import annotations

from kombu.common import Broadcast
from kombu.entity import Queue

QUEUES = (
    Broadcast("everybody"),
    Queue(
        "dead_lettering",
        queue_arguments={"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead_letters"},
    ),
)
