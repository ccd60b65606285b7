"""Names of certificates are written as RabbitMQ 3.10.8 writes them: each of these was recorded there."""

from __future__ import annotations

from datetime import datetime

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.name import _ASN1Type as Kind
from cryptography.x509.oid import NameOID, ObjectIdentifier

from leveret.broker.session.peer_certificate import TlsSession, format_name, read_names

_KEY = ec.generate_private_key(ec.SECP256R1())
_CN = NameOID.COMMON_NAME


def certificate(subject: x509.Name) -> bytes:
    builder = x509.CertificateBuilder().subject_name(subject).issuer_name(x509.Name([]))
    builder = builder.public_key(_KEY.public_key()).serial_number(1)
    builder = builder.not_valid_before(datetime(2026, 1, 1)).not_valid_after(datetime(2027, 1, 1))
    return builder.sign(_KEY, SHA256()).public_bytes(Encoding.DER)


def formatted(subject: x509.Name) -> str:
    issuer, found = read_names(certificate(subject))
    assert issuer == ()
    return format_name(found)


_KNOWN = [
    (NameOID.GIVEN_NAME, "GIVENNAME"),
    (NameOID.SURNAME, "SN"),
    (NameOID.TITLE, "TITLE"),
    (NameOID.PSEUDONYM, "PSEUDONYM"),
    (NameOID.INITIALS, "INITIALS"),
    (NameOID.GENERATION_QUALIFIER, "GENERATIONQUALIFIER"),
    (NameOID.DN_QUALIFIER, "2.5.4.46"),
    (NameOID.SERIAL_NUMBER, "SERIALNUMBER"),
    (NameOID.STREET_ADDRESS, "2.5.4.9"),
    (NameOID.POSTAL_CODE, "2.5.4.17"),
    (NameOID.USER_ID, "UID"),
    (NameOID.DOMAIN_COMPONENT, "DC"),
    (NameOID.LOCALITY_NAME, "L"),
    (NameOID.STATE_OR_PROVINCE_NAME, "ST"),
    (NameOID.ORGANIZATION_NAME, "O"),
    (NameOID.ORGANIZATIONAL_UNIT_NAME, "OU"),
    (NameOID.EMAIL_ADDRESS, "EMAILADDRESS"),
    (NameOID.ORGANIZATION_IDENTIFIER, "2.5.4.97"),
    (ObjectIdentifier("1.2.3.4.5"), "1.2.3.4.5"),
    (ObjectIdentifier("2.999.16384"), "2.999.16384"),
    (_CN, "CN"),
]


def test_types() -> None:
    subject = x509.Name([x509.NameAttribute(kind, "x") for kind, _ in _KNOWN])
    assert formatted(subject) == ",".join(f"{shown}=x" for _, shown in reversed(_KNOWN))


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("Müller €", r"M\C3\BCller \E2\82\AC"),
        (' #a,b+c"d\\e<f>g;h=i\x01 ', r"\ #a\,b\+c\"d\\e\<f\>g\;h=i\01\ "),
        ("#x", r"\#x"),
        ("x ", r"x\ "),
        (" ", r"\ "),
        ("a~b}c=#d  e", r"a\7Eb}c=#d  e"),
        ("a\0b\n\x7f", r"a\00b\0A\7F"),
    ],
)
def test_values(value: str, shown: str) -> None:
    assert formatted(x509.Name([x509.NameAttribute(_CN, value)])) == f"CN={shown}"


@pytest.mark.parametrize(
    ("kind", "value", "shown"),
    [
        (Kind.PrintableString, "Print able", "Print able"),
        (Kind.BMPString, "Bmpü€", r"Bmp\C3\BC\E2\82\AC"),
        (Kind.UniversalString, "Uniü", r"Uni\C3\BC"),
        (Kind.T61String, "Telé", r"Tel\C3\83\C2\A9"),
    ],
)
def test_encodings(kind: Kind, value: str, shown: str) -> None:
    assert formatted(x509.Name([x509.NameAttribute(_CN, value, kind)])) == f"CN={shown}"


def test_several_in_one_part() -> None:
    attributes = [(_CN, "cn"), (NameOID.USER_ID, "u"), (NameOID.ORGANIZATION_NAME, "o")]
    part = x509.RelativeDistinguishedName([x509.NameAttribute(kind, value) for kind, value in attributes])
    assert formatted(x509.Name([part])) == "O=o+CN=cn+UID=u"


def test_a_certificate_without_a_name() -> None:
    assert formatted(x509.Name([])) == ""
    session = TlsSession("tlsv1.3", "", is_certified=True)
    assert session.login("distinguished_name") == ""
    assert session.login("common_name") is session.login("subject_alternative_name") is None
