"""Runs jobs: a step at a time, each after the messages of the one before are on disk. All share one time slice a turn.

Jobs are kept with the definitions, so a restart continues those that were running. They begin again at the head of
their queue: what they have returned is no longer there. A replay, whose stream keeps everything, goes on at the number
that was stored last. A job with which the broker ended badly some times in a row waits for somebody to resume it.
"""

from __future__ import annotations

import asyncio
import json
import logging
import math
import secrets
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import Any, Final, TypeAlias

from leveret.broker.auth.accounts import Accounts, User
from leveret.broker.auth.backends.chain import NAME as INTERNAL
from leveret.broker.core.broker import Broker
from leveret.broker.core.events import BROKER, Actor
from leveret.broker.core.queues.classic_queue import ClassicQueue
from leveret.broker.core.queues.queue import Queue
from leveret.broker.core.queues.stream_queue import StreamQueue
from leveret.broker.core.scheduling.timers import Timer
from leveret.broker.core.scheduling.turn import TimeSlice
from leveret.broker.operations import queues
from leveret.broker.operations.jobs.job import (
    CANCELLED,
    COMPLETED,
    FAILED,
    PAUSED,
    READERS,
    RUNNING,
    Job,
    Kind,
    restored,
)
from leveret.broker.operations.jobs.job_options import JobOptions
from leveret.broker.operations.jobs.plans import Counts, Work
from leveret.broker.operations.jobs.replaying import ReplayWork, numbers_of, open_for_replay
from leveret.broker.operations.jobs.restore_work import RestoreWork, declare_target, open_for_restore
from leveret.broker.operations.jobs.returning import ReturnWork
from leveret.broker.operations.principal import Principal
from leveret.broker.side_programs import BackupReader
from leveret.broker.unfinished import Unanswered
from leveret.protocol.faults import AmqpFault, not_found, precondition_failed

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
_UNASKED: Final = "another server has to be asked what its user may do, for which a job does not wait between messages"
#: Shortest pause for the rate, in seconds: messages are returned in small groups.
_RATE_PAUSE: Final = 0.05
#: Keys of a request that are not options.
_NOT_KEPT: Final = ("dry_run", "job")
#: Ended jobs that are kept.
_ENDED_MAX: Final = 100
#: Jobs and moves of a virtual host that run at once.
RUNNING_MAX: Final = 50
#: Length of the options of a job, as JSON.
_OPTIONS_MAX: Final = 65_536
#: Bad ends of the broker in a row after which a job that ran is not continued by itself.
_BAD_ENDS_MAX: Final = 3


#: Begins to read the messages of a queue in the broker's backups; for the arguments see BackupReader.
OpenBackup: TypeAlias = Callable[[str, str, str, int], BackupReader]

#: What is said about a job when it begins.
_DOES: Final = {
    "return": "returns the dead letters",
    "move": "moves the messages",
    "replay": "replays the messages",
    "restore": "restores messages of a backup",
}


