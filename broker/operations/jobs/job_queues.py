"""Where jobs begin: which queue they open, and from where to where they go there."""

from __future__ import annotations

from leveret.broker.core.queues.classic_queue import ClassicQueue
from leveret.broker.core.queues.queue import Queue
from leveret.broker.core.queues.stream_queue import StreamQueue
from leveret.broker.operations import queues
from leveret.broker.operations.jobs.job import new_counts
from leveret.broker.operations.jobs.job_options import JobOptions
from leveret.broker.operations.jobs.message_work import Work
from leveret.broker.operations.jobs.replaying import ReplayWork, numbers_of, open_for_replay
from leveret.broker.operations.jobs.restore_work import open_for_restore
from leveret.broker.operations.jobs.returning import ReturnWork
from leveret.broker.operations.principal import Principal


def new_work(principal: Principal, source: Queue, options: JobOptions) -> Work:
    """Return the work of a job that begins now. See open_source()."""
    number, ends = bounds_of(source, options)
    if isinstance(source, StreamQueue):
        return ReplayWork(principal, source, options, number, ends[0], new_counts())
    assert isinstance(source, ClassicQueue)
    return ReturnWork(principal, source, options, ends, new_counts())


def open_source(principal: Principal, name: str, options: JobOptions) -> Queue:
    """Find a queue whose dead letters the principal may return, whose messages it may move, or a stream to replay.

    Raises:
        ChannelFault: ACCESS_REFUSED (403): no read permission on the queue, or no write permission: on the queue or
            exchange that messages are moved or replayed to, or, if dead letters go to queues, on the default exchange.
            NOT_FOUND (404), RESOURCE_LOCKED (405). PRECONDITION_FAILED (406): there is no such replay.
    """
    if options.replay is not None:
        return open_for_replay(principal, name, options, options.replay)
    if options.restore is not None:
        return open_for_restore(principal, name, options.restore)
    if options.to is not None:
        source, _ = queues.open_for_move(principal, name, options.to)
        return source
    source = queues.open_for_get(principal, name)
    if options.via == "queue":
        principal.check("write", "exchange", "")
    return source


def bounds_of(source: Queue, options: JobOptions) -> tuple[int, dict[int, int]]:
    """Return the number of the first message of a replay, or 0, and by level of the queue, that after the last one."""
    if options.restore is not None:
        return 0, {}
    if options.replay is None or not isinstance(source, StreamQueue):
        return 0, ends_of(source)
    number, end = numbers_of(source, options.replay)
    return number, {0: end}


def ends_of(source: Queue) -> dict[int, int]:
    """Return the number of the next message, by level of a queue."""
    return {level: store.next_seq for level, store in source.store.ordered_levels()}
