"""An LDAP server of the tests: Debian's slapd on a free port of this machine, with a small company."""

from __future__ import annotations

import shutil
import socket
import subprocess
from pathlib import Path
from typing import Final

from tests.integration.certificates import Issued
from tests.integration.waiting import wait_until
from tests.support.cluster import free_port, send_signal

#: Not on the path of everybody.
SLAPD: Final = shutil.which("slapd", path="/usr/sbin:/usr/local/sbin:/usr/libexec:/usr/lib/openldap:/usr/bin")
BASE: Final = "dc=example,dc=com"
ADMIN: Final = f"cn=admin,{BASE}"
ADMIN_PASSWORD: Final = "top-secret"

_CONFIGURATION: Final = """
include /etc/ldap/schema/core.schema
include /etc/ldap/schema/cosine.schema
include /etc/ldap/schema/inetorgperson.schema
{modules}
{tls}
pidfile {folder}/slapd.pid
database mdb
suffix "{base}"
rootdn "{admin}"
rootpw {password}
directory {folder}/data
index objectClass,uid,member eq
{access}
"""
#: What everybody may read who has logged in; anonymous may do nothing but that.
ACCESS: Final = """
access to attrs=userPassword by anonymous auth by self read
access to * by users read by anonymous auth
"""


def person(uid: str, password: str, **more: str) -> str:
    """Return a person below ou=people."""
    lines = [f"dn: uid={uid},ou=people,{BASE}", "objectClass: inetOrgPerson", f"uid: {uid}", f"cn: {uid}", f"sn: {uid}"]
    return "\n".join([*lines, f"userPassword: {password}", *(f"{key}: {value}" for key, value in more.items())]) + "\n"


def group(cn: str, *members: str) -> str:
    """Return a group below ou=groups; members are relative to the base."""
    lines = [f"dn: cn={cn},ou=groups,{BASE}", "objectClass: groupOfNames", f"cn: {cn}"]
    return "\n".join([*lines, *(f"member: {member},{BASE}" for member in members)]) + "\n"


COMPANY: Final = "\n".join(
    (
        f"dn: {BASE}\nobjectClass: dcObject\nobjectClass: organization\no: Example\ndc: example\n",
        f"dn: ou=people,{BASE}\nobjectClass: organizationalUnit\nou: people\n",
        f"dn: ou=groups,{BASE}\nobjectClass: organizationalUnit\nou: groups\n",
        person("ann", "ann's", departmentNumber="sales", description="^orders"),
        person("bob", "bob's", departmentNumber="stock"),
        person("eve", "eve's"),
        group("admins", "uid=ann,ou=people"),
        group("sales", "uid=ann,ou=people", "uid=bob,ou=people"),
        group("stock", "uid=bob,ou=people"),
        # Bob is in `all` by `stock`; the two others are in each other.
        group("all", "cn=stock,ou=groups", "uid=eve,ou=people"),
        group("round", "cn=trip,ou=groups"),
        group("trip", "cn=round,ou=groups", "uid=eve,ou=people"),
        group("shop-users", "uid=ann,ou=people", "uid=bob,ou=people"),
    )
)


class Slapd:
    """A server; a context manager that stops it.

    Args:
        folder: For its configuration and data.
        issued: Its certificate, for StartTLS and a second port that is encrypted.
        entries: Its entries, as LDIF.
        host: Address to listen on.
        access: Rules of access.
    """

    def __init__(
        self, folder: Path, issued: Issued | None = None, entries: str = COMPANY, host: str = "127.0.0.1",
        access: str = ACCESS, port: int = 0,
    ) -> None:  # fmt: skip
        (folder / "data").mkdir(parents=True)
        self.host, self.port, self.tls_port = host, port or free_port(), free_port()
        self._configuration = folder / "slapd.conf"
        tls = (
            []
            if issued is None
            else [f"TLSCertificateFile {issued.certificate}", f"TLSCertificateKeyFile {issued.key}"]
        )
        modules = Path("/usr/lib/ldap")
        self._configuration.write_text(
            _CONFIGURATION.format(
                modules=f"modulepath {modules}\nmoduleload back_mdb" if modules.is_dir() else "",
                tls="\n".join(tls),
                folder=folder,
                base=BASE,
                admin=ADMIN,
                password=ADMIN_PASSWORD,
                access=access,
            )
        )
        self._log = folder / "slapd.log"
        self._uses_tls = issued is not None
        self._process: subprocess.Popen[bytes] | None = None
        self._add(entries)
        self.start()

    def _add(self, entries: str) -> None:
        assert SLAPD is not None
        command = [SLAPD, "-T", "add", "-f", str(self._configuration)]
        subprocess.run(command, input=entries.encode(), check=True, capture_output=True)

    def start(self) -> None:
        """Start it (again), and wait until it takes connections."""
        assert SLAPD is not None
        urls = f"ldap://{self.host}:{self.port}/"
        if self._uses_tls:
            urls += f" ldaps://{self.host}:{self.tls_port}/"
        with self._log.open("ab") as log:
            command = [SLAPD, "-f", str(self._configuration), "-h", urls, "-d", "stats"]
            self._process = subprocess.Popen(command, stdout=log, stderr=log)
        wait_until(self._answers, "slapd answers")

    def _answers(self) -> bool:
        try:
            socket.create_connection((self.host, self.port), timeout=5).close()
        except OSError:
            return False
        return True

    def log(self) -> str:
        """Return what it was asked."""
        return self._log.read_text(errors="replace")

    def signal(self, number: int) -> None:
        """Send it a signal, such as SIGSTOP."""
        assert self._process is not None
        send_signal(self._process.pid, number)

    def stop(self) -> None:
        """Kill it; its data stay."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def __enter__(self) -> Slapd:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
