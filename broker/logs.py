"""The log on stderr and in a file: one line per event, in RabbitMQ's format or as JSON."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Iterable
from datetime import datetime
from logging.handlers import WatchedFileHandler
from pathlib import Path
from textwrap import indent
from typing import Any, Final

from leveret.broker.printable import escape_line, escape_multiline

_LINE: Final = "%(asctime)s [%(levelname)s] %(name)s: %(message)s"


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


class _JsonFormatter(_Formatter):
    """Formats an event as a JSON object in a line, with the names of RabbitMQ's JSON log."""

    def format(self, record: logging.LogRecord) -> str:
        document = {
            "time": self.formatTime(record),
            "level": record.levelname,
            "domain": record.name,
            "msg": escape_multiline(record.getMessage()),
        }
        if record.exc_info:
            document["exception"] = self.formatException(record.exc_info)
        return json.dumps(document)


def open_handlers(formatter: str, file: Path | None, console: bool) -> list[logging.Handler]:
    """Return the handlers of a log that is not in use yet.

    Args:
        formatter: plaintext or json.
        file: File to append to; another one of that name takes its place when it is renamed. None for none.
        console: Whether to log to stderr.
    Raises:
        OSError: The file cannot be opened.
    """
    handlers: list[logging.Handler] = [] if file is None else [WatchedFileHandler(file, encoding="utf-8")]
    if console:
        handlers.append(logging.StreamHandler(sys.stderr))
    for handler in handlers:
        handler.setFormatter(_JsonFormatter() if formatter == "json" else _Formatter(_LINE))
    return handlers


def configure(level: str, handlers: Iterable[logging.Handler]) -> None:
    """Log with these handlers, and close those that were used before.

    Args:
        level: Least severe level to log: debug, info, warning or error.
    """
    for number in (logging.DEBUG, logging.INFO, logging.WARNING, logging.ERROR, logging.CRITICAL):
        logging.addLevelName(number, logging.getLevelName(number).lower())
    logging.basicConfig(level=level.upper(), handlers=handlers, force=True)
    # A failed write must not print a traceback.
    logging.raiseExceptions = False
