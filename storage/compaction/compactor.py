"""Decides when to compact, and runs compaction jobs in a thread."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from functools import partial
from itertools import islice
from time import sleep
from typing import Final

from leveret.storage.compaction.compaction_job import CompactionJob, DamagedSegmentError, is_sparse, plan
from leveret.storage.segments.segment import Segment
from leveret.storage.stores.segment_store import SegmentStore

_LOG: Final = logging.getLogger("leveret.storage")
#: Seconds that an urgent job sleeps after each read, so that other threads can run.
_URGENT_PAUSE: Final = 0.00005
#: Stores checked by one call of run_background().
_STORES_PER_CALL: Final = 100
#: Microseconds without writes after which a sparse active segment is sealed.
_IDLE_US: Final = 5_000_000


class CancelledError(Exception):
    """The job was cancelled."""


class Compactor:
    """Watches the disk space of stores and runs one compaction job at a time.

    With D the size of all segment files of a store, L the size of the records of its live messages, and S the maximum
    size of a segment, D <= 2 L + 2 S is always true:
    - above 2 L + S, sparse segments (less than half live) are copied at full speed until D <= 1.5 L + S. There always
      is one: if needed, the active segment is sealed early. The remaining S is for the copy, written before its
      sources are removed.
    - above 1.6 L + S / 16, sparse segments without changes for 15 s are copied at a limited rate.

    Everything except the copying runs in the thread that owns the stores.

    Args:
        deliver: Schedules a function in that thread; None to run jobs synchronously.
        on_change: Called with a store after a job; must commit it and call consider() again.
        sync: Called with a store; must sync its sealed segments and call consider() again.
        rate: Read rate of background jobs in bytes per second.

    Attributes:
        candidates: Stores with dead messages, candidates for background jobs.
    """

    def __init__(
        self,
        deliver: Callable[[Callable[[], None]], object] | None,
        on_change: Callable[[SegmentStore], None],
        sync: Callable[[SegmentStore], None],
        rate: int = 50 << 20,
    ) -> None:
        self._deliver = deliver
        self._on_change = on_change
        self._sync = sync
        self._rate = rate
        #: Stores to compact until D <= 1.5 L + S.
        self._draining: set[SegmentStore] = set()
        self.candidates: dict[SegmentStore, None] = {}
        #: Stores to check when no job is running.
        self._waiting: dict[SegmentStore, None] = {}
        self._checking = False
        self._job: CompactionJob | None = None
        self._store: SegmentStore | None = None
        self._thread: threading.Thread | None = None
        self._cancelled = threading.Event()
        #: Set while the running job is urgent.
        self._urgent = threading.Event()
        self._closed = False
        #: Completed jobs, and bytes that they wrote.
        self.jobs = self.copied = 0

    def consider(self, store: SegmentStore) -> None:
        """Check whether a store uses too much space.

        Called if enough has died (`log.dead_bytes` has reached `log.next_check`), after the events of the dead messages
        have been written.
        """
        if self._closed:
            return
        self.candidates[store] = self._waiting[store] = None
        if self._store is store:
            self._urgent.set()
        if self._checking:
            return
        self._checking = True
        try:
            while self._waiting and self._job is None:
                self._check(self._waiting.popitem()[0])
        finally:
            self._checking = False

    def run_background(self, now: int) -> None:
        """Start a background job if one is worthwhile. Called about once a second.

        Args:
            now: Microseconds since 1970.
        """
        for store in [*islice(self.candidates, _STORES_PER_CALL)]:
            if self._job is not None or self._closed:
                return
            log = store.log
            size, live_size, segment = log.size, log.live_size, log.place.segment_bytes
            # Moves it to the end, so that the next call begins with other stores.
            del self.candidates[store]
            if size > live_size * 8 // 5 + (segment >> 4):
                self.candidates[store] = None
                job = plan(log, now)
                if job is not None:
                    self._start(store, job, urgent=False)
                elif any(_is_idle(chain.active, segment >> 4, now) for chain in log.chains):
                    self._seal_early(store)

    def forget(self, store: SegmentStore) -> None:
        """Remove a deleted store and cancel its job."""
        self._draining.discard(store)
        self._waiting.pop(store, None)
        self.candidates.pop(store, None)
        if self._store is store:
            self._cancelled.set()

    def close(self) -> None:
        """End the thread; a completed copy is put in place."""
        self._closed = True
        self._cancelled.set()
        if self._thread is not None:
            self._thread.join()
            assert self._job is not None
            self._finish(self._job)

    def abandon(self) -> None:
        """End the thread, and leave its files as they are."""
        self._closed = True
        self._cancelled.set()
        if self._thread is not None:
            self._thread.join()

    def _check(self, store: SegmentStore) -> None:
        log = store.log
        size, live_size, segment = log.size, log.live_size, log.place.segment_bytes
        limit = 2 * live_size + segment
        if size > limit:
            self._draining.add(store)
        elif size <= live_size * 3 // 2 + segment:
            self._draining.discard(store)
        log.dead_bytes = 0
        # Dead bytes count twice in D - 2 L, so the limit cannot be reached before this.
        log.next_check = max(segment >> 6, (limit - size) // 2)
        if store not in self._draining:
            return
        job = plan(log)
        if job is not None:
            self._start(store, job, urgent=True)
        elif size > limit:
            self._seal_early(store)
        else:
            self._draining.discard(store)

    def _seal_early(self, store: SegmentStore) -> None:
        """Seal sparse active segments and sync sealed ones, so that a job can copy them."""
        log = store.log
        waits = False
        for chain in log.chains:
            active = chain.active
            if active is not None and is_sparse(active):
                chain.seal_active()
            waits = waits or any(is_sparse(each) and each.sealed and not each.synced for each in chain.segments)
        if waits:
            log.next_check = 0
            self._sync(store)

    def _start(self, store: SegmentStore, job: CompactionJob, urgent: bool) -> None:
        self._job, self._store = job, store
        self._cancelled.clear()
        if urgent:
            self._urgent.set()
        else:
            self._urgent.clear()
        if self._deliver is None:
            self._run(job, lambda size: None)
            self._finish(job)
        else:
            self._thread = threading.Thread(
                target=self._run_and_deliver, args=(job, self._deliver), name="compactor", daemon=True
            )
            self._thread.start()

    def _run_and_deliver(self, job: CompactionJob, deliver: Callable[[Callable[[], None]], object]) -> None:
        self._run(job, self._throttle)
        if not self._closed:
            deliver(partial(self._finish, job))

    def _run(self, job: CompactionJob, throttle: Callable[[int], None]) -> None:
        """Run a job. If it fails nothing is lost, as the sources remain."""
        try:
            job.run(throttle)
        except CancelledError:
            pass
        except DamagedSegmentError as error:
            error.segment.frozen = True
            _LOG.warning("%s/%s is damaged and is not compacted", job.log.place.directory, error.segment.name)
        except OSError as error:
            if not self._cancelled.is_set():
                _LOG.warning("Could not compact %s: %s", job.log.place.directory, error)
        except Exception as error:  # noqa: BLE001 - the sources remain in any case
            # A bug: a retry would fail again.
            _LOG.error("Could not compact %s", job.log.place.directory, exc_info=error)
            for source in job.sources:
                source.frozen = True

    def _throttle(self, size: int) -> None:
        """Sleep to limit the read rate; raise CancelledError if the job was cancelled."""
        if self._urgent.is_set():
            sleep(_URGENT_PAUSE)
        else:
            self._urgent.wait(size / self._rate)
        if self._cancelled.is_set():
            raise CancelledError

    def _finish(self, job: CompactionJob) -> None:
        """Put the copy of a job in place."""
        if self._job is not job:
            return
        store = self._store
        assert store is not None
        if self._thread is not None:
            self._thread.join()
        self._job = self._store = self._thread = None
        if self._cancelled.is_set() and not self._closed:
            job.discard()
            return
        swapped = job.swap()
        copy = job.copy
        self.jobs += 1
        if copy is not None and swapped:
            self.copied += copy.size
        # Without a copy there is no reason to check again: the next job would be the same.
        if swapped and copy is not None:
            store.log.next_check = 0
            self._waiting[store] = None
        self._on_change(store)


def _is_idle(active: Segment | None, size: int, now: int) -> bool:
    """Return whether an active segment is sparse and no longer written to, so that it should be sealed."""
    return active is not None and active.size > size and active.max_arrived + _IDLE_US < now and is_sparse(active)
