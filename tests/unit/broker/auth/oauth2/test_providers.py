"""Keys of a provider, a real HTTP server: when it is asked, and what happens when it does not answer."""

from __future__ import annotations

import asyncio
import logging
import ssl
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trustme

from leveret.broker.auth.backend_interface import Question
from leveret.broker.auth.oauth2 import providers
from leveret.broker.auth.oauth2.backend import OAuth2Backend
from leveret.broker.auth.oauth2.keys import read_key_set
from leveret.broker.auth.oauth2.providers import Provider
from leveret.broker.auth.oauth2.settings import OAuth2Settings, ProviderSettings, ResourceServer, read_settings
from leveret.broker.auth.oauth2.tokens import TokenRefused
from leveret.broker.config.auth import AuthOAuth2
from leveret.broker.config.declaration import build
from leveret.storage.clock import Clock
from tests.support.stepping_clock import AdvancedClock
from tests.support.tokens import (
    RESOURCE_SERVER,
    Fault,
    Signer,
    StubProvider,
    drips,
    says,
    says_nothing,
    says_too_much,
)


@asynccontextmanager
async def _verifying(stub: StubProvider, clock: Clock | None = None, **settings: Any) -> AsyncIterator[OAuth2Backend]:
    """Verify tokens by the keys of a provider that is found by its discovery document."""
    found = {"issuer": stub.issuer, "discovery": f"{stub.issuer}/.well-known/openid-configuration", **settings}
    servers = (ResourceServer(RESOURCE_SERVER, scope_prefix="rabbitmq."),)
    verifier = OAuth2Backend(OAuth2Settings(servers, {"": ProviderSettings(**found)}, 0), clock or Clock())
    try:
        yield verifier
    finally:
        await verifier.close()


def _token(stub: StubProvider, signer: Signer, **claims: Any) -> bytes:
    return signer.token("rabbitmq.read:*/*", **{"iss": stub.issuer, **claims}).encode()


async def test_keys_are_discovered_once() -> None:
    signer = Signer()
    async with StubProvider(signer) as stub, _verifying(stub) as verifier:
        found = await verifier.verify("", _token(stub, signer, exp=2**32))
        assert (found.name, found.expires_at) == ("alice", 2**32)
        assert found.rights is not None
        assert found.rights.allows(Question("queue", "/", "read", "name"))
        await asyncio.gather(*(verifier.verify("", _token(stub, signer)) for _ in range(20)))
        assert stub.requests == 1


async def test_logins_that_wait_share_one_request() -> None:
    signer = Signer()
    async with StubProvider(signer) as stub, _verifying(stub) as verifier:
        await asyncio.gather(*(verifier.verify("", _token(stub, signer)) for _ in range(50)))
        assert stub.requests == 1


async def test_a_new_key_is_found_and_an_old_one_dropped() -> None:
    old, new, clock = Signer(kid="old"), Signer(kid="new"), AdvancedClock()
    async with StubProvider(old) as stub, _verifying(stub, clock) as verifier:
        await verifier.verify("", _token(stub, old))
        stub.signers = [new]
        clock.advance(11)
        await verifier.verify("", _token(stub, new))
        assert stub.requests == 2
        with pytest.raises(TokenRefused, match="does not have the key"):
            await verifier.verify("", _token(stub, old))


async def test_forged_kids_cause_no_requests() -> None:
    signer, clock = Signer(), AdvancedClock()
    async with StubProvider(signer) as stub, _verifying(stub, clock) as verifier:
        await verifier.verify("", _token(stub, signer))
        clock.advance(11)
        forged = [_token(stub, Signer("P-256", f"forged {n}", signer.key)) for n in range(2000)]
        outcomes = await asyncio.gather(*(verifier.verify("", each) for each in forged), return_exceptions=True)
        assert {type(each) for each in outcomes} == {TokenRefused}
        assert stub.requests == 2
        await verifier.verify("", _token(stub, signer))
        assert stub.requests == 2


