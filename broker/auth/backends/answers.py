"""Answers of other servers about what users may do, kept for a while.

Permissions of users whom a server authorizes are checked here: what is not known is asked, and the check is made again.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import Final, Protocol, TypeAlias

from leveret.broker.auth.backend_interface import Explanation, Identity, Question, Unavailable
from leveret.broker.unfinished import Unanswered, answered

log = logging.getLogger("leveret.auth")

#: Users, and answers about each, that are kept at most; above it the oldest are asked again.
_USERS_MAX: Final = 4096
_ANSWERS_MAX: Final = 1024
#: Seconds for which every answer holds: an event that needs several is handled once all have come. RabbitMQ keeps
#: neither refusals nor failures, so they hold no longer.
_LEAST_SECONDS: Final = 1.0


#: Asks a server; raises Unavailable.
Ask: TypeAlias = Callable[[Question], Awaitable[bool]]


class _Generations(Protocol):
    """What tells that permissions have changed."""

    generation: int


@dataclass(slots=True)
class _Answer:
    given: bool | Unavailable
    until: float


class Answers:
    """What is known about one user, as seen from one address.

    Args:
        ttl: Seconds for which permission is kept.
        generations: All answers are forgotten when its generation changes.
        loop: The event loop.
    """

    def __init__(self, ttl: float, generations: _Generations, loop: asyncio.AbstractEventLoop) -> None:
        self.ttl = max(ttl, _LEAST_SECONDS)
        self._loop = loop
        self._generations = generations
        self._generation = generations.generation
        self._known: dict[Question, _Answer] = {}
        self._asking: dict[Question, asyncio.Task[None]] = {}

    def get(self, question: Question, ask: Ask) -> bool:
        """Return an answer.

        Args:
            ask: Asks the server.
        Raises:
            Unanswered: The server has to be asked first.
            Unavailable: It could not be asked.
        """
        if self._generation != self._generations.generation:
            self._generation = self._generations.generation
            self._known.clear()
        answer = self._known.get(question)
        now = self._loop.time()
        if answer is None or answer.until < now:
            held = [each for each in self._known.values() if each.until >= now]
            raise Unanswered(partial(self._find, question, ask, held), self.ttl)
        if isinstance(answer.given, Unavailable):
            raise answer.given
        return answer.given

    async def _find(self, question: Question, ask: Ask, held: list[_Answer]) -> None:
        """Ask, unless that is going on. What is known already is not asked again before the check is made again."""
        task = self._asking.get(question)
        if task is None:
            task = self._asking[question] = self._loop.create_task(self._fetch(question, ask))
        await asyncio.shield(task)
        least = self._loop.time() + _LEAST_SECONDS
        for each in held:
            each.until = max(each.until, least)

    async def _fetch(self, question: Question, ask: Ask) -> None:
        given: bool | Unavailable
        try:
            given = await ask(question)
        except Unavailable as failure:
            given = failure
        except Exception:
            log.exception("asking about permissions: internal error")
            given = Unavailable("", "internal error")
        finally:
            del self._asking[question]
        if len(self._known) >= _ANSWERS_MAX:
            del self._known[next(iter(self._known))]
        seconds = self.ttl if given is True else _LEAST_SECONDS
        self._known[question] = _Answer(given, self._loop.time() + seconds)


class AnswerCache:
    """The answers about all users of one backend.

    Args:
        ttl: Seconds for which permission is kept.
        generations: All answers are forgotten when its generation changes.
        loop: The event loop.
    """

    def __init__(self, ttl: float, generations: _Generations, loop: asyncio.AbstractEventLoop) -> None:
        self._ttl = ttl
        self._loop = loop
        self._generations = generations
        self._users: OrderedDict[tuple[object, ...], Answers] = OrderedDict()

    def of(self, *user: object) -> Answers:
        """Return what is known about a user.

        Args:
            user: Everything that answers depend on, such as name and address.
        """
        answers = self._users.pop(user, None) or Answers(self._ttl, self._generations, self._loop)
        self._users[user] = answers
        if len(self._users) > _USERS_MAX:
            self._users.popitem(last=False)
        return answers


class AskedRights:
    """Rights for which a server is asked; see Rights.

    Args:
        backend: Name of the backend, for explanations.
        answers: What is known about the user.
        ask: Asks the server.
        why: Returns what decides about a question, for explanations; None to say no more than the answer.
    """

    def __init__(
        self, backend: str, answers: Answers, ask: Ask, why: Callable[[Question], Awaitable[str]] | None = None
    ) -> None:
        self._backend = backend
        self._answers = answers
        self._ask = ask
        self._why = why

    def allows(self, question: Question) -> bool:
        """Return what the server answers."""
        return self._answers.get(question, self._ask)

    async def explain(self, question: Question) -> Explanation:
        """Return what the server answers, and why."""
        try:
            allowed = await answered(lambda: self.allows(question))
            reason = "the server allows it" if allowed else "the server denies it"
        except Unavailable as failure:
            allowed, reason = False, str(failure)
        return Explanation(allowed, self._backend, reason if self._why is None else await self._why(question))

    async def renew(self, secret: bytes) -> Identity | None:
        """Return None: permissions do not depend on the password."""
        return None
