"""Keys and signed tokens, and a provider that serves the keys over HTTP and can fail in many ways."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import cache
from typing import Any

import jwt
from aiohttp import web
from cryptography.hazmat.primitives.asymmetric import ec, ed448, ed25519, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

#: What the tests' broker is called at the provider.
RESOURCE_SERVER = "rabbitmq"
#: Algorithm, name of the key's kind.
KINDS = {
    "RS256": "RSA",
    "RS384": "RSA",
    "RS512": "RSA",
    "PS256": "RSA",
    "PS384": "RSA",
    "PS512": "RSA",
    "ES256": "P-256",
    "ES384": "P-384",
    "ES512": "P-521",
    "EdDSA": "Ed25519",
}
_MAKERS: dict[str, Callable[[], Any]] = {
    "RSA": lambda: rsa.generate_private_key(65537, 2048),
    # 1024 bits, too few
    "weak RSA": lambda: rsa.generate_private_key(65537, 1024),
    "P-256": lambda: ec.generate_private_key(ec.SECP256R1()),
    "P-384": lambda: ec.generate_private_key(ec.SECP384R1()),
    "P-521": lambda: ec.generate_private_key(ec.SECP521R1()),
    "secp256k1": lambda: ec.generate_private_key(ec.SECP256K1()),
    "Ed25519": ed25519.Ed25519PrivateKey.generate,
    "Ed448": ed448.Ed448PrivateKey.generate,
}


class Signer:
    """A private key.

    Args:
        kind: A key of `_MAKERS`.
        kid: Its name.
        key: The key; None for a new one.
    """

    def __init__(self, kind: str = "P-256", kid: str = "key", key: Any = None) -> None:
        self.kid = kid
        self.key = _MAKERS[kind]() if key is None else key
        self.algorithm = next((alg for alg, name in KINDS.items() if name == kind), "ES256")

    def jwk(self, **more: Any) -> dict[str, Any]:
        """Return the public key as JWK."""
        made: dict[str, Any] = jwt.get_algorithm_by_name(self.algorithm).to_jwk(self.key.public_key(), as_dict=True)
        # PyJWT names the operation, where providers name the use.
        made.pop("key_ops", None)
        return {**made, "kid": self.kid, "use": "sig", **more}

    def pem(self) -> bytes:
        """Return the public key as PEM."""
        pem: bytes = self.key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
        return pem

    def sign(self, claims: dict[str, Any], algorithm: str | None = None, **header: Any) -> str:
        """Return a token with these claims and no others."""
        return jwt.encode(claims, self.key, algorithm or self.algorithm, {"kid": self.kid, **header})

    def token(self, *scopes: str, **claims: Any) -> str:
        """Return a token of `alice` for the tests' broker; a claim that is None is left out."""
        said = {"sub": "alice", "aud": [RESOURCE_SERVER], "scope": list(scopes), **claims}
        return self.sign({name: value for name, value in said.items() if value is not None})


@cache
def well_known_signer() -> Signer:
    """Return the key whose public half a RabbitMQ under test has been given; it never changes."""
    return Signer("P-256", "well-known", ec.derive_private_key(0x1E7E_4E7, ec.SECP256R1()))


Fault = Callable[[web.Request], Awaitable[web.StreamResponse]]


class StubProvider:
    """A provider on loopback: a discovery document and keys.

    Attributes:
        signers: Whose keys it serves.
        requests: Requests for keys.
        fault: Answers the requests instead; None for the provider's own answers.
    """

    def __init__(self, *signers: Signer, tls: ssl.SSLContext | None = None) -> None:
        self._tls = tls
        self.signers = [*signers]
        self.requests = 0
        self.fault: Fault | None = None
        self.document: dict[str, Any] = {}
        self._runner: web.AppRunner | None = None

    async def __aenter__(self) -> StubProvider:
        app = web.Application()
        app.router.add_get("/.well-known/openid-configuration", self._discovery)
        app.router.add_get("/keys", self._keys)
        self.add_routes(app)
        self._runner = web.AppRunner(app, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0, ssl_context=self._tls)
        await site.start()
        host, port = self._runner.addresses[0][:2]
        self.issuer = f"http{'s' if self._tls else ''}://{host}:{port}"
        self.jwks_uri = f"{self.issuer}/keys"
        return self

    def add_routes(self, app: web.Application) -> None:
        """Add what else it serves."""

    async def __aexit__(self, *error: object) -> None:
        assert self._runner is not None
        await self._runner.cleanup()

    async def _discovery(self, request: web.Request) -> web.StreamResponse:
        return web.json_response({"issuer": self.issuer, "jwks_uri": self.jwks_uri, **self.document})

    async def _keys(self, request: web.Request) -> web.StreamResponse:
        self.requests += 1
        if self.fault is not None:
            return await self.fault(request)
        return web.json_response({"keys": [each.jwk() for each in self.signers]})


async def says_nothing(request: web.Request) -> web.StreamResponse:
    """Hold a request for longer than anyone waits."""
    await asyncio.sleep(3600)
    raise AssertionError


def says(status: int, body: str) -> Fault:
    """Return a fault: each request gets this answer."""

    async def answer(request: web.Request) -> web.StreamResponse:
        return web.Response(status=status, text=body, content_type="application/json")

    return answer


async def says_too_much(request: web.Request) -> web.StreamResponse:
    """Answer without end."""
    response = web.StreamResponse()
    await response.prepare(request)
    with suppress(ConnectionError):
        while True:
            await response.write(b" " * 65536)
    return response


async def drips(request: web.Request) -> web.StreamResponse:
    """Send a byte now and then, so that the connection is never idle for long."""
    response = web.StreamResponse()
    await response.prepare(request)
    with suppress(ConnectionError):
        while True:
            await response.write(b" ")
            await asyncio.sleep(0.2)
    return response
