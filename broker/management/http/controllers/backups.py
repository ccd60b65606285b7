"""The backups that the broker takes. RabbitMQ does not have this resource."""

from __future__ import annotations

from typing import Final

from aiohttp import web

from leveret.broker.management.fields import BACKUP
from leveret.broker.management.http.controller import Controller, route
from leveret.broker.management.http.documents.views import document_maker
from leveret.broker.management.http.responses import json_response
from leveret.broker.operations.backups import BackupRow


class BackupView:
    """The attributes of a backup that the fields of BACKUP are read from."""

    __slots__ = ("row",)

    def __init__(self, row: BackupRow) -> None:
        self.row = row

    # Rounded up: what is restored at a moment must have been sent.
    moment = property(lambda self: -(-self.row.time // 1000))
    until = property(lambda self: max(self.moment, self.row.until // 1000))


_backup: Final = document_maker(BACKUP)


class BackupResources(Controller):
    """The resource ``/api/backups``, for monitors."""

    @route("GET", "backups", tag="monitoring")
    async def list(self, request: web.Request) -> web.Response:
        """List the backups, the newest first, and which moments can be restored."""
        found = self._context.backups
        if found is None or not found.url:
            nothing = {"url": None, "node": None, "age": None, "late": False, "failures": 0, "error": None}
            return json_response({**nothing, "restorable": [], "backups": []})
        return json_response(
            {
                "url": found.url,
                "node": found.node or None,
                "age": round(found.age, 3),
                "late": found.is_late,
                "failures": found.failures,
                "error": found.error or None,
                "restorable": [{"from": -(-first // 1000), "to": last // 1000} for first, last in found.spans],
                "backups": [_backup(BackupView(row)) for row in reversed(found.rows)],
            }
        )
