"""Restores a queue from a backup: publishes what it had at a moment into another queue.

The messages come from a process that reads the backup, a few at a time. A job remembers how many are on disk; after a
crash it goes on from there, so what it has sent since the number was stored last is sent again: at least once.
"""

from __future__ import annotations

from typing import Final

from leveret.broker.core.messages import AnsweredPublisher, Origin
from leveret.broker.core.queues.queue import Queue
from leveret.broker.core.scheduling.turn import TimeSlice
from leveret.broker.operations import queues
from leveret.broker.operations.jobs.job_options import JobOptions, Restore
from leveret.broker.operations.jobs.plans import FULL, Counts, Room, Work
from leveret.broker.operations.principal import Principal
from leveret.broker.operations.publishing import read_content
from leveret.broker.side_programs import BackupReader
from leveret.protocol.faults import precondition_failed
from leveret.protocol.properties import Properties
from leveret.protocol.short_strings import encode_shortstr
from leveret.storage.message import Message

#: Why a job waits.
_READING: Final = "the backup is read"


class RestoreWork(Work):
    """Restores a queue.

    Args:
        principal: See Work.
        target: The queue that gets the messages.
        options: See Work.
        number: Number of messages that it has got.
        counts: See Work.
        messages: The messages that follow.
    """

    def __init__(
        self,
        principal: Principal,
        target: Queue,
        options: JobOptions,
        number: int,
        counts: Counts,
        messages: BackupReader,
    ) -> None:
        super().__init__(principal, target, options, counts, number)
        self._messages = messages
        self._next: tuple[bytes, bytes] | None = None
        self._route = encode_shortstr("") + encode_shortstr(target.name)

    @property
    def total(self) -> int | None:
        """Number of all messages; None before it is known."""
        return self._messages.total

    def close(self) -> None:
        """Do not read further."""
        self._messages.close()

    def step(self, most: int, takes: bool = True, time_slice: TimeSlice | None = None) -> int:
        """Send messages for a time slice; return their number.

        Raises:
            ChannelFault: PRECONDITION_FAILED (406): the backup cannot be read.
        """
        time_slice = time_slice or self.source.host.turn.slice()
        self.waits = ""
        sent, room = 0, Room()
        most = self._limited(most)
        while sent < most and self._send(room):
            sent += 1
            if time_slice.is_over():
                break
        self.counts.returned += sent
        self.is_over = self.is_over or self._is_at_limit
        return sent

    def _send(self, room: Room) -> bool:
        """Send the next message; return False and set `waits` or `is_over` if that is not possible now."""
        if self._next is None:
            self._next = self._messages.take()
        if self._next is None:
            if self._messages.error:
                raise precondition_failed(self._messages.error)
            self.is_over = self._messages.is_at_end
            self.waits = "" if self.is_over else _READING
            return False
        header, body = self._next
        if not room.reserve((self.source,), len(body)):
            self.waits = f"queue '{self.source.name}': {FULL}"
            return False
        read = Properties(header)
        envelope, _ = read_content(self._principal, self._route, read, read.headers())
        publisher = AnsweredPublisher(Origin("", 0, self._principal.user.name))
        if not self.source.publish([Message(envelope, body)], len(body), publisher):
            self.waits = f"queue '{self.source.name}': {FULL}"
            return False
        self._next = None
        self.number += 1
        self.counts.scanned += 1
        return True


def open_for_restore(principal: Principal, target: str, restore: Restore) -> Queue:
    """Find the queue that gets the messages of another one from a backup.

    Raises:
        ChannelFault: ACCESS_REFUSED (403): no read permission on the queue that is restored, or no write permission on
            the other one. NOT_FOUND (404). RESOURCE_LOCKED (405): it is exclusive.
    """
    principal.check("read", "queue", restore.queue)
    principal.check("write", "queue", target)
    return queues.find(principal, target)


def declare_target(principal: Principal, target: str, restore: Restore) -> None:
    """Declare the queue that gets the messages, durable and without arguments, if there is none.

    Raises:
        ChannelFault: ACCESS_REFUSED (403): also no configure permission.
    """
    principal.check("read", "queue", restore.queue)
    principal.check("write", "queue", target)
    if principal.vhost.queues.get(target) is None:
        queues.declare(principal, target, durable=True, auto_delete=False, arguments=())
