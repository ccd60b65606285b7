"""A broker's side of the Java client's tests of TLS: key stores, and the options of a broker that goes with them."""

from __future__ import annotations

import json
import socket
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, load_pem_private_key
from cryptography.hazmat.primitives.serialization.pkcs12 import (
    PKCS12Certificate,
    serialize_java_truststore,
    serialize_key_and_certificates,
)

from tests.integration.certificates import Authority, Issued

_PASSWORD: Final = BestAvailableEncryption(b"secret")
_USER: Final = "java-client"


class JavaTls:
    """Certificates in a folder, and a port."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._authority = Authority(folder)
        self._broker = self._authority.issue("127.0.0.1")
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port: int = free.getsockname()[1]
        authority = x509.load_pem_x509_certificate(self._authority.file.read_bytes())
        trusted = [PKCS12Certificate(authority, b"authority")]
        (folder / "authority.p12").write_bytes(serialize_java_truststore(trusted, _PASSWORD))
        issued = self._authority.issue("client.example.org", common_name=_USER)
        (folder / "client.p12").write_bytes(_key_store(issued))

    def broker_arguments(self) -> tuple[str, ...]:
        """The command line of the broker."""
        user = {"name": _USER, "password": "unused", "tags": []}
        permission = {"user": _USER, "vhost": "/", "configure": ".*", "write": ".*", "read": ".*"}
        options = {
            "amqps_port": self.port,
            "ssl_options.certfile": self._broker.certificate,
            "ssl_options.keyfile": self._broker.key,
            "ssl_options.cacertfile": self._authority.file,
            "ssl_options.verify": "verify_peer",
            "ssl_cert_login_from": "common_name",
            "auth_mechanisms": "PLAIN,AMQPLAIN,EXTERNAL",
            "definitions": json.dumps({"users": [user], "permissions": [permission]}),
        }
        return tuple(word for name, value in options.items() for word in ("--set", f"{name}={value}"))

    def maven_options(self) -> list[str]:
        """The system properties for the Java tests."""
        return [f"-Dbroker.tls={self.port}", f"-Dbroker.keys={self._folder}"]


def _key_store(issued: Issued) -> bytes:
    chain = x509.load_pem_x509_certificates(issued.certificate.read_bytes())
    key = load_pem_private_key(issued.key.read_bytes(), None)
    assert isinstance(key, EllipticCurvePrivateKey)
    return serialize_key_and_certificates(b"client", key, chain[0], chain[1:], _PASSWORD)
