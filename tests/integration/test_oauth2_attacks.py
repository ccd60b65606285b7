"""Tokens that are forged, and providers that do not answer: what becomes of logins, and of the clients beside them."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml
from pamqp import commands

from tests.support.leveret_process import LeveretProcess
from tests.support.sign_on_provider import ProviderThread, SignOnProvider
from tests.support.tokens import RESOURCE_SERVER, Fault, Signer, says, says_nothing
from tests.support.wire import Connection, ConnectionClosed

#: Logins of one attack, and how many at once.
_LOGINS, _AT_ONCE = 2000, 32
#: Seconds that another client may wait for an answer. Alone, it takes milliseconds; test machines are busy.
_PATIENCE = 2.0


@pytest.fixture
def provider() -> Iterator[SignOnProvider]:
    """A provider."""
    with ProviderThread() as provider:
        yield provider


@pytest.fixture
def broker(tmp_path: Path, provider: SignOnProvider) -> Iterator[LeveretProcess]:
    """A broker that takes the provider's tokens."""
    config = tmp_path / "leveret.yaml"
    options = {
        "auth_backends": ["oauth2", "internal"],
        "auth_oauth2": {"resource_server_id": RESOURCE_SERVER, "issuer": provider.issuer},
    }
    config.write_text(yaml.safe_dump(options))
    with LeveretProcess(tmp_path, config=config) as process:
        yield process


@contextmanager
def _another_client(url: str, **login: Any) -> Iterator[Callable[[], float]]:
    """A client that asks without a pause; the function ends it and returns the longest wait in seconds."""
    waits: list[float] = []
    done = threading.Event()

    def work() -> None:
        with Connection(url, **login) as connection:
            channel = connection.channel()
            queue = channel.queue_declare(exclusive=True).queue
            while not done.is_set():
                began = time.monotonic()
                channel.publish("", queue, b"body")
                assert channel.get(queue, no_ack=True) is not None
                waits.append(time.monotonic() - began)

    with ThreadPoolExecutor(1) as pool:
        working = pool.submit(work)
        while not waits and not working.done():
            time.sleep(0.01)

        def end() -> float:
            done.set()
            working.result(60)
            assert len(waits) > 10
            return max(waits)

        try:
            yield end
        finally:
            done.set()


def _log_in(url: str, user: str, token: str) -> str:
    """Try to log in; return what comes of it."""
    try:
        with Connection(url, user=user, password=token, timeout=60):
            return "in"
    except ConnectionClosed as closed:
        return str(closed.code)


def _attack(broker: LeveretProcess, tokens: Callable[[int], str], count: int = _LOGINS) -> Counter[str]:
    """Log in many times, each time as another user, so that nobody is slowed down for failing again."""
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        return Counter(pool.map(lambda number: _log_in(broker.url, f"user {number}", tokens(number)), range(count)))


def _good(provider: SignOnProvider) -> str:
    return provider.signers[0].token(*provider.scopes, iss=provider.issuer)


def test_forged_keys(broker: LeveretProcess, provider: SignOnProvider) -> None:
    forger = Signer("RSA", "login")

    def forged(number: int) -> str:
        forger.kid = f"forged {number}" if number % 2 else "login"
        return forger.token(*provider.scopes, iss=provider.issuer)

    made = [forged(number) for number in range(_LOGINS)]
    with _another_client(broker.url, user="", password=_good(provider)) as longest:
        began = time.monotonic()
        assert _attack(broker, made.__getitem__) == {"403": _LOGINS}
        assert _log_in(broker.url, "", _good(provider)) == "in"
        # At the start, and then at most once in ten seconds.
        assert provider.requests <= 2 + (time.monotonic() - began) / 10
        waited = longest()
    assert waited < _PATIENCE
    assert "eyJ" not in broker.log_text()


@pytest.mark.parametrize("fault", [says_nothing, says(200, "no JSON"), says(503, "")])
def test_a_provider_that_fails(broker: LeveretProcess, provider: SignOnProvider, fault: Fault) -> None:
    provider.fault = fault
    with _another_client(broker.url) as longest:
        began = time.monotonic()
        assert _attack(broker, lambda _: _good(provider), 300) == {"403": 300}
        # The first ones wait for the deadline; when it has passed, the others do not.
        assert time.monotonic() - began < 60
        assert provider.requests <= 2 + (time.monotonic() - began) / 10
        waited = longest()
    assert waited < _PATIENCE
    assert "cannot be read" in broker.log_text()


def test_connections_go_on_while_the_provider_is_away(broker: LeveretProcess, provider: SignOnProvider) -> None:
    with Connection(broker.url, user="", password=_good(provider)) as connection:
        provider.fault = says_nothing
        unknown = Signer("RSA", "unknown").token(*provider.scopes, iss=provider.issuer)
        assert _log_in(broker.url, "someone", unknown) == "403"
        connection.channel().queue_declare(exclusive=True)
        assert _log_in(broker.url, "", _good(provider)) == "in"
        assert _log_in(broker.url, "guest", "guest") == "in"


def test_large_tokens(broker: LeveretProcess, provider: SignOnProvider) -> None:
    """As a new secret there is room for more than in a login."""

    def token(size: int) -> str:
        return provider.signers[0].token(*provider.scopes, iss=provider.issuer, filling="x" * size)

    update = commands.Connection.UpdateSecret
    connection, refusal = (
        Connection(broker.url, user="", password=_good(provider)),
        "NOT_ALLOWED - New secret was refused",
    )
    with connection, connection.expect_connection_close(530, f"{refusal} by one of the backends", update):
        connection.rpc(update, new_secret=token(10_000), reason="large")
        connection.rpc(update, new_secret=token(70_000), reason="too large")
