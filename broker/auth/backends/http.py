"""The backend `http`: a server that is asked about each login and permission.

Source: https://github.com/rabbitmq/rabbitmq-server/tree/v3.10.x/deps/rabbitmq_auth_backend_http
"""

from __future__ import annotations

import errno
import ssl
from collections.abc import Sequence
from functools import partial
from typing import Final
from urllib.parse import urlencode

import aiohttp
from yarl import URL

from leveret.broker.addresses import unmap_ipv4
from leveret.broker.auth.backend_interface import Identity, Login, Question, Refused, Unavailable
from leveret.broker.auth.backends.answers import AnswerCache, AskedRights
from leveret.broker.config.auth import AuthHttp, AuthHttpSsl
from leveret.broker.printable import escape_line
from leveret.broker.tls import TlsError

MODULE: Final = "rabbit_auth_backend_http"

#: Requests that are under way at most; others wait, within their time limit.
_REQUESTS_MAX: Final = 64
#: Bytes of an answer that are read, and characters of a wrong one that are shown.
_ANSWER_MAX: Final = 65_536
_SHOWN_MAX: Final = 80

_Fields = Sequence[tuple[str, str | bytes]]


class HttpBackend:
    """See Backend.

    Args:
        options: Whom it asks, and how.
        cache: Answers about users.
    Raises:
        TlsError: Certificates cannot be used.
    """

    module = MODULE

    def __init__(self, options: AuthHttp, cache: AnswerCache) -> None:
        self._options = options
        self._cache = cache
        self._tls = _make_context(options.ssl_options)
        self._session: aiohttp.ClientSession | None = None

    # -- logins -------------------------------------------------------------------------------------------

    async def authenticate(self, login: Login) -> Identity:
        """Ask about a name and password; the answer has the user's tags."""
        tags = await self._log_in(login)
        return Identity(login.name, tags, self._rights(login, tags))

    async def authorize(self, login: Login) -> Identity:
        """Ask about a name that another backend has authenticated; its tags are those of that one, as in RabbitMQ."""
        await self._log_in(login)
        return Identity(login.name, (), self._rights(login, login.tags))

    async def _log_in(self, login: Login) -> tuple[str, ...]:
        fields: list[tuple[str, str | bytes]] = [("username", login.name)]
        if login.secret is not None:
            fields.append(("password", login.secret))
        if login.vhost:
            fields.append(("vhost", login.vhost))
        answer = await self._request(self._options.user_path, fields)
        if answer == "deny":
            raise Refused("Denied by the backing HTTP service")
        if not answer.startswith("allow"):
            raise _nonsense(answer)
        return tuple(tag for tag in answer.removeprefix("allow").split(" ") if tag)

    # -- permissions --------------------------------------------------------------------------------------

    def _rights(self, login: Login, tags: tuple[str, ...]) -> AskedRights:
        answers = self._cache.of(login.name, login.address, tags)
        return AskedRights("http", answers, partial(self._allows, login.name, login.address, tags))

    async def _allows(self, name: str, address: str, tags: tuple[str, ...], question: Question) -> bool:
        """Ask about one permission."""
        about, vhost = question.about, question.vhost
        fields: list[tuple[str, str | bytes]] = [("username", name), ("vhost", vhost)]
        if about == "vhost":
            path = self._options.vhost_path
            fields += [("ip", unmap_ipv4(address)), ("tags", " ".join(tags))]
        else:
            fields += [("resource", about), ("name", question.name), ("permission", question.kind)]
            fields.append(("tags", " ".join(tags)))
            path = self._options.resource_path
            if about == "topic":
                path = self._options.topic_path
                fields += [
                    ("routing_key", question.routing_key),
                    ("variable_map.username", name),
                    ("variable_map.vhost", vhost),
                ]
        answer = await self._request(path, fields)
        if answer not in ("allow", "deny"):
            raise _nonsense(answer)
        return answer == "allow"

    # -- requests -----------------------------------------------------------------------------------------

    async def _request(self, url: str, fields: _Fields) -> str:
        """Return an answer in lower case, without the spaces around it.

        Raises:
            Unavailable: The server cannot be reached, is slow, or fails.
        """
        encoded = urlencode([(key, _octets(value)) for key, value in fields])
        is_get = self._options.http_method == "get"
        target = URL(f"{url}?{encoded}" if is_get else url, encoded=True)
        headers = None if is_get else {"content-type": "application/x-www-form-urlencoded"}
        body = None if is_get else encoded.encode()
        try:
            async with self._opened().request(
                self._options.http_method, target, data=body, headers=headers, allow_redirects=False
            ) as response:
                answer = (await _read(response.content)).decode("utf-8", "replace")
        except TimeoutError:
            raise Unavailable(MODULE, "timeout") from None
        except aiohttp.ClientConnectorError as error:
            raise Unavailable(MODULE, f"{{failed_connect,{_reason(error.os_error)}}}") from None
        except (aiohttp.ClientError, OSError, ValueError) as error:
            raise Unavailable(MODULE, f"{{failed,{type(error).__name__}}}") from None
        if response.status not in (200, 201):
            raise Unavailable(MODULE, f"{{{response.status},{_shown(answer)}}}")
        return answer.strip(" ").lower()

    def _opened(self) -> aiohttp.ClientSession:
        """Return the session with the connections to the server, which are kept open."""
        if self._session is None:
            options = self._options
            connect, total = options.connection_timeout / 1000, options.request_timeout / 1000
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=_REQUESTS_MAX, ssl=self._tls),
                timeout=aiohttp.ClientTimeout(total=total, sock_connect=connect),
                cookie_jar=aiohttp.DummyCookieJar(),
            )
        return self._session

    async def close(self) -> None:
        """Close the connections to the server."""
        if self._session is not None:
            await self._session.close()


async def _read(stream: aiohttp.StreamReader) -> bytes:
    """Return the body of an answer; the beginning of one that is too long."""
    body = b""
    while len(body) < _ANSWER_MAX and (chunk := await stream.readany()):
        body += chunk
    return body


def _octets(value: str | bytes) -> bytes:
    """Return what clients have sent, also if it is not UTF-8."""
    return value.encode("utf-8", "surrogateescape") if isinstance(value, str) else value


def _nonsense(answer: str) -> Unavailable:
    return Unavailable(MODULE, f"{{bad_response,{_shown(answer)}}}")


def _shown(answer: str) -> str:
    return f'"{escape_line(answer[:_SHOWN_MAX])}"'


def _reason(error: OSError) -> str:
    """Return Erlang's name of what failed."""
    if isinstance(error, ssl.SSLError):
        return "tls_alert"
    return errno.errorcode.get(error.errno or 0, "nxdomain").lower()


def _make_context(options: AuthHttpSsl) -> ssl.SSLContext:
    """Return what TLS to the server requires.

    Raises:
        TlsError: A file cannot be used.
    """
    name = "cacertfile"
    try:
        context = ssl.create_default_context(cafile=options.cacertfile)
        if options.certfile is not None:
            name, password = "certfile", options.password or ""
            # Without a callback OpenSSL would ask for the password on the terminal.
            context.load_cert_chain(options.certfile, options.keyfile, lambda: password)
    except (OSError, ssl.SSLError) as error:
        given = options.cacertfile if name == "cacertfile" else options.certfile
        reason = error.strerror or "it is not a PEM file, or not that of its key"
        raise TlsError(f"auth_http.ssl_options.{name}: {given} cannot be used: {reason}") from error
    if options.verify == "verify_none":
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context
