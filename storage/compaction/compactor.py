"""When to give back space, and a thread that does it."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from functools import partial
from itertools import islice
from time import sleep
from typing import Final

from leveret.storage.compaction.job import CompactionJob, DamagedSegmentError, is_sparse, plan
from leveret.storage.segments.segment import Segment
from leveret.storage.stores.segment_store import SegmentStore

_LOG: Final = logging.getLogger("leveret.storage")
#: Seconds that the thread lets others run after each read, when it is in a hurry.
_BREATH: Final = 0.00005
#: Stores that one call of rest() visits.
_LOOKS: Final = 100
#: What has not been written to for so long, in microseconds, is sealed if little of it lives.
_LEFT_US: Final = 5_000_000


class CancelledError(Exception):
    """What a job works on is no longer wanted."""


class Compactor:
    """Watches the space that stores take, and runs one compaction job at a time.

    With D the length of all segment files of a store, L what the records of its living messages need, and S the
    length of a segment, D <= 2 L + 2 S holds at all times:
    - above 2 L + S, segments less than half of which lives are copied at full speed until D <= 1.5 L + S. There is
      always one: what is written to is sealed early for it. The rest, S, is for the copy beside its sources.
    - above 1.6 L + S / 16, those that have been left alone for 15 s are copied slowly.

    All but the copying is done in the thread that owns the stores.

    Args:
        deliver: Hands a function to that thread; None to have no other thread, so that jobs are done at once.
        on_change: Called with a store after a job: it is to be committed, and consider() to be called again.
        sync: Syncs what a store has written and sealed, and has consider() called again.
        rate: Bytes to read a second when there is no hurry.
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
        #: Stores that are to get down to D <= 1.5 L + S.
        self._draining: set[SegmentStore] = set()
        #: Stores of which something has died: there may be something to do that has no hurry.
        self._restless: dict[SegmentStore, None] = {}
        #: Stores that are to be looked at when there is no job.
        self._waiting: dict[SegmentStore, None] = {}
        self._looking = False
        self._job: CompactionJob | None = None
        self._store: SegmentStore | None = None
        self._thread: threading.Thread | None = None
        self._cancelled = threading.Event()
        #: Set while the job that runs is urgent.
        self._hurry = threading.Event()
        self._closed = False
        #: Jobs that were done, and bytes that they wrote.
        self.jobs = self.copied = 0

    def consider(self, store: SegmentStore) -> None:
        """Look whether a store takes too much space; cheap where little has died.

        To be called when the events have been written that say what has died.
        """
        log = store.log
        if self._closed or not log.freed >= log.look_at:
            if log.freed:
                self._restless[store] = None
            return
        self._restless[store] = self._waiting[store] = None
        if self._store is store:
            self._hurry.set()
        if self._looking:
            return
        self._looking = True
        try:
            while self._waiting and self._job is None:
                self._look(self._waiting.popitem()[0])
        finally:
            self._looking = False

    def rest(self, now: int) -> None:
        """Look whether there is something to do that has no hurry; to be called about once a second.

        Args:
            now: Microseconds since 1970.
        """
        for store in [*islice(self._restless, _LOOKS)]:
            if self._job is not None or self._closed:
                return
            log = store.log
            size, live_size, segment = log.size, log.live_size, log.place.segment_bytes
            # Those that come next are looked at first the next time.
            del self._restless[store]
            if size > live_size * 8 // 5 + (segment >> 4):
                self._restless[store] = None
                job = plan(log, now)
                if job is not None:
                    self._start(store, job, hurry=False)
                elif any(_is_left(chain.active, segment >> 4, now) for chain in log.chains):
                    self._seal_early(store)

    def forget(self, store: SegmentStore) -> None:
        """Return a store is gone: what is done for it comes to nothing."""
        self._draining.discard(store)
        self._waiting.pop(store, None)
        self._restless.pop(store, None)
        if self._store is store:
            self._cancelled.set()

    def close(self) -> None:
        """End the thread; what it has completed is put in place."""
        self._closed = True
        self._cancelled.set()
        if self._thread is not None:
            self._thread.join()
            assert self._job is not None
            self._finish(self._job)

    def _look(self, store: SegmentStore) -> None:
        log = store.log
        size, live_size, segment = log.size, log.live_size, log.place.segment_bytes
        limit = 2 * live_size + segment
        if size > limit:
            self._draining.add(store)
        elif size <= live_size * 3 // 2 + segment:
            self._draining.discard(store)
        log.freed = 0
        # What dies counts twice: until then the limit cannot be reached.
        log.look_at = max(segment >> 6, (limit - size) // 2)
        if store not in self._draining:
            return
        job = plan(log)
        if job is not None:
            self._start(store, job, hurry=True)
        elif size > limit:
            self._seal_early(store)
        else:
            self._draining.discard(store)

    def _seal_early(self, store: SegmentStore) -> None:
        """Have what is written to, or has just been, become fit for a job."""
        log = store.log
        waits = False
        for chain in log.chains:
            active = chain.active
            if active is not None and is_sparse(active):
                chain.seal_active()
            waits = waits or any(is_sparse(each) and each.sealed and not each.synced for each in chain.segments)
        if waits:
            log.look_at = 0
            self._sync(store)

    def _start(self, store: SegmentStore, job: CompactionJob, hurry: bool) -> None:
        self._job, self._store = job, store
        self._cancelled.clear()
        if hurry:
            self._hurry.set()
        else:
            self._hurry.clear()
        if self._deliver is None:
            self._run(job, lambda size: None)
            self._finish(job)
        else:
            self._thread = threading.Thread(
                target=self._run_and_tell, args=(job, self._deliver), name="compactor", daemon=True
            )
            self._thread.start()

    def _run_and_tell(self, job: CompactionJob, deliver: Callable[[Callable[[], None]], object]) -> None:
        self._run(job, self._pace)
        if not self._closed:
            deliver(partial(self._finish, job))

    def _run(self, job: CompactionJob, pace: Callable[[int], None]) -> None:
        """Do a job; nothing is lost if it fails, as the sources stay."""
        try:
            job.run(pace)
        except CancelledError:
            pass
        except DamagedSegmentError as error:
            error.segment.frozen = True
            _LOG.warning("%s/%s is damaged and keeps its space", job.log.place.directory, error.segment.name)
        except OSError as error:
            if not self._cancelled.is_set():
                _LOG.warning("Could not give back space in %s: %s", job.log.place.directory, error)
        except Exception as error:  # noqa: BLE001 - whatever it is, the sources are still there
            # A mistake of ours: it would be made again.
            _LOG.error("Could not give back space in %s", job.log.place.directory, exc_info=error)
            for source in job.sources:
                source.frozen = True

    def _pace(self, size: int) -> None:
        """Let time pass for bytes that were read."""
        if self._hurry.is_set():
            sleep(_BREATH)
        else:
            self._hurry.wait(size / self._rate)
        if self._cancelled.is_set():
            raise CancelledError

    def _finish(self, job: CompactionJob) -> None:
        """Put in place what a job has made."""
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
        # Where nothing came of it there is no hurry: the next one would be the same.
        if swapped and copy is not None:
            store.log.look_at = 0
            self._waiting[store] = None
        self._on_change(store)


def _is_left(active: Segment | None, size: int, now: int) -> bool:
    """Return whether a segment is written to no more and of so little use that it is to be sealed."""
    return active is not None and active.size > size and active.max_arrived + _LEFT_US < now and is_sparse(active)
