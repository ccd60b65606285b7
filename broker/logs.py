"""The log on stderr: one line an event, in the form of RabbitMQ's."""

from __future__ import annotations

import logging
import sys
from datetime import datetime
from textwrap import indent
from typing import Any

from leveret.broker.printable import in_a_line, in_lines


class _Formatter(logging.Formatter):
    """Time with its zone, level in brackets, message.

    Messages have names in them that anybody may choose: they stay one line, and lines of tracebacks are indented, so
    that whatever begins a line is ours.
    """

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802
        record.message = in_a_line(record.message)
        return super().formatMessage(record)

    def formatException(self, ei: Any) -> str:  # noqa: N802
        return indent(in_lines(super().formatException(ei)), "  ", lambda line: True)

    def formatTime(self, record: logging.LogRecord, datefmt: str | None = None) -> str:  # noqa: N802
        return datetime.fromtimestamp(record.created).astimezone().isoformat(" ", "milliseconds")


def configure(level: str) -> None:
    """Log to stderr.

    Args:
        level: Least severe level to log: debug, info, warning or error.
    """
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Formatter("%(asctime)s [%(levelname)s] %(name)s: %(message)s"))
    for number in (logging.DEBUG, logging.INFO, logging.WARNING, logging.ERROR, logging.CRITICAL):
        logging.addLevelName(number, logging.getLevelName(number).lower())
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    # Not on the path of a message, but cheap to leave out where it is.
    logging.raiseExceptions = False
