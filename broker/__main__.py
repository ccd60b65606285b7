"""Entry point of the program ``leveret``: sets up streams and signals before the slow imports."""

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
        SystemExit: See leveret.broker.program.run().
    """
    _open_standard_streams()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _exit_on_signal)
    # No reload is needed before the broker has started: it is about to read its configuration.
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    from leveret.broker.program import run

    run(sys.argv[1:])


def _open_standard_streams() -> None:
    """Open missing standard streams: otherwise a file or socket would get their number, and printed output."""
    for descriptor in _STANDARD:
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)
    sys.stdout = sys.stdout or os.fdopen(1, "w")
    sys.stderr = sys.stderr or os.fdopen(2, "w")


def _exit_on_signal(number: int, frame: FrameType | None) -> None:
    """End the process at once: before the broker has started there is nothing to clean up."""
    signal.signal(number, signal.SIG_DFL)
    signal.raise_signal(number)
    # Process 1 of a container survives the signal.
    os._exit(128 + number)


if __name__ == "__main__":
    main()
