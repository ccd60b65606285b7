"""Runs `leveret backup`, `leveret restore` and `leveret verify`; says which optional library is missing."""

from __future__ import annotations

import sys

from leveret.analytics.arguments import asks_for_help
from leveret.analytics.backup.parser import make_parser


def main() -> int:
    """Run a command; return the exit status. Help needs no library."""
    if asks_for_help(sys.argv[2:]):
        make_parser(sys.argv[1]).print_help()
        return 0
    try:
        from leveret.analytics.backup.command import main as run
    except ImportError as error:
        if (error.name or "").partition(".")[0] != "fsspec":
            raise
        sys.stderr.write(
            f"leveret {sys.argv[1]}: the Python package {error.name} is missing; install what it needs: "
            "pip install 'leveret[backup]'\n"
        )
        return 1
    return run(sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main())
