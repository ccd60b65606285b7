"""A certificate authority of the tests, and what it has issued."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import trustme


@dataclass(frozen=True)
class Issued:
    """Files of one certificate."""

    certificate: Path
    key: Path


class Authority:
    """Issues certificates into a folder."""

    def __init__(self, folder: Path) -> None:
        self._authority = trustme.CA()
        self._folder = folder
        self._count = 0
        self.file = folder / "authority.pem"
        self._authority.cert_pem.write_to_path(str(self.file))

    def issue(
        self,
        *names: str,
        common_name: str | None = None,
        organization: str | None = None,
        expires: datetime | None = None,
    ) -> Issued:
        """Issue a certificate."""
        made = self._authority.issue_cert(
            *names, common_name=common_name, organization_name=organization, not_after=expires
        )
        self._count += 1
        issued = Issued(self._folder / f"{self._count}.pem", self._folder / f"{self._count}.key")
        issued.certificate.write_bytes(b"".join(each.bytes() for each in made.cert_chain_pems))
        made.private_key_pem.write_to_path(str(issued.key))
        return issued
