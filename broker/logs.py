"""Log on stderr: one line per event, in RabbitMQ's format."""

from __future__ import annotations

import logging
import sys
from datetime import datetime
from textwrap import indent
from typing import Any

from leveret.broker.printable import escape_line, escape_multiline


class _Formatter(logging.Formatter):
    """Formats events as time with zone, level in brackets, message.

    Messages contain names that clients choose. So control characters are escaped, and lines of tracebacks are
    indented: clients cannot forge log lines.
    """

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802
        record.message = escape_line(record.message)
        return super().formatMessage(record)

    def formatException(self, ei: Any) -> str:  # noqa: N802
        return indent(escape_multiline(super().formatException(ei)), "  ", lambda line: True)

    def formatTime(self, record: logging.LogRecord, datefmt: str | None = None) -> str:  # noqa: N802
        return datetime.fromtimestamp(record.created).astimezone().isoformat(" ", "milliseconds")


def configure(level: str) -> None:
    """Set up logging to stderr.

    Args:
        level: Least severe level to log: debug, info, warning or error.
    """
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Formatter("%(asctime)s [%(levelname)s] %(name)s: %(message)s"))
    for number in (logging.DEBUG, logging.INFO, logging.WARNING, logging.ERROR, logging.CRITICAL):
        logging.addLevelName(number, logging.getLevelName(number).lower())
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    # A failed write to stderr must not print a traceback.
    logging.raiseExceptions = False
