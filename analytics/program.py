"""Entry point of `leveret-analytics`; reports missing optional libraries."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from functools import partial
from typing import Final

from leveret.analytics.arguments import ICEBERG_VARIABLE, asks_for_help, print_help
from leveret.analytics.arguments import make_archive_parser as archive_parser
from leveret.analytics.arguments import make_iceberg_parser as iceberg_parser

#: Command that prints docs/tables.md.
_TABLE_REFERENCE: Final = "table-reference"
#: Programs that are no jobs, and their parsers.
_PARSERS: Final = {"archive": archive_parser, "iceberg": iceberg_parser}
#: Packages of the extra `analytics`, and what they bring along.
_LIBRARIES: Final = ("fsspec", "numpy", "plotly", "py4j", "pyarrow", "pyspark")


def main() -> int:
    """Run a job; if libraries are missing, print how to install them. Help needs none.

    Returns:
        The exit status.
    """
    if asks_for_help(sys.argv[1:]):
        parser = _PARSERS.get(_command())
        if parser is not None:
            parser().print_help()
        else:
            print_help(sys.argv[1:])
        return 0
    try:
        run = _program()
    except ImportError as error:
        if (error.name or "").partition(".")[0] not in _LIBRARIES:
            raise
        has_tables = ICEBERG_VARIABLE in os.environ or any(each.lstrip("-").startswith("iceberg") for each in sys.argv)
        extra = "iceberg" if has_tables else "arrow"
        how = (
            f"install what it needs: pip install 'leveret[{extra}]'"
            if _command() in (*_PARSERS, _TABLE_REFERENCE)
            else "install what the jobs need: pip install 'leveret[analytics]' (leveret-analytics archive needs "
            "'leveret[arrow]' only)"
        )
        sys.stderr.write(f"leveret-analytics: the Python package {error.name} is missing; {how}\n")
        return 1
    return run()


def _program() -> Callable[[], int]:
    if _command() == "archive":
        from leveret.analytics.archiver import main as archive

        return partial(archive, sys.argv[2:])
    if _command() == "iceberg":
        from leveret.analytics.iceberg.command import main as iceberg

        return partial(iceberg, sys.argv[2:])
    if _command() == _TABLE_REFERENCE:
        from leveret.analytics.table_reference import reference_page

        return partial(_print, reference_page())
    from leveret.analytics.command import main as jobs

    return jobs


def _command() -> str:
    return sys.argv[1] if len(sys.argv) > 1 else ""


def _print(text: str) -> int:
    sys.stdout.write(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
