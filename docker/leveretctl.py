#!/opt/leveret/bin/python3 -E
"""leveretctl as the image has it: `docker exec NAME leveretctl …` finds the broker of its container by itself.

Without LEVERET_URL and --url it logs in as the default user, with the port and the password that the broker was given.
"""

from __future__ import annotations

import os
from urllib.parse import quote

from leveret.broker.config.errors import ConfigError
from leveret.broker.config.options import Settings
from leveret.broker.config.running import management_address, running_settings
from leveret.broker.management.cli.program import URL_VARIABLE
from leveret.broker.management.cli.program import main as leveretctl


def url_of(settings: Settings) -> str:
    """Return the URL at which the default user manages a broker with these settings."""
    host, port = management_address(settings)
    host = f"[{host}]" if ":" in host else host
    user, password = quote(settings.default_user, safe=""), quote(settings.default_pass, safe="")
    return f"http://{user}:{password}@{host}:{port}"


def main() -> None:
    """Run leveretctl.

    Raises:
        SystemExit: With the command's status.
    """
    if not os.environ.get(URL_VARIABLE):
        try:
            settings = running_settings()
        except ConfigError:
            # leveretctl says that it cannot log in, if it comes to that.
            settings = None
        if settings is not None:
            os.environ[URL_VARIABLE] = url_of(settings)
    leveretctl()


if __name__ == "__main__":
    main()
