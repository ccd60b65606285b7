"""Logger for aiohttp that drops errors caused by clients."""

from __future__ import annotations

import logging

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError


class _ClientFaults(logging.Filter):
    """Filter that drops errors of clients, which get status 400. Otherwise they could fill the log with tracebacks."""

    def filter(self, record: logging.LogRecord) -> bool:
        fault = record.exc_info[1] if record.exc_info else None
        return not isinstance(fault, HttpProcessingError | web.RequestPayloadError)


def protocol_log() -> logging.Logger:
    """Return the logger for connections of HTTP clients."""
    log = logging.getLogger("leveret.http.protocol")
    if not log.filters:
        log.addFilter(_ClientFaults())
    return log