async def test_what_is_wrong_without_a_key_causes_no_request() -> None:
    signer = Signer()
    async with StubProvider(signer) as stub, _verifying(stub) as verifier:
        for claims in ({"exp": 1}, {"nbf": 2**40}, {"aud": ["other"]}, {"iss": "http://127.0.0.1"}, {"iss": None}):
            with pytest.raises(TokenRefused):
                await verifier.verify("", _token(stub, signer, **claims))
        assert stub.requests == 0


async def test_revoked_keys_are_dropped_in_the_background() -> None:
    signer, clock = Signer(), AdvancedClock()
    async with StubProvider(signer) as stub, _verifying(stub, clock) as verifier:
        await verifier.verify("", _token(stub, signer))
        stub.signers = []
        clock.advance(601)
        await verifier.verify("", _token(stub, signer))
        deadline = time.monotonic() + 120
        while True:
            try:
                await verifier.verify("", _token(stub, signer))
            except TokenRefused:
                break
            assert time.monotonic() < deadline
            await asyncio.sleep(0.01)
        assert stub.requests == 2


async def test_keys_are_used_for_a_day_while_the_provider_is_away() -> None:
    signer, clock = Signer(), AdvancedClock()
    async with StubProvider(signer) as stub, _verifying(stub, clock) as verifier:
        await verifier.verify("", _token(stub, signer))
        stub.fault = says(503, "")
        clock.advance(86_000)
        await verifier.verify("", _token(stub, signer))
        clock.advance(500)
        with pytest.raises(TokenRefused, match="answers 503"):
            await verifier.verify("", _token(stub, signer))


@pytest.mark.parametrize(
    ("fault", "text"),
    [
        (says_nothing, "does not answer in"),
        (drips, "does not answer in"),
        (says_too_much, "more than 1048576 bytes"),
        (says(500, "oh"), "answers 500"),
        (says(302, ""), "answers 302"),
        (says(200, "no JSON"), "JSON object"),
        (says(200, "[]"), "JSON object"),
        (says(200, "{}"), "list of keys"),
        (says(200, '{"keys": 5}'), "list of keys"),
        (says(200, "[" * 100_000), "JSON object"),
    ],
)
async def test_a_provider_with_faults(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, fault: Fault, text: str
) -> None:
    monkeypatch.setattr(providers, "_DEADLINE", 1.0)
    signer, clock = Signer(), AdvancedClock()
    async with StubProvider(signer) as stub, _verifying(stub, clock) as verifier:
        stub.fault = fault
        with caplog.at_level(logging.INFO, "leveret.auth"):
            outcomes = await asyncio.gather(
                *(verifier.verify("", _token(stub, signer)) for _ in range(20)), return_exceptions=True
            )
            assert all(isinstance(each, TokenRefused) and text in str(each) for each in outcomes), outcomes
            assert stub.requests == 1
            assert len([each for each in caplog.records if each.name == "leveret.auth"]) == 1
            began = time.monotonic()
            with pytest.raises(TokenRefused):
                await verifier.verify("", _token(stub, signer))
            assert time.monotonic() - began < 0.5, "nobody waits for it again so soon"
            stub.fault = None
            clock.advance(11)
            await verifier.verify("", _token(stub, signer))
            assert "again" in caplog.text


async def test_a_provider_that_is_away() -> None:
    signer = Signer()
    async with StubProvider(signer) as stub:
        pass
    async with _verifying(stub) as verifier:
        with pytest.raises(TokenRefused, match="cannot be asked"):
            await verifier.verify("", _token(stub, signer))


@pytest.mark.parametrize(
    ("document", "text"),
    [
        ({"issuer": "https://else.example"}, "another issuer"),
        ({"jwks_uri": None}, "no jwks_uri"),
        ({"jwks_uri": "http://keys.example/keys"}, "https"),
        ({"jwks_uri": "file:///etc/passwd"}, "https"),
    ],
)
async def test_a_discovery_document_with_faults(document: dict[str, Any], text: str) -> None:
    signer = Signer()
    async with StubProvider(signer) as stub, _verifying(stub) as verifier:
        stub.document = document
        with pytest.raises(TokenRefused, match=text):
            await verifier.verify("", _token(stub, signer))


