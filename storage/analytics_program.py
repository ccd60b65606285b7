"""Entry point of `leveret-analytics`; reports missing optional libraries."""

from __future__ import annotations

import sys
from typing import Final

#: Packages of the extra `analytics`.
_LIBRARIES: Final = ("numpy", "plotly", "pyarrow", "pyspark")


def main() -> int:
    """Run a job; if libraries are missing, print how to install them.

    Returns:
        The exit status.
    """
    try:
        from leveret.storage.analytics.command import main as run
    except ImportError as error:
        if (error.name or "").partition(".")[0] not in _LIBRARIES:
            raise
        sys.stderr.write(
            f"leveret-analytics: the Python package {error.name} is missing; "
            "install what the jobs need: pip install 'leveret[analytics]'\n"
        )
        return 1
    return run()


if __name__ == "__main__":
    sys.exit(main())
