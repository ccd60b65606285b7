"""What aiohttp says about requests that are none."""

from __future__ import annotations

import logging

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError


class _ClientFaults(logging.Filter):
    """Passes on what is our fault. A client that does not send HTTP could fill the log with tracebacks; it gets 400."""

    def filter(self, record: logging.LogRecord) -> bool:
        fault = record.exc_info[1] if record.exc_info else None
        return not isinstance(fault, HttpProcessingError | web.RequestPayloadError)


def protocol_log() -> logging.Logger:
    """The logger for connections of HTTP clients."""
    log = logging.getLogger("leveret.http.protocol")
    if not log.filters:
        log.addFilter(_ClientFaults())
    return log
