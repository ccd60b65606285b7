"""Cookies of sessions."""

from __future__ import annotations

import ssl

import pytest
from aiohttp.test_utils import make_mocked_request

from leveret.broker.auth.backends.chain import AuthBackends
from leveret.broker.config.options import Settings
from leveret.broker.core.node import Node
from leveret.broker.management.http.access import Access
from leveret.broker.management.http.controller import RequestContext
from leveret.broker.management.http.controllers.sessions import BrowserSession
from leveret.broker.operations.jobs.runner import Jobs
from leveret.broker.shovels.shovels import Shovels
from leveret.storage.clock import Clock
from tests.support.memory_broker import MemoryBroker


@pytest.fixture
def controller() -> BrowserSession:
    made = MemoryBroker()
    access = Access(AuthBackends(made.accounts), made.broker)
    jobs = Jobs(made.broker, made.accounts)
    shovels = Shovels(made.broker, AuthBackends(made.accounts), 0, {})
    context = RequestContext(made.broker, made.accounts, Node(Clock()), Settings(), access, lambda: None, jobs, shovels)
    return BrowserSession(context)


@pytest.mark.parametrize("encrypted", [False, True])
async def test_cookie_is_secure_over_tls_only(controller: BrowserSession, encrypted: bool) -> None:
    context = ssl.create_default_context() if encrypted else None
    answer = await controller.end(make_mocked_request("DELETE", "/api/session", sslcontext=context))
    cookie = answer.headers["set-cookie"].split("; ")
    assert ("Secure" in cookie) is encrypted
    assert {"HttpOnly", "SameSite=Strict", "Path=/", "Max-Age=0"}.issubset(cookie)
