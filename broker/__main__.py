"""The program ``leveret``."""

from __future__ import annotations

import os
import sys

import uvloop

from broker import logs
from broker.app import StartError
from broker.check import check_config
from broker.config.cli import parse, parse_or_exit
from broker.config.errors import DefinitionsError
from broker.config.reference import page
from broker.process import serve


def main() -> None:
    """Run the broker, or check or describe its configuration.

    Raises:
        SystemExit: 0 after a clean stop, 1 if it cannot start, 2 for bad usage.
    """
    match sys.argv[1:]:
        case ["check-config", *rest]:
            sys.exit(check_config(rest, os.environ, sys.stdout, sys.stderr))
        case ["config-reference"]:
            sys.stdout.write(page())
            sys.exit(0)
    settings = parse_or_exit(sys.argv[1:], os.environ)
    logs.configure(settings.log_level)
    try:
        uvloop.run(serve(settings, lambda: parse(sys.argv[1:], os.environ)))
    except (StartError, DefinitionsError) as error:
        sys.stderr.write(f"leveret: {error}\n")
        sys.exit(1)


if __name__ == "__main__":
    main()
