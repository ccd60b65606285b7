"""Writes to Java's standard error; needed under spark-submit, which redirects Python's stderr to stdout."""

from __future__ import annotations

import io
import sys
from typing import Any

from py4j.protocol import Py4JError


class JavaStderr(io.TextIOBase):
    """Replacement for sys.stderr that writes to Java's System.err.

    Args:
        jvm: Py4J view of Spark's JVM.
    """

    def __init__(self, jvm: Any) -> None:
        super().__init__()
        self._stream = jvm.java.lang.System.err

    def write(self, text: str) -> int:
        """Write a text to Java's stderr; to Python's stderr if the JVM has ended."""
        try:
            self._stream.print(text)
            self._stream.flush()
        except (Py4JError, OSError):
            assert sys.__stderr__ is not None
            sys.__stderr__.write(text)
        return len(text)
