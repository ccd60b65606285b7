"""Public keys that tokens are verified by, from JWK and PEM.

Source: RFC 7517 and RFC 7518.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeAlias

import jwt
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey
from cryptography.hazmat.primitives.asymmetric.ed448 import Ed448PublicKey
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
from cryptography.hazmat.primitives.serialization import load_pem_public_key
from cryptography.x509 import load_pem_x509_certificate

PublicKey: TypeAlias = RSAPublicKey | EllipticCurvePublicKey | Ed25519PublicKey | Ed448PublicKey

#: Smallest RSA key, in bits (RFC 7518, section 3.3).
_RSA_BITS: Final = 2048
_OF_RSA: Final = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512")
_OF_CURVE: Final = {"secp256r1": "ES256", "secp384r1": "ES384", "secp521r1": "ES512"}

#: All algorithms of signatures. Those with shared secrets (HS256) and `none` are not among them.
ALGORITHMS: Final = (*_OF_RSA, *_OF_CURVE.values(), "EdDSA")


class InvalidKey(ValueError):
    """A key cannot be used; the text says why."""


@dataclass(frozen=True, slots=True)
class SigningKey:
    """A public key, with the only algorithms that it verifies."""

    key: PublicKey
    algorithms: tuple[str, ...]


def read_key_set(document: object) -> dict[str, SigningKey]:
    """Return the keys of a JWK set by their `kid`, without those that are not for signatures or cannot be read.

    Raises:
        InvalidKey: It is not a JWK set.
    """
    listed = document.get("keys") if isinstance(document, Mapping) else None
    if not isinstance(listed, list):
        raise InvalidKey("is not a JSON object with a list of keys")
    found: dict[str, SigningKey] = {}
    for jwk in listed:
        kid = jwk.get("kid") if isinstance(jwk, Mapping) else None
        if isinstance(kid, str) and jwk.get("use", "sig") == "sig":
            try:
                found[kid] = read_jwk(jwk)
            except InvalidKey:
                # A set may have keys for other programs; a token that names one is refused, as its key is not known.
                continue
    return found


def read_jwk(jwk: Mapping[str, Any]) -> SigningKey:
    """Return the key of a JWK.

    Raises:
        InvalidKey: It cannot be used.
    """
    if jwk.get("kty") not in ("RSA", "EC", "OKP") or "d" in jwk:
        raise InvalidKey("is not a public key for RSA, EC or EdDSA")
    try:
        # The algorithm is given so that PyJWT does not look at `alg`, which may be of a kind that it does not know.
        algorithm = {"RSA": "RS256", "OKP": "EdDSA"}.get(jwk["kty"])
        key = jwt.PyJWK({**jwk}, algorithm).key if algorithm else jwt.algorithms.ECAlgorithm.from_jwk({**jwk})
    except (jwt.PyJWTError, ValueError, TypeError, KeyError, UnsupportedAlgorithm) as error:
        raise InvalidKey(f"cannot be read: {error}") from error
    return _signing_key(key, jwk.get("alg"))


def read_pem_file(path: Path) -> SigningKey:
    """Return the key of a PEM file: a public key, or a certificate of one.

    Raises:
        InvalidKey: It cannot be read or used.
    """
    try:
        octets = path.read_bytes()
        is_certificate = b"-----BEGIN CERTIFICATE-----" in octets
        key = load_pem_x509_certificate(octets).public_key() if is_certificate else load_pem_public_key(octets)
    except OSError as error:
        raise InvalidKey(f"{path} cannot be read: {error.strerror}") from error
    except (ValueError, UnsupportedAlgorithm) as error:
        raise InvalidKey(f"{path} is not a PEM file of a public key or a certificate") from error
    try:
        return _signing_key(key, None)
    except InvalidKey as invalid:
        raise InvalidKey(f"{path} {invalid}") from None


def _signing_key(key: object, algorithm: object) -> SigningKey:
    """Return a key with its algorithms: all of its kind, or the one of them that its JWK names."""
    match key:
        case RSAPublicKey():
            if key.key_size < _RSA_BITS:
                raise InvalidKey(f"has {key.key_size} bits, an RSA key must have {_RSA_BITS}")
            possible: tuple[str, ...] = _OF_RSA
        case EllipticCurvePublicKey() if key.curve.name in _OF_CURVE:
            possible = (_OF_CURVE[key.curve.name],)
        case Ed25519PublicKey() | Ed448PublicKey():
            possible = ("EdDSA",)
        case _:
            raise InvalidKey("is not a public key for RSA, EC (P-256, P-384, P-521) or EdDSA")
    if algorithm is None:
        return SigningKey(key, possible)
    if algorithm not in possible:
        raise InvalidKey(f"is for {json.dumps(algorithm)}, which is not an algorithm of its kind")
    return SigningKey(key, (str(algorithm),))
