"""Single sign-on as the broker does it, at a provider on loopback; tests/ui has it in a browser."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from urllib.parse import parse_qs, urlsplit

import aiohttp
import pytest

from leveret.broker.auth.accounts import Accounts
from leveret.broker.auth.backend_interface import Login
from leveret.broker.auth.backends.chain import AuthBackends
from leveret.broker.auth.oauth2.backend import OAuth2Backend
from leveret.broker.auth.oauth2.code_flow import CodeFlow, LoginError
from leveret.broker.auth.oauth2.settings import OAuth2Settings, ProviderSettings, ResourceServer
from leveret.broker.config.options import Management
from leveret.broker.management.http.logins import OAuthLogin
from leveret.broker.unfinished import Unanswered
from tests.support.sign_on_provider import SignOnProvider
from tests.support.stepping_clock import AdvancedClock
from tests.support.tokens import RESOURCE_SERVER

_BACK = "http://127.0.0.1:15672/js/oidc-oauth/login-callback.html"


@dataclass
class _Scene:
    """A provider, and the broker's side."""

    provider: SignOnProvider
    flow: CodeFlow
    backends: AuthBackends
    clock: AdvancedClock

    async def answer(self) -> tuple[dict[str, str], str]:
        """Begin a login and be alice; return the query of the browser's way back, and its binding."""
        page, binding = await self.flow.begin(_BACK)
        async with (
            aiohttp.ClientSession() as browser,
            browser.get(page.replace("/authorize", "/allow"), allow_redirects=False) as response,
        ):
            query = parse_qs(urlsplit(response.headers["location"]).query)
        return {name: values[0] for name, values in query.items()}, binding

    async def login(self) -> OAuthLogin:
        """Log in."""
        tokens = await self.flow.finish(*await self.answer())
        login = OAuthLogin(self.flow, self.backends, Login("", b"", "127.0.0.1", True, None), tokens, self.clock)
        assert (await login.log_in()).name == "alice"
        return login


@asynccontextmanager
async def _scene() -> AsyncIterator[_Scene]:
    clock = AdvancedClock()
    async with SignOnProvider() as provider:
        url = f"{provider.issuer}/.well-known/openid-configuration"
        settings = OAuth2Settings(
            (ResourceServer(RESOURCE_SERVER, scope_prefix=f"{RESOURCE_SERVER}."),),
            {"": ProviderSettings(issuer=provider.issuer, discovery=url)},
            0,
        )
        backend = OAuth2Backend(settings, clock)
        backends = AuthBackends(Accounts(), ["oauth2"], {"oauth2": backend})
        flow = CodeFlow(backend.provider(provider.issuer), Management(oauth_client_id="pages"), clock)
        try:
            yield _Scene(provider, flow, backends, clock)
        finally:
            await backends.close()


async def test_a_code_is_good_once() -> None:
    async with _scene() as scene:
        answer = await scene.answer()
        tokens = await scene.flow.finish(*answer)
        assert tokens.access.count(".") == 2
        assert "eyJ" not in repr(tokens)
        with pytest.raises(LoginError, match="not begun here"):
            await scene.flow.finish(*answer)


async def test_an_answer_belongs_to_one_browser_and_one_login() -> None:
    async with _scene() as scene:
        answer, _ = await scene.answer()
        with pytest.raises(LoginError, match="another browser"):
            await scene.flow.finish(answer, "other")
        answer, binding = await scene.answer()
        with pytest.raises(LoginError, match="not begun here"):
            await scene.flow.finish({**answer, "state": "forged"}, binding)
        # A stolen code does not fit another login: the provider compares what each has begun with.
        stolen, (mine, binding) = (await scene.answer())[0]["code"], await scene.answer()
        with pytest.raises(LoginError, match="invalid_grant"):
            await scene.flow.finish({**mine, "code": stolen}, binding)


async def test_a_login_must_not_take_too_long() -> None:
    async with _scene() as scene:
        answer = await scene.answer()
        scene.clock.advance(601)
        with pytest.raises(LoginError, match="too long ago") as refused:
            await scene.flow.finish(*answer)
        assert refused.value.code == "expired"


async def test_logins_that_nobody_finishes_are_forgotten() -> None:
    async with _scene() as scene:
        first = await scene.answer()
        for _ in range(4096):
            await scene.flow.begin(_BACK)
        with pytest.raises(LoginError, match="not begun here"):
            await scene.flow.finish(*first)


async def test_the_next_token_comes_before_the_last_one_expires() -> None:
    async with _scene() as scene:
        login = await scene.login()
        scene.clock.advance(190)
        assert login.user() is not None
        assert login._renewal is None
        scene.clock.advance(30)
        scene.provider.lifetime = 600
        assert login.user() is not None
        renewal = login._renewal
        assert renewal is not None
        await renewal
        scene.clock.advance(200)
        assert login.user() is not None
        assert scene.provider.renewals == 1


async def test_a_session_that_slept_waits_for_the_next_token() -> None:
    async with _scene() as scene:
        login = await scene.login()
        scene.provider.lifetime = 600
        scene.clock.advance(301)
        with pytest.raises(Unanswered) as question:
            login.user()
        await question.value.ask()
        user = login.user()
        assert user is not None
        assert user.name == "alice"


async def test_a_session_ends_that_is_not_renewed() -> None:
    async with _scene() as scene:
        login = await scene.login()
        scene.provider.renews = False
        scene.clock.advance(301)
        with pytest.raises(Unanswered) as question:
            login.user()
        await question.value.ask()
        assert login.user() is None


async def test_a_provider_without_a_page_to_log_out_at() -> None:
    async with _scene() as scene:
        login = await scene.login()
        del scene.provider.document["end_session_endpoint"]
        scene.clock.advance(601)
        assert await login.log_out("http://127.0.0.1:15672/") is None
        assert login.user() is None


@pytest.mark.parametrize("page", ["http://login.example/authorize", "javascript:alert(1)", None, 5])
async def test_an_unsafe_page_is_not_gone_to(page: object) -> None:
    async with _scene() as scene:
        scene.provider.document["authorization_endpoint"] = page
        with pytest.raises(LoginError, match="is not a URL with https"):
            await scene.flow.begin(_BACK)
