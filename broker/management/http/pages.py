"""Serves the static files of the web pages, and Leveret's rabbitmqadmin."""

from __future__ import annotations

import hashlib
from functools import cached_property
from pathlib import Path
from typing import Final

from aiohttp import web

from leveret.broker.management.http.page_columns import lists_script
from leveret.broker.management.http.responses import not_found

#: The file that is made from the table of fields and the exchange types.
_LISTS: Final = "parts/lists.js"
_ROOT: Final = Path(__file__).parents[1] / "ui"
_INDEX: Final = "index.html"
#: Placeholder in the index for the folder of the other files.
_PLACEHOLDER: Final = b"{{assets}}"
_TYPES: Final = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
_SECURITY: Final = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
        "form-action 'none'; frame-ancestors 'none'; base-uri 'none'; "
        "require-trusted-types-for 'script'; trusted-types 'none'"
    ),
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "vary": "accept-encoding",
}
#: Browsers may cache the files forever, because the folder's name changes with their contents.
_IMMUTABLE: Final = "public, max-age=31536000, immutable"
_ADMIN: Final = _ROOT.parent / "rabbitmqadmin.py"
_TOOLS_PAGE: Final = """\
<!DOCTYPE html>
<html lang=en>
<title>Command line tools</title>
<h1>Command line tools</h1>
<p><a href="rabbitmqadmin" download>rabbitmqadmin</a> is Leveret's own program with the commands of RabbitMQ's.
It needs Python 3.10 or newer: save it, make it executable (<code>chmod +x rabbitmqadmin</code>), and see
<code>./rabbitmqadmin --help</code>. RabbitMQ's works with Leveret, too.
<p>leveretctl, which comes with Leveret, does the same and more.
</html>
"""


class Pages:
    """Serves the index at ``/`` and all other files below ``/assets/HASH/``, where HASH covers all files.

    Args:
        root: Folder of the files. They are read once, at the first request.
    """

    def __init__(self, root: Path = _ROOT) -> None:
        self._root = root

    def routes(self) -> list[web.RouteDef]:
        """Return the paths and their handlers."""
        return [web.get("/", self.index), web.get("/assets/{hash:[0-9a-f]+}/{path:.+}", self.asset)]

    async def index(self, request: web.Request) -> web.Response:
        """Serve the only page. What it shows depends on the URL's fragment, which browsers do not send."""
        body = self._files[_INDEX].replace(_PLACEHOLDER, f"assets/{self.hash}".encode())
        return _file_response(_INDEX, body, "no-cache")

    async def asset(self, request: web.Request) -> web.Response:
        """Serve one of the other files.

        Raises:
            HTTPNotFound: The file does not exist, or belongs to another version of the web pages.
        """
        path = request.match_info["path"]
        if request.match_info["hash"] != self.hash or path not in self._files:
            raise not_found()
        return _file_response(path, self._files[path], _IMMUTABLE)

    @cached_property
    def hash(self) -> str:
        """Hash of the names and contents of all files, 16 hexadecimal digits."""
        digest = hashlib.sha256()
        for path, content in self._files.items():
            digest.update(f"{path}\0{len(content)}\0".encode())
            digest.update(content)
        return digest.hexdigest()[:16]

    @cached_property
    def _files(self) -> dict[str, bytes]:
        found = sorted(file for file in self._root.rglob("*") if file.suffix in _TYPES and file.is_file())
        files = {file.relative_to(self._root).as_posix(): file.read_bytes() for file in found}
        return {**files, _LISTS: lists_script()}


def _file_response(path: str, body: bytes, caching: str) -> web.Response:
    headers = {**_SECURITY, "content-type": _TYPES[Path(path).suffix], "cache-control": caching}
    return web.Response(body=body, headers=headers)


class ToolsPage:
    """Explains the tools at ``/cli/``, and serves rabbitmqadmin there, as RabbitMQ does."""

    def routes(self) -> list[web.RouteDef]:
        """Return the paths and their handlers."""
        return [web.get("/cli{slash:/?}", self.page), web.get("/cli/rabbitmqadmin", self.script)]

    async def page(self, request: web.Request) -> web.Response:
        """Serve the explanation as a page."""
        if not request.match_info["slash"]:
            # The link to the script is relative.
            return web.Response(status=301, headers={"location": f"{request.path}/"})
        return web.Response(text=_TOOLS_PAGE, content_type="text/html")

    async def script(self, request: web.Request) -> web.Response:
        """Serve the script."""
        return web.Response(body=_ADMIN.read_bytes(), content_type="application/octet-stream")
