from __future__ import annotations

import base64
import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leveret.broker.auth.passwords import (
    ALGORITHMS,
    MD5,
    SHA256,
    SHA512,
    InvalidHash,
    choose_hash,
    decode_hash,
    hash_password,
    verify_password,
)

# From RabbitMQ's documentation: salt 908D C60A, password test12.
DOCUMENTED = "kI3GCqW5JLMJa4iX1lo7X4D6XbYqlLgxIs30+P6tENUV2POR"


def test_the_hash_of_rabbitmqs_documentation() -> None:
    assert verify_password(b"test12", DOCUMENTED)
    assert not verify_password(b"test13", DOCUMENTED)


@pytest.mark.parametrize(
    ("algorithm", "digest"), [(SHA256, hashlib.sha256), (SHA512, hashlib.sha512), (MD5, hashlib.md5)]
)
@given(password=st.binary())
def test_a_hash_is_salt_and_digest_of_salt_and_password(algorithm: str, digest: object, password: bytes) -> None:
    stored = base64.b64decode(hash_password(password, algorithm))
    assert callable(digest)
    assert stored[4:] == digest(stored[:4] + password).digest()


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@given(password=st.text(), other=st.text())
def test_only_the_password_itself_fits(algorithm: str, password: str, other: str) -> None:
    octets, others = (text.encode("utf-8", "surrogateescape") for text in (password, other))
    hashed = hash_password(octets, algorithm)
    assert verify_password(octets, hashed, algorithm)
    assert verify_password(others, hashed, algorithm) == (others == octets)


def test_the_salt_is_fresh_each_time() -> None:
    assert len({hash_password("secret") for _ in range(10)}) == 10


@pytest.mark.parametrize(
    ("password_hash", "algorithm", "text"),
    [
        ("!!", SHA256, "the hash is not base64"),
        ("é", SHA256, "the hash is not base64"),
        ("AAAA", SHA256, f"the hash has 3 bytes, {SHA256} needs 36"),
        ("", MD5, f"the hash has 0 bytes, {MD5} needs 20"),
        (DOCUMENTED, SHA512, f"the hash has 36 bytes, {SHA512} needs 68"),
        (DOCUMENTED, "crypt", f"unknown hashing algorithm 'crypt', known are {SHA256}, {SHA512}, {MD5}"),
    ],
)
def test_what_is_no_hash_fits_no_password(password_hash: str, algorithm: str, text: str) -> None:
    with pytest.raises(InvalidHash) as caught:
        decode_hash(password_hash, algorithm)
    assert str(caught.value) == text
    assert not verify_password(b"", password_hash, algorithm)
    assert not verify_password(b"test12", password_hash, algorithm)


def test_a_user_has_a_password_or_a_hash_or_neither() -> None:
    assert choose_hash(None, None, MD5) == choose_hash("", "", MD5) == ("", SHA256)
    assert choose_hash(None, DOCUMENTED, MD5) == (DOCUMENTED, MD5)
    hashed, algorithm = choose_hash("test12", None, MD5)
    assert algorithm == SHA256
    assert verify_password(b"test12", hashed)
    for wrong, named in (("###", SHA256), (DOCUMENTED, "nope")):
        with pytest.raises(InvalidHash):
            choose_hash(None, wrong, named)
