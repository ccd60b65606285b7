"""The program ``leveret``."""

from __future__ import annotations

import os
import sys

import uvloop

from broker import logs
from broker.app import StartError
from broker.config.cli import parse, parse_or_exit
from broker.config.errors import DefinitionsError
from broker.process import serve


def main() -> None:
    """Run the broker.

    Raises:
        SystemExit: 0 after a clean stop, 1 if it cannot start, 2 for bad usage.
    """
    settings = parse_or_exit(sys.argv[1:], os.environ)
    logs.configure(settings.log_level)
    try:
        uvloop.run(serve(settings, lambda: parse(sys.argv[1:], os.environ)))
    except (StartError, DefinitionsError) as error:
        sys.stderr.write(f"leveret: {error}\n")
        sys.exit(1)


if __name__ == "__main__":
    main()
