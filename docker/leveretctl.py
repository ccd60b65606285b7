#!/opt/leveret/bin/python3 -E
"""leveretctl for the image: `docker exec NAME leveretctl …` connects to the broker of the container.

Without LEVERET_URL and --url it logs in as the default user, with port and password from the broker's configuration.
"""

from __future__ import annotations

import os
from urllib.parse import quote

from leveret.broker.config.config_errors import ConfigError
from leveret.broker.config.listening import management_address, running_settings
from leveret.broker.config.options import Settings
from leveret.broker.leveretctl.command_line import URL_VARIABLE
from leveret.broker.leveretctl.program import main as leveretctl


def url_of(settings: Settings) -> str:
    """Return the URL of the HTTP API with the default user's credentials, for a broker with these settings."""
    host, port = management_address(settings)
    host = f"[{host}]" if ":" in host else host
    user, password = quote(settings.default_user, safe=""), quote(settings.default_pass, safe="")
    return f"http://{user}:{password}@{host}:{port}"


def main() -> None:
    """Run leveretctl.

    Raises:
        SystemExit: With the exit status of the command.
    """
    if not os.environ.get(URL_VARIABLE):
        try:
            settings = running_settings()
        except ConfigError:
            # leveretctl reports the failed login, if the command needs one.
            settings = None
        if settings is not None:
            os.environ[URL_VARIABLE] = url_of(settings)
    leveretctl()


if __name__ == "__main__":
    main()
