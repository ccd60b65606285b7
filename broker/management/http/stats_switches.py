"""Query parameters and options that disable statistics."""

from __future__ import annotations

from typing import Final

from aiohttp import web

from leveret.broker.config.options import Settings
from leveret.broker.management.http.errors import bad_request

#: Key of the configuration in the application.
SETTINGS: Final = web.AppKey("settings", Settings)


def stats_are_disabled(request: web.Request) -> bool:
    """Check whether statistics are disabled, for all responses or for this one (``disable_stats=true``)."""
    settings = request.config_dict[SETTINGS]
    disabled = settings.management.disable_stats or settings.management_agent.disable_metrics_collector
    return disabled or request.query.get("disable_stats") == "true"


def totals_are_enabled(request: web.Request) -> bool:
    """Check whether queues show message counts even without statistics (``enable_queue_totals=true``)."""
    totals = request.config_dict[SETTINGS].management.enable_queue_totals
    return totals or request.query.get("enable_queue_totals") == "true"


def require_stats(request: web.Request) -> None:
    """Refuse a request for a resource that has only statistics, if they are disabled.

    Raises:
        HTTPBadRequest: Statistics are disabled.
    """
    if stats_are_disabled(request):
        raise bad_request("Stats in management UI are disabled on this node")
