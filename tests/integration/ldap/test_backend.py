"""The backend and a real LDAP server: how it logs in, whom it asks, and what becomes of servers that fail."""

from __future__ import annotations

import asyncio
import signal
import socket
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from leveret.broker.auth.backend_interface import Identity, Login, Question, Refused, Unavailable
from leveret.broker.auth.backends.answers import AnswerCache
from leveret.broker.auth.ldap.backend import LdapBackend
from leveret.broker.config.auth import AuthLdap, AuthLdapSslOptions
from leveret.broker.config.config_errors import ConfigError
from leveret.broker.unfinished import Unanswered
from tests.integration.certificates import Authority
from tests.support.cluster import free_port
from tests.support.slapd import ADMIN, ADMIN_PASSWORD, BASE, Slapd

pytestmark = pytest.mark.ldap

PEOPLE = f"uid=${{username}},ou=people,{BASE}"
SERVICE = {"user_dn": ADMIN, "password": ADMIN_PASSWORD}
IN_SALES = {"in_group": f"cn=sales,ou=groups,{BASE}"}


class Unchanged:
    """Permissions that do not change."""

    generation = 0


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def slapd(tmp_path_factory: pytest.TempPathFactory, authority: Authority) -> Iterator[Slapd]:
    with Slapd(tmp_path_factory.mktemp("slapd") / "it", authority.issue("127.0.0.1", "ldap.example.com")) as server:
        yield server


@asynccontextmanager
async def backend(server: Slapd, **options: Any) -> AsyncIterator[LdapBackend]:
    """The backend with these options of `auth_ldap`."""
    options = {"servers": (server.host,), "port": server.port, "user_dn_pattern": PEOPLE, **options}
    made = LdapBackend(AuthLdap(**options), AnswerCache(60, Unchanged(), asyncio.get_running_loop()))
    try:
        yield made
    finally:
        await made.close()


async def log_in(of: LdapBackend, name: str = "ann", password: bytes | None = b"ann's") -> Identity:
    return await of.authenticate(Login(name, password, "192.0.2.1", False, None))


async def answer(check: Callable[[], bool]) -> bool:
    """Ask until there is an answer, as a connection does."""
    while True:
        try:
            return check()
        except Unanswered as question:
            await question.ask()


async def refusal(of: LdapBackend, name: str, password: bytes | None) -> str:
    with pytest.raises(Refused) as refused:
        await log_in(of, name, password)
    assert not isinstance(refused.value, Unavailable)
    return str(refused.value)


# -- logins -------------------------------------------------------------------------------------------------


async def test_a_login_is_a_bind(slapd: Slapd) -> None:
    async with backend(slapd, tag_queries={"administrator": IN_SALES, "management": True}) as ldap:
        assert (await log_in(ldap)).tags == ("administrator", "management")
        assert (await log_in(ldap, "eve", b"eve's")).tags == ("management",)
        for name, password in (("ann", b"wrong"), ("nobody", b"ann's"), ("\udcff", b"x"), ("a\0", b"x")):
            assert (await refusal(ldap, name, password)).endswith("- invalid credentials")


@pytest.mark.parametrize("password", [b"", b"\0", b"\0ann's"])
@pytest.mark.parametrize("name", ["ann", "", "nobody"])
async def test_an_empty_password_is_not_shown_to_the_server(slapd: Slapd, name: str, password: bytes) -> None:
    """By RFC 4513 a server takes it for somebody who does not log in, and says that this has succeeded."""
    before = slapd.log().count(" BIND ")
    async with backend(slapd) as ldap:
        reason = await refusal(ldap, name, password)
    assert "unauthenticated bind not allowed" in reason if not password else "invalid credentials" in reason
    assert slapd.log().count(" BIND ") == before


@pytest.mark.parametrize(
    "name",
    [
        "ann,ou=people",
        "ann)(uid=*",
        "*",
        "a*",
        f"ann,ou=people,{BASE}",
        "ann+uid=ann",
        "ann\\",
        'ann"',
        "#ann",
        " ann ",
    ],
)
@pytest.mark.parametrize("lookup", [False, True])
async def test_a_name_stays_a_name(slapd: Slapd, name: str, lookup: bool) -> None:
    searched = {
        "user_dn_pattern": "${username}", "dn_lookup_attribute": "uid", "dn_lookup_base": BASE,
        "dn_lookup_bind": SERVICE,
    }  # fmt: skip
    async with backend(slapd, **(searched if lookup else {})) as ldap:
        if name.strip() == "ann":
            # The directory itself has no regard for spaces around values.
            with suppress(Refused):
                await log_in(ldap, name)
        else:
            assert (await refusal(ldap, name, b"ann's")).endswith("- invalid credentials")


