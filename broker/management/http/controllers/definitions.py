"""Exports and imports definitions: everything except messages, as one document."""

from __future__ import annotations

import asyncio
import base64
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from aiohttp import web

from leveret.broker.auth.accounts import User
from leveret.broker.config.config_errors import DefinitionsError
from leveret.broker.core.definitions import for_vhost
from leveret.broker.core.json_values import parse_json_in_steps
from leveret.broker.core.scheduling.slices import result_in_slices, run_in_slices
from leveret.broker.management.http.access import has_tag
from leveret.broker.management.http.controller import Controller, route
from leveret.broker.management.http.request_bodies import read_file, read_upload
from leveret.broker.management.http.responses import LongText, bad_request, encode, missing, not_authorised, notice
from leveret.broker.operations.body_rules import check_imported
from leveret.broker.operations.broker_definitions import (
    export_steps,
    import_steps,
    log_left_out,
    name_left_out,
    objects_of,
    require_tags,
    vhost_export_steps,
)
from leveret.broker.operations.virtual_hosts import grant_to_creator

#: Characters of a header; with escapes it is up to six times as long, and clients refuse those of 8 KiB.
_NOTICE_MAX: Final = 1_000
_MALFORMED: Final = "failed_to_parse_json"
#: An absolute or relative path of this host. Browsers take "//a", "/\\a", "http:a" for other hosts, and drop blanks.
_OWN_PATH: Final = re.compile(r"(?!.*//)(?:/|\.{1,2}/|#)[!-\[\]-~]*")
#: Characters that headers may not have (RFC 9110 section 5.5) or that would end the file name.
_NOT_IN_FILE_NAME: Final = re.compile(r"[\x00-\x1f\x7f-\x9f;\"\\/\ud800-\udfff]+")


class Definitions(Controller):
    """The resource ``/api/definitions``, for administrators only."""

    @route("GET", "definitions", "all-configuration")
    async def export_all(self, request: web.Request) -> web.Response:
        """Export all definitions of the broker."""
        self._require(request)
        return await _export_response(request, export_steps(self._broker, self._accounts))

    @route("GET", "definitions/{vhost}")
    async def export_vhost(self, request: web.Request) -> web.Response:
        """Export the definitions of one virtual host."""
        self._require(request)
        vhost = self._broker.vhosts.get(request.match_info["vhost"])
        if vhost is None:
            raise bad_request("vhost_not_found")
        return await _export_response(request, vhost_export_steps(self._broker, vhost))

    @route("POST", "definitions", "all-configuration")
    async def import_all(self, request: web.Request) -> web.Response:
        """Import definitions. Existing objects stay."""
        user = self._require(request)
        document, redirect = await _read(request)
        named = {each["name"] for each in objects_of(document, "vhosts") if isinstance(each.get("name"), str)}
        new = named - set(self._broker.vhosts)
        try:
            left_out = await self._import(document, user)
        finally:
            self._grant_permissions(user, new)
        return _imported(redirect, left_out)

    @route("POST", "definitions/{vhost}")
    async def import_vhost(self, request: web.Request) -> web.Response:
        """Import definitions into one virtual host, whichever virtual host they were exported from."""
        user = self._require(request)
        name = request.match_info["vhost"]
        if name not in self._broker.vhosts:
            raise missing("vhost_not_found")
        document, redirect = await _read(request)
        return _imported(redirect, await self._import(for_vhost(document, name), user))

    async def _import(self, document: Mapping[str, Any], user: User) -> list[str]:
        """Import a document; return what was left out."""
        left_out: list[str] = []
        try:
            require_tags(document)
            await asyncio.to_thread(check_imported, document)
            await run_in_slices(import_steps(document, self._broker, self._accounts, left_out))
        except DefinitionsError as error:
            raise bad_request(error.reason) from None
        log_left_out(left_out, f"the definitions that user '{user.name}' has sent")
        return left_out

    def _grant_permissions(self, user: User, vhosts: Iterable[str]) -> None:
        """Give a user all permissions in the virtual hosts that it created, unless the document has others."""
        for name in vhosts:
            if name in self._broker.vhosts:
                grant_to_creator(self._accounts, user, name)

    def _require(self, request: web.Request) -> User:
        """Refuse users that are not administrators. Downloads and uploads by a browser may log in by the query."""
        login = request.query.get("auth")
        if login is None or "authorization" in request.headers:
            return self._access.require(request, "administrator")
        try:
            name, _, password = base64.b64decode(login).decode("utf-8").partition(":")
        except ValueError:
            raise web.HTTPBadRequest(text="") from None
        user = self._access.authenticate(request, name, password)
        if not has_tag(user, "administrator"):
            raise not_authorised("Not administrator user")
        return user


async def _export_response(request: web.Request, pieces: Iterator[tuple[str, Any]]) -> web.Response:
    """Return the response with the document, encoded in slices."""
    text = LongText()
    before = "{"
    for key, value in pieces:
        if isinstance(value, Iterable) and not isinstance(value, str | Mapping):
            text.add(f"{before}{encode(key)}:[")
            await text.add_all(value, lambda entry: entry)
            text.add("]")
        else:
            text.add(f"{before}{encode(key)}:{encode(value)}")
        before = ","
    text.add("}")
    response = text.response()
    name = request.query.get("download")
    if name:
        response.headers["content-disposition"] = f"attachment; filename={_NOT_IN_FILE_NAME.sub(' ', name).strip()}"
    return response


async def _read(request: web.Request) -> tuple[Mapping[str, Any], str | None]:
    """Return the document of a request, and the path to which a browser is redirected afterwards.

    Raises:
        HTTPBadRequest: The body is not a JSON object.
    """
    redirect = None
    if request.content_type == "multipart/form-data":
        form = await read_upload(request)
        body = form.get("file", b"")
        target = form.get("redirect")
        redirect = None if target is None else target.decode("utf-8", "replace")
        if not body:
            raise bad_request(_MALFORMED)
    else:
        body = await read_file(request)
    try:
        document = await result_in_slices(parse_json_in_steps(body)) if body else {}
    except ValueError:
        raise bad_request(_MALFORMED) from None
    if not isinstance(document, dict):
        raise bad_request(_MALFORMED)
    return document, redirect


def _imported(redirect: str | None, left_out: Sequence[str]) -> web.Response:
    headers = notice(f"left out: {name_left_out(left_out, _NOTICE_MAX)}" if left_out else "")
    if redirect is None or _OWN_PATH.fullmatch(redirect) is None:
        return web.Response(status=204, headers=headers)
    return web.Response(status=303, headers={**headers, "location": redirect})