class Jobs:
    """The jobs of a broker.

    Args:
        accounts: Users and permissions.
        open_backup: Reads a queue in the broker's backups; None if it takes none.
    """

    def __init__(self, broker: Broker, accounts: Accounts, open_backup: OpenBackup | None = None) -> None:
        self._broker = broker
        self._open_backup = open_backup
        self._accounts = accounts
        self._jobs: dict[str, Job] = {}
        self._runs: dict[str, _Run] = {}
        self._turns = _Turns(broker)
        self._is_stopping = False
        accounts.on_delete = self._end_those_of
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
            except ValueError as error:
                log.error("job '%s' could not be restored: %s", key[-1] if key else "", error)
                continue
            if job.vhost not in self._broker.vhosts:
                self._broker.gate.delete(KIND, key)
                continue
            self._jobs[job.job_id] = job
            if job.state == FAILED and not job.finished:
                self.end(job, FAILED, job.error)
            if job.state == RUNNING:
                self._continue(job, is_after_bad_end=not document.get("clean", True))

    def _continue(self, job: Job, is_after_bad_end: bool) -> None:
        """Continue a job that an earlier process has begun, but not one with which the broker has ended badly again."""
        job.bad_ends = job.bad_ends + 1 if is_after_bad_end else 0
        if job.bad_ends >= _BAD_ENDS_MAX:
            job.state, job.error = PAUSED, f"the broker has ended badly {job.bad_ends} times in a row while it ran"
            log.error("job %s of queue '%s' is paused: %s", job.job_id, job.queue, job.error)
            self.store(job)
            return
        self._run_again(job)

    def _run_again(self, job: Job) -> None:
        if job.kind not in ("replay", "restore"):
            # What was left before is looked at again.
            job.counts = Counts(returned=job.counts.returned)
        self.store(job)
        run = _Run(self, job, self._broker, self._accounts, self._turns)
        self._runs[job.job_id] = run
        # If this ends the process, the next one knows.
        self._broker.gate.when_written(run.start)

    async def stop(self, seconds: float) -> None:
        """Stop all jobs, for the end of the process; the next start continues them.

        Args:
            seconds: How long to wait at most until what they have sent is on disk.
        """
        self._is_stopping = True
        for run in [*self._runs.values()]:
            if run.job.ended is not None:
                self.end(run.job, CANCELLED)
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
        """Begin to return dead letters, to move messages, to replay a stream, or to restore a queue.

        Args:
            kind: What to do.
            document: The options; see job_options.py.
        Raises:
            ChannelFault: ACCESS_REFUSED (403), NOT_FOUND (404), RESOURCE_LOCKED (405).
                PRECONDITION_FAILED (406): RUNNING_MAX are running in the virtual host.
            ValueError: An option is invalid.
        """
        kept = {name: value for name, value in document.items() if value is not None and name not in _NOT_KEPT}
        options = READERS[kind](document)
        length = len(json.dumps(kept))
        if length > _OPTIONS_MAX:
            raise ValueError(f"the options have {length} characters, {_OPTIONS_MAX} are allowed")
        self._check_limit(principal.vhost.name)
        if options.restore is not None and options.to is not None:
            self.require_backups()
            declare_target(principal, options.to, options.restore)
            queue_name = options.to
        source = open_source(principal, queue_name, options)
        job = self._new(kind, principal, source, options, kept)
        self._jobs[job.job_id] = job
        self.store(job)
        preposition = "into" if kind == "restore" else "of"
        log.info("job %s of user '%s' %s %s queue '%s'", job.job_id, job.user, _DOES[kind], preposition, job.queue)
        self._begin(job, self.new_work(principal, source, job))
        return job

    def require_backups(self) -> OpenBackup:
        """Return what reads a queue in the backups.

        Raises:
            ChannelFault: PRECONDITION_FAILED (406): the broker takes none.
        """
        if self._open_backup is None:
            raise precondition_failed("the broker takes no backups: backup.url is not set")
        return self._open_backup

    def new_work(self, principal: Principal, source: Queue, job: Job) -> Work:
        """Return the work of a job as far as it is not done."""
        restore = job.options.restore
        if restore is not None:
            messages = self.require_backups()(job.vhost, restore.queue, restore.at, job.number)
            return RestoreWork(principal, source, job.options, job.number, job.counts, messages)
        return new_work(principal, source, job.options, (job.number, job.ends), job.counts)

    async def move(self, principal: Principal, source: ClassicQueue, options: JobOptions) -> tuple[Job, ReturnWork]:
        """Move messages to another queue, and wait for the end; return the job, which is not kept, and its work.

        Raises:
            ChannelFault: PRECONDITION_FAILED (406): RUNNING_MAX are running in the virtual host.
        """
        self._check_limit(principal.vhost.name)
        job = self._new("move", principal, source, options, {})
        job.ended = asyncio.get_running_loop().create_future()
        work = ReturnWork(principal, source, options, job.ends, job.counts, ends_early=True)
        self._begin(job, work)
        try:
            await job.ended
        finally:
            if job.state == RUNNING:
                self.end(job, CANCELLED)
        return job, work

    def _check_limit(self, vhost_name: str) -> None:
        count = sum(run.job.vhost == vhost_name for run in self._runs.values())
        if count >= RUNNING_MAX:
            raise precondition_failed(
                f"{count} jobs and moves are running in vhost '{vhost_name}', which is the limit; try again later"
            )

    def _new(
        self, kind: Kind, principal: Principal, source: Queue, options: JobOptions, document: Mapping[str, Any]
    ) -> Job:
        begin, ends = bounds_of(source, options)
        place = principal.vhost.name, source.name, source.backing.qid, principal.user.name
        now = self._broker.timers.now()
        host = self._broker.events.actor.host
        job_id = secrets.token_hex(6)
        job = Job(job_id, kind, *place, document, options, ends, now, number=begin, begin=begin, host=host)
        user = principal.user
        if user.backend != INTERNAL:
            job.backend, job.login = user.backend, user
        return job

    def _begin(self, job: Job, work: Work) -> None:
        self._broker.events.tell("job.created", job.event)
        run = self._runs[job.job_id] = _Run(self, job, self._broker, self._accounts, self._turns, work)
        run.start()

    def resume(self, job: Job) -> None:
        """Continue a job that is paused.

        Raises:
            ChannelFault: PRECONDITION_FAILED (406): it is not paused, or RUNNING_MAX are running in the virtual host.
        """
        if job.state != PAUSED:
            raise precondition_failed(f"job '{job.job_id}' is {job.state}, not {PAUSED}")
        self._check_limit(job.vhost)
        job.state, job.error, job.bad_ends = RUNNING, "", 0
        log.info("job %s is resumed", job.job_id)
        self._run_again(job)

    def _end_those_of(self, user_name: str) -> None:
        """End the jobs of a user who was deleted: another one may get the name."""
        for job in [*(run.job for run in self._runs.values()), *self._jobs.values()]:
            if job.user == user_name and job.state in (RUNNING, PAUSED):
                self.end(job, FAILED, f"user '{user_name}' was deleted")

    def cancel(self, job: Job) -> None:
        """End a job that is running or paused; forget one that has ended."""
        if job.state in (RUNNING, PAUSED):
            self.end(job, CANCELLED)
        else:
            self._forget(job)

    def end(self, job: Job, state: str, error: str = "") -> None:
        """End a job.

        Args:
            job: The job, which is running or paused.
            state: COMPLETED, CANCELLED or FAILED.
            error: Why it has failed.
        """
        run = self._runs.pop(job.job_id, None)
        if run is not None:
            run.stop()
        job.state, job.error, job.finished = state, error, self._broker.timers.now()
        events = self._broker.events
        by_itself = Actor(job.user, job.host) if events.actor is BROKER else None
        events.tell("job.ended", job.event, actor=by_itself)
        if job.ended is not None:
            if not job.ended.done():
                job.ended.set_result(None)
            return
        log.info(
            "job %s is %s%s: %d messages done, %d left",
            *(job.job_id, state, f" ({error})" if error else "", job.counts.returned, job.counts.left.total()),
        )
        self.store(job)
        ended = sorted((each for each in self._jobs.values() if each.finished), key=lambda each: each.finished)
        for each in ended[:-_ENDED_MAX]:
            self._forget(each)

    def store(self, job: Job) -> None:
        """Store a job with the definitions, unless it ends with the request that waits for it."""
        if job.ended is None:
            self._broker.gate.put(KIND, (job.vhost, job.job_id), {**job.stored(), "clean": self._is_stopping})
            self._broker.turn.end_later()

    def _forget(self, job: Job) -> None:
        del self._jobs[job.job_id]
        self._broker.gate.delete(KIND, (job.vhost, job.job_id))
        self._broker.turn.end_later()


