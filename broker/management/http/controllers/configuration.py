"""Shows the effective configuration."""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce
from typing import Final, TypeAlias

from aiohttp import web

from leveret.broker.config.options import OPTIONS
from leveret.broker.management.http.controller import Controller, RequestContext, resource
from leveret.broker.management.http.responses import json_response

_SECRET: Final = "********"
_Json: TypeAlias = "str | int | float | bool | list[_Json] | dict[str, _Json] | None"


class Configuration(Controller):
    """The resource ``/api/config/effective``: every option by its dotted name, with secrets masked."""

    def __init__(self, context: RequestContext) -> None:
        super().__init__(context)
        self._settings = context.settings

    def routes(self) -> list[web.RouteDef]:
        """Return the paths and their handlers."""
        return resource("config/effective", GET=self.show)

    async def show(self, request: web.Request) -> web.Response:
        """Show all options with their values at startup."""
        self._access.require(request, "administrator")
        return json_response({name: self._value(name, option.secret) for name, option in OPTIONS.items()})

    def _value(self, name: str, secret: bool) -> _Json:
        value: object = reduce(getattr, name.split("."), self._settings)
        return _SECRET if secret and value else _json(value)


def _json(value: object) -> _Json:
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, Mapping):
        return {str(key): _json(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_json(each) for each in value]
    return str(value)