async def test_a_login_that_is_cancelled_leaves_the_request_to_others() -> None:
    signer, asked, go = Signer(), asyncio.Event(), asyncio.Event()
    async with StubProvider(signer) as stub, _verifying(stub) as verifier:

        async def wait(request: Any) -> Any:
            asked.set()
            await go.wait()
            return await says(200, '{"keys": []}')(request)

        stub.fault = wait
        first = asyncio.create_task(verifier.verify("", _token(stub, signer)))
        second = asyncio.create_task(verifier.verify("", _token(stub, signer)))
        await asked.wait()
        first.cancel()
        go.set()
        with pytest.raises(TokenRefused, match="does not have the key"):
            await second
        assert stub.requests == 1


async def test_several_providers_by_audience() -> None:
    mine, others = Signer(kid="key"), Signer(kid="key")
    async with StubProvider(mine) as first, StubProvider(others) as second:
        settings = OAuth2Settings(
            (ResourceServer("a", "one"), ResourceServer("b", "two")),
            {
                "one": ProviderSettings(issuer=first.issuer, jwks_uri=first.jwks_uri),
                "two": ProviderSettings(issuer=second.issuer, jwks_uri=second.jwks_uri),
            },
            0,
        )
        verifier = OAuth2Backend(settings, Clock())
        try:
            assert (await verifier.verify("", mine.token("x", aud=["a"], iss=first.issuer).encode())).name == "alice"
            assert (await verifier.verify("", others.token("x", aud=["b"], iss=second.issuer).encode())).name == "alice"
            for token, text in (
                (others.token("x", aud=["a"], iss=first.issuer), "signature"),
                (mine.token("x", aud=["a"], iss=second.issuer), "another issuer"),
                (mine.token("x", aud=["a", "b"], iss=first.issuer), "more than one"),
                (mine.token("x", aud=["c"], iss=first.issuer), "is not this broker"),
                (mine.token("x", aud=None, iss=first.issuer), "is not this broker"),
            ):
                with pytest.raises(TokenRefused, match=text):
                    await verifier.verify("", token.encode())
        finally:
            await verifier.close()


async def test_the_default_key_is_of_tokens_that_name_none() -> None:
    signer = Signer(kid="key")
    settings = ProviderSettings(keys={"key": _public(signer), "other": _public(Signer())})
    with pytest.raises(TokenRefused, match="names no key"):
        await Provider(settings, Clock()).find_key(None)
    settings = ProviderSettings(keys=settings.keys, default_key="key")
    assert await Provider(settings, Clock()).find_key(None) is settings.keys["key"]


def _public(signer: Signer) -> Any:
    return read_key_set({"keys": [signer.jwk()]})[signer.kid]


async def test_the_certificate_of_the_provider_is_verified(tmp_path: Path) -> None:
    authority, other = trustme.CA(), trustme.CA()
    server = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("127.0.0.1").configure_cert(server)
    for ca, name in ((authority, "right.pem"), (other, "wrong.pem")):
        ca.cert_pem.write_to_path(tmp_path / name)
    signer = Signer()
    async with StubProvider(signer, tls=server) as stub:
        token = _token(stub, signer)
        for https, is_taken in (
            ({"cacertfile": tmp_path / "right.pem"}, True),
            ({"cacertfile": tmp_path / "wrong.pem"}, False),
            ({}, False),
            ({"peer_verification": "verify_none"}, True),
        ):
            options = {"issuer": stub.issuer, "resource_server_id": RESOURCE_SERVER}
            values = {**options, **{f"https.{name}": value for name, value in https.items()}}
            verifier = OAuth2Backend(read_settings(build(AuthOAuth2, values)), Clock())
            try:
                if is_taken:
                    assert (await verifier.verify("", token)).name == "alice"
                else:
                    with pytest.raises(TokenRefused, match="CERTIFICATE_VERIFY_FAILED"):
                        await verifier.verify("", token)
            finally:
                await verifier.close()
