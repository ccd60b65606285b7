"""A backend of authentication whose answers a test gives."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field, replace
from typing import Final

from leveret.broker.auth.accounts import Accounts
from leveret.broker.auth.backend_interface import Identity, Login, Question, Refused, Unavailable
from leveret.broker.auth.backends.answers import AnswerCache, AskedRights

MODULE: Final = "rabbit_auth_backend_stub"


@dataclass
class StubBackend:
    """Knows users by their passwords, and what they may do. While it is held, it answers only in go_on().

    Attributes:
        asked: All that it was asked.
    """

    loop: asyncio.AbstractEventLoop
    users: dict[str, bytes] = field(default_factory=lambda: {"stubby": b"secret"})
    tags: tuple[str, ...] = ()
    allowed: set[Question] = field(default_factory=set)
    expires_at: float | None = None
    is_away: bool = False
    is_held: bool = False
    asked: list[Login | Question] = field(default_factory=list)
    generations: Accounts = field(default_factory=Accounts)
    module: str = MODULE
    _waiting: list[asyncio.Future[None]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._cache = AnswerCache(15.0, self.generations, self.loop)

    async def authenticate(self, login: Login) -> Identity:
        """Know a user by its password."""
        await self._ask(login)
        if login.secret is not None and self.users.get(login.name) != login.secret:
            raise Refused("Denied by the stub")
        rights = AskedRights("stub", self._cache.of(login.name, login.address), self.answer)
        return Identity(login.name, self.tags, rights, self.expires_at)

    async def authorize(self, login: Login) -> Identity:
        """Know a user by its name."""
        if login.name not in self.users:
            raise Refused("Unknown to the stub")
        return await self.authenticate(replace(login, secret=None))

    async def answer(self, question: Question) -> bool:
        """Answer what a user may do."""
        await self._ask(question)
        return question in self.allowed

    async def _ask(self, asked: Login | Question) -> None:
        self.asked.append(asked)
        if self.is_held:
            waiting = self.loop.create_future()
            self._waiting.append(waiting)
            await waiting
        if self.is_away:
            raise Unavailable(MODULE, "timeout")

    def go_on(self) -> None:
        """Answer all that waits."""
        waiting, self._waiting = self._waiting, []
        for each in waiting:
            each.set_result(None)

    async def close(self) -> None:
        """Do nothing."""
