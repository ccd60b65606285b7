"""Java's standard error, for programs under spark-submit, which mixes that of Python into the standard output."""

from __future__ import annotations

import io
import sys
from typing import Any

from py4j.protocol import Py4JError


class JavaStderr(io.TextIOBase):
    """Takes the place of sys.stderr.

    Args:
        jvm: What Spark runs in.
    """

    def __init__(self, jvm: Any) -> None:
        super().__init__()
        self._stream = jvm.java.lang.System.err

    def write(self, text: str) -> int:
        """Write to Java's; to Python's own if Java has gone."""
        try:
            self._stream.print(text)
            self._stream.flush()
        except (Py4JError, OSError):
            assert sys.__stderr__ is not None
            sys.__stderr__.write(text)
        return len(text)
