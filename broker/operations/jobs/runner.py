"""Runs jobs: a step at a time, each after the messages of the one before are on disk.

Jobs are kept with the definitions, so a restart continues those that were running. They begin again at the head of
their queue: what they have returned is no longer there. A replay, whose stream keeps everything, goes on at the number
that was stored last.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any, Final, Protocol

from leveret.broker.auth.accounts import Accounts
from leveret.broker.core.broker import Broker
from leveret.broker.core.queues.queue import Queue
from leveret.broker.core.queues.stream_queue import StreamQueue
from leveret.broker.core.scheduling.timers import Timer
from leveret.broker.operations import queues
from leveret.broker.operations.jobs.job import (
    CANCELLED,
    COMPLETED,
    FAILED,
    READERS,
    RUNNING,
    Job,
    Kind,
    new_counts,
    restored,
)
from leveret.broker.operations.jobs.options import JobOptions
from leveret.broker.operations.jobs.plans import Counts
from leveret.broker.operations.jobs.replaying import ReplayWork, numbers_of, open_for_replay
from leveret.broker.operations.jobs.returning import ReturnWork
from leveret.broker.operations.principal import Principal
from leveret.protocol.faults import AmqpFault, not_found
from leveret.storage.stores.looking import levels
from leveret.storage.stores.picking import next_number

log = logging.getLogger("leveret.jobs")

#: Kind of the definitions.
KIND: Final = "job"
#: Messages of one step.
_STEP_MESSAGES: Final = 256
#: Seconds between two times at which the progress of a job is stored.
_STORE_SECONDS: Final = 5.0
#: Messages that a replay sends at most between these times: after a crash they may be sent again.
_REPEATED_MAX: Final = 2048
#: Pause of a job while an alarm is set, and while its target is full, in seconds.
_ALARM_SECONDS: Final = 1.0
_FULL_SECONDS: Final = 0.05
#: Shortest pause for the rate, in seconds: messages are returned in small groups.
_RATE_PAUSE: Final = 0.05
#: Keys of a request that are not options.
_NOT_KEPT: Final = ("dry_run", "job")
#: Ended jobs that are kept.
_ENDED_MAX: Final = 100


#: What is said about a job when it begins.
_DOES: Final = {"return": "returns the dead letters", "move": "moves the messages", "replay": "replays the messages"}


class Work(Protocol):
    """What a job does; see ReturnWork and ReplayWork."""

    counts: Counts
    is_over: bool
    waits: str
    number: int

    @property
    def source(self) -> Queue:
        """The queue that messages come from."""

    @property
    def generation(self) -> int:
        """Number that increases with every change of topology or permissions."""

    def use(self, principal: Principal) -> None:
        """Work with the permissions of a user from now on."""

    def step(self, most: int, takes: bool = True) -> int:
        """Do some of it, for a time slice; return the number of messages that were sent."""


class Jobs:
    """The jobs of a broker.

    Args:
        broker: The broker.
        accounts: Users and permissions.
    """

    def __init__(self, broker: Broker, accounts: Accounts) -> None:
        self._broker = broker
        self._accounts = accounts
        self._jobs: dict[str, Job] = {}
        self._runs: dict[str, _Run] = {}
        #: While they are being stopped: all that they have sent is on disk.
        self._synced = asyncio.Event()

    def restore(self, documents: Iterator[tuple[tuple[str, ...], dict[str, Any]]]) -> None:
        """Take over stored jobs, and continue those that were running.

        Args:
            documents: Keys and values of the definitions.
        """
        for key, document in documents:
            try:
                job = restored(document)
            except (ValueError, KeyError, TypeError) as error:
                log.error("job '%s' could not be restored: %r", key[-1] if key else "", error)
                continue
            if job.vhost not in self._broker.vhosts:
                self._broker.gate.delete(KIND, key)
                continue
            self._jobs[job.job_id] = job
            if job.state == RUNNING:
                if job.kind != "replay":
                    # What was left before is looked at again.
                    job.counts = Counts(0, job.counts.returned, new_counts().left, new_counts().by_origin)
                self._run(job, is_resumed=True)

    async def stop(self, seconds: float) -> None:
        """Stop all jobs, for the end of the process; the next start continues them.

        Args:
            seconds: How long to wait at most until what they have sent is on disk.
        """
        for run in self._runs.values():
            run.stop()
            self.store(run.job)
        if self._is_syncing:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._synced.wait(), seconds)
        self._runs.clear()

    @property
    def _is_syncing(self) -> bool:
        return any(run.is_syncing for run in self._runs.values())

    def note_synced(self) -> None:
        """Note, while jobs are being stopped, that what one of them has sent is on disk."""
        if not self._is_syncing:
            self._synced.set()

    def listed(self, vhost_names: set[str]) -> list[Job]:
        """Return the jobs of some virtual hosts, the newest first."""
        found = [job for job in self._jobs.values() if job.vhost in vhost_names and job.vhost in self._broker.vhosts]
        return sorted(found, key=lambda job: job.created, reverse=True)

    def find(self, vhost_name: str, job_id: str) -> Job | None:
        """Return a job; None if there is none of that ID in the virtual host."""
        job = self._jobs.get(job_id)
        return job if job is not None and job.vhost == vhost_name else None

    def begin(self, kind: Kind, principal: Principal, queue_name: str, document: Mapping[str, Any]) -> Job:
        """Begin to return dead letters, to move messages, or to replay a stream.

        Args:
            kind: What to do.
            principal: The user with whose permissions it works.
            queue_name: The queue that messages come from.
            document: The options; see options.py.
        Raises:
            ChannelFault: ACCESS_REFUSED (403), NOT_FOUND (404), RESOURCE_LOCKED (405).
            ValueError: An option is invalid.
        """
        options = READERS[kind](document)
        source = open_source(principal, queue_name, options)
        begin, ends = bounds_of(source, options)
        job = Job(
            secrets.token_hex(6),
            kind,
            principal.vhost.name,
            queue_name,
            source.backing.qid,
            principal.user.name,
            {name: value for name, value in document.items() if value is not None and name not in _NOT_KEPT},
            options,
            ends,
            self._broker.timers.now(),
            number=begin,
            begin=begin,
        )
        self._jobs[job.job_id] = job
        self.store(job)
        log.info("job %s of user '%s' %s of queue '%s'", job.job_id, job.user, _DOES[kind], job.queue)
        self._run(job)
        return job

    def cancel(self, job: Job) -> None:
        """End a running job; forget one that has ended."""
        if job.state == RUNNING:
            self.end(job, CANCELLED)
        else:
            self._forget(job)

    def end(self, job: Job, state: str, error: str = "") -> None:
        """End a job.

        Args:
            job: The job, which is running.
            state: COMPLETED, CANCELLED or FAILED.
            error: Why it has failed.
        """
        run = self._runs.pop(job.job_id, None)
        if run is not None:
            run.stop()
        job.state, job.error, job.finished = state, error, self._broker.timers.now()
        log.info(
            "job %s is %s%s: %d messages done, %d left",
            *(job.job_id, state, f" ({error})" if error else "", job.counts.returned, job.counts.left.total()),
        )
        self.store(job)
        ended = sorted((each for each in self._jobs.values() if each.finished), key=lambda each: each.finished)
        for each in ended[:-_ENDED_MAX]:
            self._forget(each)

    def store(self, job: Job) -> None:
        """Store a job with the definitions."""
        self._broker.gate.put(KIND, (job.vhost, job.job_id), job.stored())
        self._broker.turn.end_later()

    def _forget(self, job: Job) -> None:
        del self._jobs[job.job_id]
        self._broker.gate.delete(KIND, (job.vhost, job.job_id))
        self._broker.turn.end_later()

    def _run(self, job: Job, is_resumed: bool = False) -> None:
        run = self._runs[job.job_id] = _Run(self, job, self._broker, self._accounts, is_resumed)
        run.start()


class _Run:
    """A job that is running.

    Args:
        jobs: All jobs.
        job: The job.
        broker: The broker.
        accounts: Users and permissions.
        is_resumed: Whether an earlier process has begun it.
    """

    def __init__(self, jobs: Jobs, job: Job, broker: Broker, accounts: Accounts, is_resumed: bool) -> None:
        self._jobs = jobs
        self.job = job
        self._broker = broker
        self._accounts = accounts
        self._timer: Timer | None = None
        self._work: Work | None = None
        self._is_resumed = is_resumed
        self._generation = -1
        self._is_stopped = False
        #: Whether the messages of the last step are not on disk yet.
        self.is_syncing = False
        self._stored_at = self._begun_at = broker.timers.monotonic()
        #: Messages sent since then, for the rate.
        self._returned = 0
        #: Messages sent when the progress was stored last.
        self._stored_returned = job.counts.returned

    def start(self) -> None:
        """Begin, or continue."""
        self._plan(0.0)

    def stop(self) -> None:
        """Do no further step."""
        self._is_stopped = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _plan(self, seconds: float) -> None:
        if not self._is_stopped:
            self._timer = self._broker.timers.call_later(seconds, self._advance)

    def _advance(self) -> None:
        self._timer = None
        if self._broker.alarms.any:
            # As for publishers, whose connections are blocked.
            self._wait(f"the broker is {self._broker.alarms.reason}", _ALARM_SECONDS)
            return
        try:
            work = self._open()
            self._returned += work.step(self._allowed())
        except AmqpFault as fault:
            self._jobs.end(self.job, FAILED, fault.explanation)
        except Exception as error:
            log.exception("internal error in job %s", self.job.job_id)
            self._jobs.end(self.job, FAILED, f"internal error: {type(error).__name__}")
        else:
            if not work.waits:
                self.job.error = ""
            self.is_syncing = True
            self._broker.stores.when_synced(self._synced)

    def _wait(self, reason: str, seconds: float) -> None:
        self.job.error = f"waits: {reason}"
        # The rate does not make up for the pause.
        self._begun_at, self._returned = self._broker.timers.monotonic(), 0
        self._plan(seconds)

    def _synced(self) -> None:
        """Continue, now that the messages of the last step are on disk."""
        work, job, self.is_syncing = self._work, self.job, False
        if work is None or job.state != RUNNING:
            return
        job.number = work.number
        if self._is_stopped:
            # The process ends. What was sent will not be sent again.
            self._jobs.store(job)
            self._jobs.note_synced()
            return
        if work.is_over and not work.source.deleted:
            self._jobs.end(job, COMPLETED)
            return
        now = self._broker.timers.monotonic()
        unstored = job.counts.returned - self._stored_returned
        is_much = job.number > 0 and unstored > _REPEATED_MAX - _STEP_MESSAGES
        if is_much or now - self._stored_at >= _STORE_SECONDS * 1_000_000:
            self._stored_at, self._stored_returned = now, job.counts.returned
            self._jobs.store(job)
            self._broker.gate.when_written(self._continue)
        else:
            self._continue()

    def _continue(self) -> None:
        if self._is_stopped:
            return
        if self._work is not None and self._work.waits:
            self._wait(self._work.waits, _FULL_SECONDS)
        else:
            self._plan(self._pause())

    def _allowed(self) -> int:
        """Return how many messages the rate allows now."""
        rate = self.job.options.rate
        if rate is None:
            return _STEP_MESSAGES
        seconds = (self._broker.timers.monotonic() - self._begun_at) / 1_000_000
        return max(0, min(_STEP_MESSAGES, int(seconds * rate) + 1 - self._returned))

    def _pause(self) -> float:
        """Return the seconds until the next step."""
        rate = self.job.options.rate
        if rate is None:
            return 0.0
        due = self._begun_at / 1_000_000 + self._returned / rate
        return max(0.0, due - self._broker.timers.monotonic() / 1_000_000, min(_RATE_PAUSE, 1 / rate))

    def _open(self) -> Work:
        """Return the work, and check that the queue is there and the permissions suffice.

        Raises:
            ChannelFault: They do not.
        """
        work, job = self._work, self.job
        if work is not None and not work.source.deleted and work.generation == self._generation:
            return work
        vhost, user = self._broker.vhosts.get(job.vhost), self._accounts.users.get(job.user)
        if vhost is None or user is None:
            raise not_found(f"user '{job.user}' was deleted" if user is None else f"vhost '{job.vhost}' was deleted")
        principal = Principal(self._accounts, user, vhost)
        source = open_source(principal, job.queue, job.options)
        is_same = self._is_of(source) if work is None else source is work.source
        if not is_same:
            raise not_found(f"queue '{job.queue}' was deleted")
        if work is None:
            if isinstance(source, StreamQueue):
                work = ReplayWork(principal, source, job.options, job.number, job.ends[0], job.counts)
            else:
                work = ReturnWork(principal, source, job.options, job.ends, job.counts)
            self._work = work
        work.use(principal)
        self._generation = work.generation
        return work

    def _is_of(self, source: Queue) -> bool:
        """Return whether a queue is the one of the job, which may have been stored by an earlier process."""
        return not self._is_resumed or (self.job.qid is not None and source.backing.qid == self.job.qid)


def new_work(principal: Principal, source: Queue, options: JobOptions) -> Work:
    """Return the work of a job that begins now. See open_source()."""
    number, ends = bounds_of(source, options)
    if isinstance(source, StreamQueue):
        return ReplayWork(principal, source, options, number, ends[0], new_counts())
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
    if options.to is not None:
        source, _ = queues.open_for_move(principal, name, options.to)
        return source
    source = queues.open_for_get(principal, name)
    if options.via == "queue":
        principal.check("write", "exchange", "")
    return source


def bounds_of(source: Queue, options: JobOptions) -> tuple[int, dict[int, int]]:
    """Return the number of the first message of a replay, or 0, and by level of the queue, that after the last one."""
    if options.replay is None or not isinstance(source, StreamQueue):
        return 0, ends_of(source)
    number, end = numbers_of(source, options.replay)
    return number, {0: end}


def ends_of(source: Queue) -> dict[int, int]:
    """Return the number of the next message, by level of a queue."""
    return {level: next_number(store) for level, store in levels(source.store)}