@pytest.mark.parametrize("bind", [SERVICE, "as_user"])
async def test_names_are_searched(slapd: Slapd, bind: Any) -> None:
    options = {"dn_lookup_attribute": "uid", "dn_lookup_base": BASE, "dn_lookup_bind": bind}
    options |= {"user_dn_pattern": "${username}"} if bind == SERVICE else {"user_bind_pattern": PEOPLE}
    options |= {"user_dn_pattern": "${username}", "tag_queries": {"management": IN_SALES}}
    async with backend(slapd, **options) as ldap:
        assert (await log_in(ldap)).tags == ("management",)
        await refusal(ldap, "nobody", b"x")
        # Two have it.
    async with backend(slapd, **{**options, "dn_lookup_attribute": "objectClass", "dn_lookup_bind": SERVICE}) as ldap:
        await refusal(ldap, "inetOrgPerson", b"ann's")


async def test_certificates_need_an_entry_and_somebody_who_asks(slapd: Slapd) -> None:
    async with backend(slapd, other_bind=SERVICE, tag_queries={"management": IN_SALES}) as ldap:
        assert (await log_in(ldap, "bob", None)).tags == ("management",)
        with pytest.raises(Refused):
            await log_in(ldap, "nobody", None)
    # A wrong password of the broker's own is not the user's.
    async with backend(slapd, other_bind={**SERVICE, "password": "wrong"}) as ldap:
        for password in (None, b"ann's"):
            with pytest.raises(Unavailable, match="ldap_bind_error"):
                await log_in(ldap, "ann", password)
    async with backend(slapd) as ldap:
        with pytest.raises(Unavailable, match="'other_bind' set to 'as_user' but no password supplied"):
            await log_in(ldap, "ann", None)


@pytest.mark.parametrize(("bind", "allowed"), [("as_user", True), (SERVICE, True), ("anon", False)])
async def test_queries_are_asked_as_somebody(slapd: Slapd, bind: Any, allowed: bool) -> None:
    """The server shows nothing to whom it does not know."""
    async with backend(slapd, other_bind=bind, vhost_access_query=IN_SALES) as ldap:
        rights = (await log_in(ldap)).rights
        assert rights is not None
        if allowed:
            assert await answer(lambda: rights.allows(Question("vhost", "/")))
        else:
            with pytest.raises(Unavailable, match="ldap_evaluate_error"):
                await answer(lambda: rights.allows(Question("vhost", "/")))


async def test_groups_in_groups(slapd: Slapd) -> None:
    for group, expected in (("all", True), ("stock", True), ("ALL", True), ("sales", True), ("round", False)):
        query = {"in_group_nested": f"cn={group}, ou=groups,{BASE}"}
        async with backend(slapd, dn_lookup_base=BASE, vhost_access_query=query) as ldap:
            rights = (await log_in(ldap, "bob", b"bob's")).rights
            assert rights is not None
            assert await answer(lambda rights=rights: rights.allows(Question("vhost", "/"))) is expected, group  # type: ignore[misc]
    # Groups that are in each other end.
    async with backend(slapd, group_lookup_base=BASE, vhost_access_query={"in_group_nested": "cn=no"}) as ldap:
        rights = (await log_in(ldap, "eve", b"eve's")).rights
        assert rights is not None
        assert not await answer(lambda: rights.allows(Question("vhost", "/")))


# -- encryption ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["use_ssl", "use_starttls"])
async def test_tls(slapd: Slapd, authority: Authority, how: str) -> None:
    port = slapd.tls_port if how == "use_ssl" else slapd.port
    trusting = AuthLdapSslOptions(cacertfile=authority.file)
    async with backend(slapd, **{how: True}, port=port, ssl_options=trusting) as ldap:
        assert (await log_in(ldap)).name == "ann"
        await refusal(ldap, "ann", b"wrong")
    for options in (
        AuthLdapSslOptions(),
        AuthLdapSslOptions(cacertfile=authority.file, sni="other.example.com"),
    ):
        async with backend(slapd, **{how: True}, port=port, ssl_options=options) as ldap:
            with pytest.raises(Unavailable, match="ldap_connect_error"):
                await log_in(ldap)
    for options in (
        AuthLdapSslOptions(verify="verify_none"),
        AuthLdapSslOptions(cacertfile=authority.file, sni="ldap.example.com"),
    ):
        async with backend(slapd, **{how: True}, port=port, ssl_options=options) as ldap:
            assert (await log_in(ldap)).name == "ann"


async def test_no_password_leaves_without_the_encryption_that_was_asked_for(tmp_path: Path) -> None:
    with Slapd(tmp_path / "plain") as server:
        async with backend(server, use_starttls=True) as ldap:
            with pytest.raises(Unavailable, match="ldap_connect_error"):
                await log_in(ldap)
        assert " BIND " not in server.log()


# -- servers that fail --------------------------------------------------------------------------------------


