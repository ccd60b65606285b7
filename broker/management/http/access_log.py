"""The access log of the HTTP API: one line for each request, in a file for each hour, as RabbitMQ has it.

Source: https://www.rabbitmq.com/docs/management#http-logging, and RabbitMQ 3.10.8 observed.
"""

from __future__ import annotations

import logging
import re
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any, Final

from aiohttp import hdrs, web
from aiohttp.abc import AbstractAccessLogger

from leveret.broker.management.http.logins import LOGIN_NAME
from leveret.broker.printable import escape_line
from leveret.storage.url_secrets import MASK

log = logging.getLogger("leveret.http")

_HASHED: Final = re.compile("(?<=/auth/hash_password/).*")
_MONTHS: Final = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")


class AccessLog:
    """Writes lines in the common log format, with referrer and agent behind it.

    Args:
        directory: Where the files are; it is made if it is missing.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._hour = ""
        self._file: IO[str] | None = None
        self._has_failed = False

    def note(self, request: web.BaseRequest, response: web.StreamResponse) -> None:
        """Write the line of a request."""
        now = datetime.now(UTC)
        try:
            self._open(now).write(line_of(request, response, now))
        except OSError as error:
            if not self._has_failed:
                log.error("the access log cannot be written to %s: %s", self._directory, error)
            self._has_failed = True
            self.close()

    def _open(self, now: datetime) -> IO[str]:
        hour = now.strftime("%Y_%m_%d_%H")
        if self._file is None or hour != self._hour:
            self.close()
            self._directory.mkdir(parents=True, exist_ok=True)
            self._file = open(self._directory / f"access.log.{hour}", "a", encoding="utf-8", buffering=1)  # noqa: SIM115
            self._hour, self._has_failed = hour, False
        return self._file

    def close(self) -> None:
        """Close the file; the next request opens one."""
        if self._file is not None:
            file, self._file = self._file, None
            try:
                file.close()
            except OSError:
                # A line that cannot be written was told of.
                pass


def line_of(request: web.BaseRequest, response: web.StreamResponse, now: datetime) -> str:
    """Return the line of a request. What clients send cannot begin another one, or end a quotation."""
    # Queries are left out, as in RabbitMQ; and a password that is to be hashed.
    path = request.raw_path.partition("?")[0]
    path = _HASHED.sub(MASK, path)
    size = 0 if request.method == hdrs.METH_HEAD else response.content_length or 0
    version = f"HTTP/{request.version.major}.{request.version.minor}"
    parts = (
        f"{request.remote or '-'} - {_word(request.get(LOGIN_NAME) or '-')}",
        f"[{now.day:02}/{_MONTHS[now.month - 1]}/{now:%Y:%H:%M:%S} +0000]",
        f'"{request.method} {_quoted(path)} {version}"',
        f"{response.status} {size}",
        f'"{_quoted(request.headers.get(hdrs.REFERER, ""))}" "{_quoted(request.headers.get(hdrs.USER_AGENT, ""))}"',
    )
    return " ".join(parts) + "\n"


def _quoted(text: str) -> str:
    shown = escape_line(text).replace("\\", "\\\\").replace('"', '\\"')
    return shown.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def _word(text: str) -> str:
    return _quoted(text).replace(" ", "%20")


class AccessLogger(AbstractAccessLogger):
    """Passes what aiohttp tells to an AccessLog, which is in the place of aiohttp's logger."""

    def log(self, request: web.BaseRequest, response: web.StreamResponse, time: float) -> None:
        """Write the line of a request."""
        access_log: Any = self.logger
        access_log.note(request, response)
