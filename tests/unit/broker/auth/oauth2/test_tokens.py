"""Which tokens are taken, and by which keys."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from pathlib import Path
from typing import Any

import jwt
import pytest

from leveret.broker.auth.oauth2.keys import ALGORITHMS, InvalidKey, read_jwk, read_key_set, read_pem_file
from leveret.broker.auth.oauth2.tokens import (
    TOKEN_MAX,
    TokenRefused,
    check_times,
    read_expiry,
    read_token,
    verify_signature,
)
from tests.support.tokens import KINDS, Signer

_CLAIMS = {"sub": "alice", "aud": "rabbitmq", "scope": "a"}


def _part(document: object) -> str:
    return base64.urlsafe_b64encode(json.dumps(document).encode()).rstrip(b"=").decode()


def _verify(token: str, jwk: dict[str, Any], algorithms: tuple[str, ...] = ALGORITHMS) -> None:
    verify_signature(read_token(token.encode()), read_jwk(jwk), algorithms)


@pytest.mark.parametrize("algorithm", KINDS)
def test_a_signature_of_each_algorithm_is_verified(algorithm: str) -> None:
    signer = Signer(KINDS[algorithm])
    token = signer.sign(_CLAIMS, algorithm)
    _verify(token, signer.jwk())
    _verify(token, signer.jwk(alg=algorithm))
    with pytest.raises(TokenRefused, match="signature"):
        _verify(token, Signer(KINDS[algorithm]).jwk())


def test_ed448_is_an_eddsa_key() -> None:
    signer = Signer("Ed448")
    _verify(signer.sign(_CLAIMS, "EdDSA"), read_ed448(signer))


def read_ed448(signer: Signer) -> dict[str, Any]:
    """Return the public key of a signer as JWK."""
    return {**jwt.algorithms.OKPAlgorithm.to_jwk(signer.key.public_key(), as_dict=True), "kid": "key"}


def test_a_changed_claim_is_refused() -> None:
    signer = Signer()
    header, _, signature = signer.sign(_CLAIMS).split(".")
    forged = f"{header}.{_part({**_CLAIMS, 'scope': 'tag:administrator'})}.{signature}"
    with pytest.raises(TokenRefused, match="signature"):
        _verify(forged, signer.jwk())


def test_an_algorithm_that_its_key_is_not_for_is_refused() -> None:
    signer = Signer("RSA")
    with pytest.raises(TokenRefused, match="algorithm"):
        _verify(signer.sign(_CLAIMS, "PS256"), signer.jwk(alg="RS256"))
    with pytest.raises(TokenRefused, match="algorithm"):
        _verify(signer.sign(_CLAIMS, "RS256"), signer.jwk(), ("ES256", "RS512"))


@pytest.mark.parametrize("algorithm", ["none", "None", "NONE", "", None, 5, ["RS256"]])
def test_a_token_without_signature_is_refused(algorithm: object) -> None:
    unsigned = f"{_part({'alg': algorithm, 'kid': 'key'})}.{_part(_CLAIMS)}."
    for token in (unsigned, unsigned + "AAAA"):
        with pytest.raises(TokenRefused):
            _verify(token, Signer().jwk())


@pytest.mark.parametrize("kind", ["RSA", "P-256", "Ed25519"])
def test_a_public_key_is_no_shared_secret(kind: str) -> None:
    """The old attack: the token says HS256, and its code is made with the public key, which everybody knows."""
    signer = Signer(kind)
    signed = f"{_part({'alg': 'HS256', 'typ': 'JWT', 'kid': 'key'})}.{_part(_CLAIMS)}"
    for secret in (signer.pem(), signer.pem().strip(), json.dumps(signer.jwk()).encode()):
        code = hmac.new(secret, signed.encode(), hashlib.sha256).digest()
        token = f"{signed}.{base64.urlsafe_b64encode(code).rstrip(b'=').decode()}"
        with pytest.raises(TokenRefused, match="algorithm"):
            _verify(token, signer.jwk())


def test_a_key_in_the_token_is_not_used() -> None:
    attacker, signer = Signer(kid="key"), Signer(kid="key")
    token = attacker.sign(_CLAIMS, jwk=attacker.jwk(), jku="http://127.0.0.1/keys", x5u="http://127.0.0.1/chain")
    with pytest.raises(TokenRefused, match="signature"):
        _verify(token, signer.jwk())


@pytest.mark.parametrize(
    ("token", "text"),
    [
        ("", "not a signed token"),
        ("abc", "not a signed token"),
        ("a.b", "not a signed token"),
        ("..", "not a signed token"),
        ("a.b.c.d", "not a signed token"),
        ("a.b.c.d.e", "encrypted"),
        ("\0.\xff.ä", "not a signed token"),
        (f"{_part([])}.{_part(_CLAIMS)}.AAAA", "not a signed token"),
        (f"{_part({'alg': 'ES256'})}.{_part([1])}.AAAA", "no claims"),
        (f"{_part({'alg': 'ES256'})}.{'A' * 8}.AAAA", "not a signed token"),
        (f"{_part({'alg': 'ES256', 'cty': 'JWT'})}.{_part(_CLAIMS)}.AAAA", "no claims of its own"),
        (f"{_part({'alg': 'ES256', 'crit': ['exp']})}.{_part(_CLAIMS)}.AAAA", "not a signed token"),
        (f"{_part({'alg': 'ES256', 'b64': True, 'crit': ['b64']})}.{_part(_CLAIMS)}.AAAA", "crit"),
        (f"{_part({'alg': 'ES256', 'kid': 5})}.{_part(_CLAIMS)}.AAAA", "not a signed token"),
        (f"{_part({'alg': 'ES256', 'kid': 'k' * 2000})}.{_part(_CLAIMS)}.AAAA", "kid"),
        ("A" * (TOKEN_MAX + 1), f"{TOKEN_MAX + 1} bytes"),
    ],
)
def test_what_is_not_a_token_is_refused(token: str, text: str) -> None:
    with pytest.raises(TokenRefused, match=text):
        read_token(token.encode())


def test_deeply_nested_claims_are_refused() -> None:
    deep = base64.urlsafe_b64encode(b'{"a":' + b"[" * 20_000 + b"]" * 20_000 + b"}").rstrip(b"=").decode()
    with pytest.raises(TokenRefused):
        read_token(f"{_part({'alg': 'ES256'})}.{deep}.AAAA".encode())


def test_a_token_inside_a_token_is_refused() -> None:
    signer = Signer()
    inner = signer.sign(_CLAIMS)
    outer = jwt.api_jws.PyJWS().encode(inner.encode(), signer.key, "ES256", {"kid": "key"})
    with pytest.raises(TokenRefused):
        read_token(outer.encode())


def test_a_refusal_has_nothing_of_the_token() -> None:
    token = Signer().sign({**_CLAIMS, "secret": "geheim"})
    with pytest.raises(TokenRefused) as refused:
        _verify(token, Signer().jwk())
    assert not [part for part in (*token.split("."), "geheim") if part in str(refused.value)]


@pytest.mark.parametrize(
    ("claims", "leeway", "text"),
    [
        ({"exp": 1000}, 0, "expired at 1000"),
        ({"exp": 1000.5}, 0, None),
        ({"exp": 1001}, 0, None),
        ({"exp": 995}, 6, None),
        ({"exp": 995}, 5, "expired"),
        ({"nbf": 1001}, 0, "valid from 1001"),
        ({"nbf": 1000}, 0, None),
        ({"nbf": 1005}, 5, None),
        ({}, 0, None),
        ({"exp": "2000"}, 0, "not a number"),
        ({"exp": True}, 0, "not a number"),
        ({"exp": float("nan")}, 0, "not a number"),
        ({"exp": 10**400}, 0, "not a number"),
        ({"nbf": []}, 0, "not a number"),
    ],
)
def test_times(claims: dict[str, Any], leeway: int, text: str | None) -> None:
    if text is None:
        check_times(claims, 1000.0, leeway)
    else:
        with pytest.raises(TokenRefused, match=text):
            check_times(claims, 1000.0, leeway)


def test_a_token_without_exp_never_expires() -> None:
    assert read_expiry({}) is None
    assert read_expiry({"exp": 5}) == 5.0


def test_keys_that_cannot_be_used_are_left_out() -> None:
    good = Signer(kid="good")
    weak, curve = Signer("weak RSA", "weak"), Signer("secp256k1", "curve")
    document = {
        "keys": [
            good.jwk(),
            weak_jwk(weak),
            curve.jwk(),
            Signer("RSA", "encryption").jwk(use="enc"),
            Signer("RSA", "wrong").jwk(alg="ES256"),
            {"kty": "oct", "kid": "shared", "k": "c2VjcmV0"},
            {"kty": "RSA", "kid": "broken", "n": "!", "e": "AQAB"},
            {"kty": "RSA", "kid": "empty"},
            {"kid": "no kind"},
            {**good.jwk(), "kid": None},
            {**good.jwk(), "kid": "private", "d": "AAAA"},
            "odd",
        ]
    }
    assert [*read_key_set(document)] == ["good"]


def weak_jwk(signer: Signer) -> dict[str, Any]:
    """Return the public RSA key of a signer as JWK."""
    return {**jwt.algorithms.RSAAlgorithm.to_jwk(signer.key.public_key(), as_dict=True), "kid": signer.kid}


@pytest.mark.parametrize("document", [None, [], {}, {"keys": {}}, "keys"])
def test_what_is_no_key_set_is_refused(document: object) -> None:
    with pytest.raises(InvalidKey):
        read_key_set(document)


def test_a_file_has_a_public_key(tmp_path: Path) -> None:
    signer, file = Signer("RSA"), tmp_path / "key.pem"
    file.write_bytes(signer.pem())
    verify_signature(read_token(signer.sign(_CLAIMS).encode()), read_pem_file(file), ALGORITHMS)
    file.write_text("no key")
    with pytest.raises(InvalidKey, match="not a PEM file"):
        read_pem_file(file)
    file.write_bytes(Signer("weak RSA").pem())
    with pytest.raises(InvalidKey, match="1024 bits"):
        read_pem_file(file)
    with pytest.raises(InvalidKey, match="No such file"):
        read_pem_file(tmp_path / "none")
