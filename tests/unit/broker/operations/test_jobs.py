"""Jobs together: how they share time, end with their users, and what a start does with those that are stored."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from leveret.broker.core.queues.classic_queue import ClassicQueue
from leveret.broker.operations.jobs.job import Job
from leveret.broker.operations.jobs.job_options import read_move_options
from leveret.broker.operations.jobs.plans import FULL
from leveret.broker.operations.jobs.runner import RUNNING_MAX, Jobs
from leveret.broker.operations.principal import Principal
from leveret.policies.dead_letter import EXPIRED, Death, record_death
from leveret.protocol.faults import ChannelFault
from leveret.protocol.field_table import FieldValue, normalize
from leveret.protocol.properties import HEADERS, encode_content_header, encode_headers
from leveret.storage.message import Envelope, Message
from tests.support.memory_broker import MemoryBroker
from tests.support.queue_content import contents
from tests.support.queues import declare
from tests.support.stepping_clock import SteppingClock

STORED: dict[str, Any] = {
    "id": "1", "kind": "return", "vhost": "/", "queue": "q", "user": "guest", "state": "running", "created": 1,
    "finished": 0, "error": None, "options": {}, "scanned": 5, "returned": 5, "left": [], "by_origin": [], "qid": 1,
    "ends": [[0, 7]], "number": 0, "begin": 0,
}  # fmt: skip


class Board:
    """A broker in memory with its jobs."""

    def __init__(self) -> None:
        self.broker = MemoryBroker(slice_clock=SteppingClock())
        self.vhost = self.broker.vhost
        self.accounts = self.broker.accounts
        self.jobs = Jobs(self.broker.broker, self.accounts)
        self.principal = Principal(self.accounts, self.accounts.users["guest"], self.vhost)

    def queue(self, name: str, count: int, origin: str = "to", exchange: str = "") -> ClassicQueue:
        """A queue with dead letters."""
        queue = declare(self.vhost, name)
        recorded = record_death((), Death(origin, EXPIRED, 1, exchange, [origin]), trusted=True)
        headers = normalize(tuple((key, FieldValue(*value)) for key, value in recorded))
        envelope = Envelope(b"\x00\x01q", encode_content_header(1, {HEADERS: encode_headers(headers)}), dead=True)
        for _ in range(count):
            queue.publish([Message(envelope, b"x")], 1)
        return queue

    def begin(self, queue: str, **options: Any) -> Job:
        return self.jobs.begin("return", self.principal, queue, options)

    def restore(self, *documents: dict[str, Any]) -> list[Job]:
        self.jobs.restore((("/", str(number)), document) for number, document in enumerate(documents))
        return self.jobs.listed({"/"})


@pytest.fixture
def board() -> Board:
    return Board()


def test_all_jobs_share_one_time_slice_of_a_turn(board: Board) -> None:
    target = declare(board.vhost, "to")
    for number in range(20):
        board.queue(f"q{number}", 50)
    jobs = [board.begin(f"q{number}") for number in range(20)]
    board.broker.loop.iterate()
    first = target.ready_count()
    assert 0 < first <= 10, "of 1000"
    board.broker.loop.advance(1)
    assert {job.state for job in jobs} == {"completed"}
    assert target.ready_count() == 1000


def test_a_user_who_was_deleted_takes_the_jobs_along(board: Board) -> None:
    """Even if there is another user of this name before they take their next step."""
    declare(board.vhost, "to")
    dlq = board.queue("dlq", 10)
    job = board.begin("dlq", rate=1)
    board.broker.loop.advance(1)
    board.accounts.delete_user("guest")
    board.accounts.add_user("guest", "guest", ("administrator",))
    board.accounts.set_permissions("guest", "/", ".*", ".*", ".*")
    board.broker.loop.advance(100)
    assert (job.state, job.error) == ("failed", "user 'guest' was deleted")
    assert dlq.ready_count() > 5


async def test_so_do_moves_that_a_request_waits_for(board: Board) -> None:
    declare(board.vhost, "to")
    source = board.queue("from", 100)
    moving = asyncio.ensure_future(board.jobs.move(board.principal, source, read_move_options({"to": "to"})))
    await asyncio.sleep(0)
    board.broker.loop.iterate()
    moved = 100 - source.ready_count()
    assert 0 < moved < 100
    board.accounts.delete_user("guest")
    job, work = await moving
    board.broker.loop.advance(10)
    assert (job.state, job.error, work.end) == ("failed", "user 'guest' was deleted", None)
    assert (work.counts.returned, source.ready_count()) == (moved, 100 - moved)
    assert board.jobs.listed({"/"}) == [], "it ends with its request"


def test_a_vhost_has_a_limit_of_running_jobs(board: Board) -> None:
    board.queue("dlq", 10)
    jobs = [board.begin("dlq", rate=0.01) for _ in range(RUNNING_MAX)]
    with pytest.raises(ChannelFault, match="50 jobs and moves are running in vhost '/', which is the limit"):
        board.begin("dlq")
    board.jobs.cancel(jobs[0])
    assert board.begin("dlq").state == "running"


def test_texts_of_headers_and_options_have_bounds(board: Board) -> None:
    board.queue("dlq", 3, exchange="x" * 200_000)
    job = board.begin("dlq", via="exchange")
    board.broker.loop.advance(1)
    assert (job.state, job.counts.left.total()) == ("completed", 3)
    assert len(str(job.stored())) < 3000
    with pytest.raises(ValueError, match="the options have 100026 characters, 65536 are allowed"):
        board.begin("dlq", set_headers={"a": "x" * 100_000})


@pytest.mark.parametrize(
    "wrong",
    [
        {"options": None}, {"options": [1]}, {"vhost": ["/"]}, {"user": 5}, {"state": "tired"}, {"kind": "sort"},
        {"kind": ["return"]}, {"left": 7}, {"left": ["x"]}, {"ends": {"0": 1}}, {"ends": [[0, 1e999]]},
        {"created": "x"}, {"qid": "x"}, {"id": None}, {"by_origin": [{"target": [], "reason": "", "count": 1}]},
        {"kind": "replay", "options": {"into_queue": "q"}, "ends": []},
    ],
    ids=str,
)  # fmt: skip
def test_a_stored_job_of_another_form_is_one_line(
    board: Board, wrong: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    good = {**STORED, "id": "good", "state": "completed"}
    assert [job.job_id for job in board.restore({**STORED, **wrong}, good)] == ["good"]
    assert [record.exc_info for record in caplog.records] == [None]
    assert caplog.messages[0].startswith("job '0' could not be restored: ")


def test_a_stored_job_with_options_that_are_refused_now_has_failed(board: Board) -> None:
    (job,) = board.restore({**STORED, "options": {"rate": 5e-324}})
    assert (job.state, job.error[:20]) == ("failed", "rate must be 0.001 t")
    board.jobs.cancel(job)
    assert board.jobs.listed({"/"}) == []


@pytest.mark.parametrize(
    ("before", "state", "bad_ends"),
    [
        ({}, "running", 0),
        ({"clean": True, "bad_ends": 2}, "running", 0),
        ({"clean": False}, "running", 1),
        ({"clean": False, "bad_ends": 2}, "paused", 3),
    ],
)
def test_a_job_waits_after_three_bad_ends(board: Board, before: dict[str, Any], state: str, bad_ends: int) -> None:
    (job,) = board.restore({**STORED, **before})
    assert (job.state, job.stored()["bad_ends"]) == (state, bad_ends)
    if state == "paused":
        assert job.error == "the broker has ended badly 3 times in a row while it ran"
        board.broker.loop.advance(10)
        assert job.state == "paused"
        board.jobs.resume(job)
        assert (job.state, job.bad_ends, job.error) == ("running", 0, "")
        board.broker.loop.advance(10)
    with pytest.raises(ChannelFault, match=r"job '1' is [a-z]+, not paused"):
        board.jobs.resume(job)


def test_a_target_that_is_full_is_counted_once_for_each_message(board: Board) -> None:
    """A step goes on after one look, and sees no message twice."""
    target = declare(board.vhost, "to", arguments=(("x-max-length", FieldValue("l", 70)),))
    dlq = board.queue("dlq", 100)
    job = board.begin("dlq")
    board.broker.loop.advance(1)
    assert (job.counts.returned, job.counts.scanned) == (70, 100)
    assert job.counts.left == {(FULL, "queue 'to'"): 30}
    assert (len(contents(target)), dlq.ready_count()) == (70, 30)
