"""What a request asks to leave out, for the sake of speed."""

from __future__ import annotations

from typing import Final

from aiohttp import web

from leveret.broker.config.options import Settings
from leveret.broker.management.http.errors import bad_request

#: The configuration, in the application.
SETTINGS: Final = web.AppKey("settings", Settings)


def stats_are_disabled(request: web.Request) -> bool:
    """Whether statistics are to be left out, of all answers or of this one (``disable_stats=true``)."""
    settings = request.config_dict[SETTINGS]
    disabled = settings.management.disable_stats or settings.management_agent.disable_metrics_collector
    return disabled or request.query.get("disable_stats") == "true"


def totals_are_enabled(request: web.Request) -> bool:
    """Whether queues are to show the numbers of their messages all the same (``enable_queue_totals=true``)."""
    totals = request.config_dict[SETTINGS].management.enable_queue_totals
    return totals or request.query.get("enable_queue_totals") == "true"


def require_stats(request: web.Request) -> None:
    """Refuse to leave statistics out of what is nothing else.

    Raises:
        HTTPBadRequest: They are to be left out.
    """
    if stats_are_disabled(request):
        raise bad_request("Stats in management UI are disabled on this node")