async def test_the_next_server_is_asked(slapd: Slapd) -> None:
    """The first is away, the second takes connections and says nothing."""
    with socket.create_server(("127.0.0.3", slapd.port)):
        hosts = ("127.0.0.2", "127.0.0.1")
        async with backend(slapd, servers=hosts) as ldap:
            assert (await log_in(ldap)).name == "ann"


async def test_a_server_comes_back(tmp_path: Path) -> None:
    with Slapd(tmp_path / "it") as server:
        async with backend(server) as ldap:
            await log_in(ldap)
            server.stop()
            with pytest.raises(Unavailable, match="ldap_connect_error"):
                await log_in(ldap)
            server.start()
            # Also on a connection that had been open before.
            assert (await log_in(ldap)).name == "ann"
            await log_in(ldap)
            server.stop()
            server.start()
            assert (await log_in(ldap)).name == "ann"


async def test_a_slow_server_has_a_deadline(tmp_path: Path) -> None:
    with Slapd(tmp_path / "it") as server:
        async with backend(server, timeout=500, connection_pool_size=2) as ldap:
            rights = (await log_in(ldap)).rights
            server.signal(signal.SIGSTOP)
            began = asyncio.get_running_loop().time()
            tries = await asyncio.gather(*(log_in(ldap, "bob", b"bob's") for _ in range(20)), return_exceptions=True)
            # A socket's own limit may end a moment before that of the whole login.
            assert {str(each) for each in tries} <= {"timeout", "ldap_connect_error"}
            assert asyncio.get_running_loop().time() - began < 5.0
            server.signal(signal.SIGCONT)
            assert (await log_in(ldap, "bob", b"bob's")).name == "bob"
            assert rights is not None
            assert await answer(lambda: rights.allows(Question("vhost", "/")))


@pytest.mark.parametrize(
    "nonsense",
    [
        b"HTTP/1.1 400 Bad Request\r\n\r\n",
        b"\0" * 4096,
        b"\x30\x84\x7f\xff\xff\xff",
        b"\x30\x0c\x02\x01\x01\x61\x07\x0a\x01\x00\x04\x00",
        b"\x30\x0c\x02\x01\x63\x61\x07\x0a\x01\x00\x04\x00\x04\x00",
        b"\x30\x05\x02\x01\x01\x65\x00",
        b"",
    ],
)
async def test_nonsense_lets_nobody_in(slapd: Slapd, nonsense: bytes) -> None:
    """A server that answers every request with the same bytes, then closes the connection."""
    port, stopped = free_port(), threading.Event()

    def serve() -> None:
        with socket.create_server(("127.0.0.1", port)) as server:
            server.settimeout(0.1)
            while not stopped.is_set():
                with suppress(TimeoutError):
                    connection, _ = server.accept()
                    with connection:
                        connection.recv(4096)
                        connection.sendall(nonsense)

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        async with backend(slapd, port=port, timeout=1000) as ldap:
            with pytest.raises(Unavailable):
                await log_in(ldap)
    finally:
        stopped.set()
        thread.join()


async def test_idle_connections_are_closed(slapd: Slapd) -> None:
    async with backend(slapd, idle_timeout=100) as ldap:
        before = slapd.log().count(" ACCEPT ")
        await log_in(ldap)
        await log_in(ldap)
        assert slapd.log().count(" ACCEPT ") == before + 1
        closed, deadline = slapd.log().count(" closed"), asyncio.get_running_loop().time() + 30
        while slapd.log().count(" closed") == closed:
            assert asyncio.get_running_loop().time() < deadline
            await asyncio.sleep(0.05)
        await log_in(ldap)
        assert slapd.log().count(" ACCEPT ") == before + 2


async def test_a_missing_library_is_named(slapd: Slapd, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ldap3", None)
    with pytest.raises(ConfigError, match=r"needs the Python package ldap3: pip install 'leveret\[ldap\]'"):
        async with backend(slapd):
            pass


# -- options ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"servers": ()}, "auth_ldap.servers: give at least one LDAP server"),
        ({"user_dn_pattern": "uid=${user}"}, "auth_ldap.user_dn_pattern: ${user} in 'uid=${user}' is not known here"),
        ({"vhost_access_query": {"in_grup": "x"}}, "auth_ldap.vhost_access_query: {in_grup, x} is not a query"),
        ({"tag_queries": {"a": "{in_group}"}}, "auth_ldap.tag_queries: a: {in_group} is not a query"),
        (
            {"use_ssl": True, "ssl_options": AuthLdapSslOptions(cacertfile=Path("/nowhere"))},
            "auth_ldap.ssl_options.cacertfile: cannot use /nowhere: No such file or directory",
        ),
    ],
)
async def test_wrong_options_are_named(slapd: Slapd, options: dict[str, Any], text: str) -> None:
    with pytest.raises(ConfigError) as wrong:
        async with backend(slapd, **options):
            pass
    assert text in str(wrong.value)
