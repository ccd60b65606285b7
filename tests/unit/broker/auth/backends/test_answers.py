from __future__ import annotations

from collections.abc import Callable

import pytest

from leveret.broker.auth.backend_interface import Question, Unavailable
from leveret.broker.auth.backends import answers
from leveret.broker.auth.backends.answers import AnswerCache, AskedRights
from leveret.broker.unfinished import Unanswered
from leveret.policies.permissions import Kind
from tests.support.manual_loop import ManualLoop
from tests.support.stub_backend import StubBackend

WRITE_Q = Question("queue", "/", "write", "q")


@pytest.fixture
def loop() -> ManualLoop:
    return ManualLoop()


@pytest.fixture
def stub(loop: ManualLoop) -> StubBackend:
    return StubBackend(loop.loop, allowed={WRITE_Q})


@pytest.fixture
def rights(loop: ManualLoop, stub: StubBackend) -> AskedRights:
    return AskedRights("stub", AnswerCache(15.0, stub.generations, loop.loop).of("u", "127.0.0.1"), stub.answer)


def ask(loop: ManualLoop, rights: AskedRights, kind: Kind = "write", name: str = "q") -> bool:
    """Check a permission until it is known."""
    while True:
        try:
            return rights.allows(Question("queue", "/", kind, name))
        except Unanswered as question:
            loop.create_task(question.ask())
            loop.run()


def test_what_is_asked(loop: ManualLoop, stub: StubBackend, rights: AskedRights) -> None:
    checks: tuple[Callable[[], bool], ...] = (
        lambda: rights.allows(Question("vhost", "v")),
        lambda: rights.allows(Question("queue", "v", "configure", "q")),
        lambda: rights.allows(Question("exchange", "v", "write", "amq.default")),
        lambda: rights.allows(Question("topic", "v", "read", "e", "a.b")),
    )
    for check in checks:
        with pytest.raises(Unanswered) as question:
            check()
        loop.create_task(question.value.ask())
        loop.run()
        assert check() is False
    assert stub.asked == [
        ("vhost", "v", "", "", ""),
        ("queue", "v", "configure", "q", ""),
        ("exchange", "v", "write", "amq.default", ""),
        ("topic", "v", "read", "e", "a.b"),
    ]


def test_permission_is_kept_and_refusal_only_for_a_second(
    loop: ManualLoop, stub: StubBackend, rights: AskedRights
) -> None:
    for _ in range(15):
        assert ask(loop, rights)
        assert not ask(loop, rights, "read")
        loop.advance(1.01)
    assert stub.asked.count(WRITE_Q) == 1
    assert len(stub.asked) == 16
    stub.allowed.clear()
    assert not ask(loop, rights)


def test_all_is_forgotten_when_permissions_change(loop: ManualLoop, stub: StubBackend, rights: AskedRights) -> None:
    assert ask(loop, rights)
    stub.allowed.clear()
    stub.generations.generation += 1
    assert not ask(loop, rights)


def test_a_failure_is_an_answer(loop: ManualLoop, stub: StubBackend, rights: AskedRights) -> None:
    stub.is_away = True
    with pytest.raises(Unavailable, match=r"^timeout$"):
        ask(loop, rights)
    stub.is_away = False
    loop.advance(1.01)
    assert ask(loop, rights)


def test_the_same_is_asked_once_at_a_time(loop: ManualLoop, stub: StubBackend, rights: AskedRights) -> None:
    stub.is_held = True
    tasks = []
    for _ in range(3):
        with pytest.raises(Unanswered) as question:
            rights.allows(Question("queue", "/", "write", "q"))
        tasks.append(loop.create_task(question.value.ask()))
        loop.run()
    # One connection is closed meanwhile.
    tasks[0].cancel()
    loop.run()
    stub.go_on()
    loop.run()
    assert rights.allows(Question("queue", "/", "write", "q"))
    assert stub.asked == [WRITE_Q]


def test_what_was_known_is_known_until_the_event_is_handled_again(
    loop: ManualLoop, stub: StubBackend, rights: AskedRights
) -> None:
    """However long the second answer takes: otherwise an event that needs two might never be handled."""
    assert not ask(loop, rights, "read")
    stub.is_held = True
    with pytest.raises(Unanswered) as question:
        rights.allows(Question("queue", "/", "write", "q"))
    loop.create_task(question.value.ask())
    loop.advance(30.0)
    stub.go_on()
    loop.run()
    assert not rights.allows(Question("queue", "/", "read", "q"))
    assert rights.allows(Question("queue", "/", "write", "q"))


def test_the_answers_kept_are_bounded(
    loop: ManualLoop, stub: StubBackend, rights: AskedRights, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(answers, "_ANSWERS_MAX", 4)
    for number in range(20):
        assert not ask(loop, rights, name=f"q{number}")
    assert len(rights._answers._known) == 4
    monkeypatch.setattr(answers, "_USERS_MAX", 2)
    cache = AnswerCache(15.0, stub.generations, loop.loop)
    first = cache.of("a", "1")
    assert cache.of("a", "1") is first
    assert cache.of("a", "2") is not first
    cache.of("b", "1")
    assert cache.of("a", "1") is not first


def test_an_unforeseen_failure_is_no_permission(
    loop: ManualLoop, rights: AskedRights, caplog: pytest.LogCaptureFixture
) -> None:
    async def fail(question: Question) -> bool:
        raise RuntimeError

    rights._ask = fail
    with pytest.raises(Unavailable, match=r"^internal error$"):
        ask(loop, rights)
    assert caplog.messages == ["asking about permissions: internal error"]
