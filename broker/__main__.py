"""The program ``leveret``: what has to hold before it imports anything that takes time."""

from __future__ import annotations

import os
import signal
import sys
from types import FrameType
from typing import Final

#: Standard input, output and error.
_STANDARD: Final = (0, 1, 2)


def main() -> None:
    """Run the program; see leveret.broker.program.

    Raises:
        SystemExit: As leveret.broker.program.run().
    """
    _open_standard_streams()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _leave)
    # A reload before the broker serves gets what it reads then.
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    from leveret.broker.program import run

    run(sys.argv[1:])


def _open_standard_streams() -> None:
    """Open those that the process was started without: a file or socket in their place would get what is printed."""
    for descriptor in _STANDARD:
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)
    sys.stdout = sys.stdout or os.fdopen(1, "w")
    sys.stderr = sys.stderr or os.fdopen(2, "w")


def _leave(number: int, frame: FrameType | None) -> None:
    """End the process: before it serves there is nothing to be tidied, and it may be killed at any time."""
    signal.signal(number, signal.SIG_DFL)
    signal.raise_signal(number)
    # The first process of a container survives that.
    os._exit(128 + number)


if __name__ == "__main__":
    main()