class _Turns:
    """Lets jobs take turns: all of them together have one time slice in an iteration of the event loop."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._ready: deque[_Run] = deque()
        self._timer: Timer | None = None

    def add(self, run: _Run, is_first: bool = False) -> None:
        """Let a run take a step, before all others or after them."""
        if is_first:
            self._ready.appendleft(run)
        else:
            self._ready.append(run)
        self._plan()

    def _plan(self) -> None:
        if self._timer is None:
            self._timer = self._broker.timers.call_later(0.0, self._take)

    def _take(self) -> None:
        time_slice = self._broker.turn.slice()
        try:
            while self._ready:
                self._ready.popleft().advance(time_slice)
                if time_slice.is_over():
                    break
        finally:
            self._timer = None
            if self._ready:
                self._plan()


class _Run:
    """A job that is running.

    Args:
        jobs: All jobs.
        accounts: Users and permissions.
        turns: Lets it take steps.
        work: What it does; None if an earlier process has begun it.
    """

    def __init__(
        self, jobs: Jobs, job: Job, broker: Broker, accounts: Accounts, turns: _Turns, work: Work | None = None
    ) -> None:
        self._jobs = jobs
        self.job = job
        self._broker = broker
        self._accounts = accounts
        self._turns = turns
        self._timer: Timer | None = None
        self._work = work
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
        if self._work is not None:
            self._work.close()

    def _plan(self, seconds: float) -> None:
        if self._is_stopped:
            return
        if seconds > 0:
            self._timer = self._broker.timers.call_later(seconds, self._is_due)
        else:
            # Of what is begun, only one message is in memory.
            self._turns.add(self, is_first=self._work is not None and self._work.is_checking)

    def _is_due(self) -> None:
        self._timer = None
        self._plan(0.0)

    def advance(self, time_slice: TimeSlice) -> None:
        """Take a step."""
        if self._is_stopped:
            return
        if self._broker.alarms.any and self.job.ended is None:
            # As for publishers, whose connections are blocked.
            self._wait(f"the broker is {self._broker.alarms.reason}", _ALARM_SECONDS)
            return
        is_open = False
        try:
            work = self._open()
            is_open = True
            sent = work.step(self._allowed(), time_slice=time_slice)
        except Unanswered as question:
            if is_open:
                # Some of its messages may be sent, and some not.
                self._jobs.end(self.job, FAILED, _UNASKED)
            else:
                self._ask(question)
        except AmqpFault as fault:
            self._jobs.end(self.job, FAILED, fault.explanation)
        except Exception as error:
            log.exception("internal error in job %s", self.job.job_id)
            self._fail(error)
        else:
            self._returned += sent
            if not work.waits:
                self.job.error = ""
            if sent:
                self.is_syncing = True
                self._broker.stores.when_synced(self._synced)
            else:
                self._synced()

    def _ask(self, question: Unanswered) -> None:
        """Go on when another server has told what the user may do."""
        asking = asyncio.get_running_loop().create_task(question.ask())
        asking.add_done_callback(lambda _: self._plan(0.0))

    def _wait(self, reason: str, seconds: float) -> None:
        self.job.error = f"waits: {reason}"
        # The rate does not make up for the pause.
        self._begun_at, self._returned = self._broker.timers.monotonic(), 0
        self._plan(seconds)

    def _synced(self) -> None:
        """Continue, now that the messages of the last step are on disk."""
        try:
            self._go_on()
        except Exception as error:
            log.exception("internal error in job %s", self.job.job_id)
            self._fail(error)

    def _fail(self, error: Exception) -> None:
        if self.job.state == RUNNING:
            self._jobs.end(self.job, FAILED, f"internal error: {type(error).__name__}")

    def _go_on(self) -> None:
        work, job, self.is_syncing = self._work, self.job, False
        if work is None or job.state != RUNNING:
            return
        job.number = work.number
        if isinstance(work, RestoreWork) and work.total is not None:
            job.ends = {0: work.total}
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

    def _user(self) -> User:
        """Return the user, as it is now.

        Raises:
            ChannelFault: It was deleted, or its login has ended.
        """
        job, login = self.job, self.job.login
        if job.backend == INTERNAL:
            user = self._accounts.users.get(job.user)
            if user is None:
                raise not_found(f"user '{job.user}' was deleted")
            return user
        if login is None or (login.expires_at or math.inf) <= self._broker.timers.now() / 1_000_000:
            raise not_found(f"the login of user '{job.user}' by '{job.backend}' has ended; begin the job again")
        return login

    def _open(self) -> Work:
        """Return the work, and check that the queue is there and the permissions suffice.

        Raises:
            ChannelFault: They do not.
        """
        work, job = self._work, self.job
        if work is not None and not work.source.deleted and work.generation == self._generation:
            return work
        vhost = self._broker.vhosts.get(job.vhost)
        if vhost is None:
            raise not_found(f"vhost '{job.vhost}' was deleted")
        principal = Principal(self._accounts, self._user(), vhost)
        source = open_source(principal, job.queue, job.options)
        is_same = job.qid is not None and source.backing.qid == job.qid if work is None else source is work.source
        if not is_same:
            raise not_found(f"queue '{job.queue}' was deleted")
        if work is None:
            work = self._work = self._jobs.new_work(principal, source, job)
        work.use(principal)
        self._generation = work.generation
        return work


# -- where jobs begin: which queue they open, and from where to where they go there ----------------------------


def new_work(
    principal: Principal,
    source: Queue,
    options: JobOptions,
    bounds: tuple[int, Mapping[int, int]] | None = None,
    counts: Counts | None = None,
) -> Work:
    """Return the work of a job on messages of a queue.

    Args:
        source: The queue; see open_source().
        bounds: Where it begins or goes on, and where it ends, as bounds_of() has them; None for a job that begins now.
        counts: What it has done before; None for nothing.
    """
    number, ends = bounds or bounds_of(source, options)
    counts = counts or Counts()
    if isinstance(source, StreamQueue):
        return ReplayWork(principal, source, options, number, ends[0], counts)
    assert isinstance(source, ClassicQueue)
    return ReturnWork(principal, source, options, ends, counts)


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
