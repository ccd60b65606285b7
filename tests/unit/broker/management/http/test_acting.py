"""Who acts for a request acts for no other one, however they take turns."""

from __future__ import annotations

import asyncio

import pytest

from leveret.broker.core.events import BROKER, Actor, Events
from leveret.broker.management.http.middleware import _Acting
from leveret.storage.clock import Clock


async def test_each_request_has_its_own_actor() -> None:
    events = Events(Clock())
    seen: list[tuple[str, str]] = []

    async def request(name: str) -> str:
        await asyncio.sleep(0)
        assert events.actor is BROKER
        events.actor = Actor(name)
        for _ in range(3):
            await asyncio.sleep(0)
            seen.append((name, events.actor.user))
        return name

    async def act(name: str) -> str:
        return await _Acting(events, request(name))

    assert await asyncio.gather(*map(act, "abc")) == ["a", "b", "c"]
    assert len(seen) == 9
    assert all(name == user for name, user in seen)
    assert events.actor is BROKER


async def test_errors_and_cancellation_go_through() -> None:
    events = Events(Clock())

    async def fails() -> None:
        events.actor = Actor("ann")
        await asyncio.sleep(0)
        raise ValueError("x")

    async def waits() -> None:
        events.actor = Actor("ann")
        await asyncio.Event().wait()

    async def act() -> None:
        await _Acting(events, waits())

    with pytest.raises(ValueError, match="x"):
        await _Acting(events, fails())
    assert events.actor is BROKER
    task = asyncio.create_task(act())
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert events.actor is BROKER
