"""Expiry times of certificates."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest
import trustme

from leveret.broker.tls import valid_until


@pytest.mark.parametrize(
    "end",
    [
        datetime(2049, 12, 31, 23, 59, 59, tzinfo=UTC),
        datetime(2050, 1, 1, tzinfo=UTC),
        datetime(2030, 2, 28, 12, 30, 15, tzinfo=UTC),
    ],
)
def test_expiry_of_a_certificate(tmp_path: Path, end: datetime) -> None:
    path = tmp_path / "cert.pem"
    trustme.CA().issue_cert("localhost", not_after=end).private_key_and_cert_chain_pem.write_to_path(str(path))
    assert valid_until(path) == [end]


def test_file_with_several_certificates(tmp_path: Path) -> None:
    path = tmp_path / "chain.pem"
    ends = [datetime(year, 6, 1, tzinfo=UTC) for year in (2031, 2032)]
    authority = trustme.CA()
    for end in ends:
        authority.issue_cert("localhost", not_after=end).cert_chain_pems[0].write_to_path(str(path), append=True)
    assert valid_until(path) == ends


@pytest.mark.parametrize("text", ["", "nothing of the kind"])
def test_file_without_certificates(tmp_path: Path, text: str) -> None:
    path = tmp_path / "cert.pem"
    path.write_text(text)
    assert valid_until(path) == []


def test_malformed_certificate(tmp_path: Path) -> None:
    path = tmp_path / "cert.pem"
    path.write_text("-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n")
    with pytest.raises(ValueError, match="ends in the middle"):
        valid_until(path)
