"""Files of the web pages."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer

from leveret.broker.management.http.middleware import format_responses
from leveret.broker.management.http.pages import Pages

Client = TestClient[web.Request, web.Application]


def write_pages(folder: Path, script: str = "export {};") -> Path:
    (folder / "parts").mkdir(parents=True)
    (folder / "index.html").write_text('<script type="module" src="{{assets}}/app.js"></script>')
    (folder / "app.js").write_text(script * 40)
    (folder / "parts" / "a.css").write_text("body {}")
    (folder / "notes.txt").write_text("not served")
    return folder


@pytest.fixture
def pages(tmp_path: Path) -> Pages:
    return Pages(write_pages(tmp_path / "ui"))


@pytest_asyncio.fixture
async def client(pages: Pages) -> AsyncIterator[Client]:
    app = web.Application(middlewares=[format_responses])
    app.add_routes(pages.routes())
    async with TestClient(TestServer(app)) as made:
        yield made


async def test_index_has_the_folder_of_the_assets(client: Client, pages: Pages) -> None:
    async with client.get("/") as response:
        assert response.status == 200
        assert response.headers["content-type"] == "text/html; charset=utf-8"
        assert response.headers["cache-control"] == "no-cache"
        assert await response.text() == f'<script type="module" src="assets/{pages.hash}/app.js"></script>'


async def test_assets_are_cached_forever(client: Client, pages: Pages) -> None:
    async with client.get(f"/assets/{pages.hash}/app.js") as response:
        assert response.status == 200
        assert response.headers["content-type"] == "text/javascript; charset=utf-8"
        assert response.headers["cache-control"] == "public, max-age=31536000, immutable"
        assert response.headers["content-encoding"] == "gzip"
        assert await response.text() == "export {};" * 40
    async with client.get(f"/assets/{pages.hash}/parts/a.css") as response:
        assert response.headers["content-type"] == "text/css; charset=utf-8"


async def test_security_headers(client: Client, pages: Pages) -> None:
    for path in ("/", f"/assets/{pages.hash}/app.js"):
        async with client.get(path) as response:
            policy = dict(part.strip().split(" ", 1) for part in response.headers["content-security-policy"].split(";"))
            assert policy["default-src"] == policy["frame-ancestors"] == policy["base-uri"] == "'none'"
            assert policy["script-src"] == policy["style-src"] == policy["connect-src"] == "'self'"
            assert "unsafe" not in response.headers["content-security-policy"]
            assert response.headers["x-content-type-options"] == "nosniff"
            assert response.headers["referrer-policy"] == "no-referrer"


async def test_head(client: Client, pages: Pages) -> None:
    for path in ("/", f"/assets/{pages.hash}/app.js"):
        async with client.head(path) as response:
            assert response.status == 200
            assert await response.read() == b""


@pytest.mark.parametrize(
    "path",
    [
        "/index.html",
        "/assets/0000000000000000/app.js",
        "/assets/{hash}/nosuch.js",
        "/assets/{hash}/notes.txt",
        "/assets/{hash}/../ui/app.js",
        "/assets/{hash}/%2e%2e/ui/app.js",
        "/assets/{hash}/",
    ],
)
async def test_missing_files(client: Client, pages: Pages, path: str) -> None:
    async with client.get(path.replace("{hash}", pages.hash)) as response:
        assert response.status == 404
        assert await response.json() == {"error": "Object Not Found", "reason": "Not Found"}


async def test_changing_methods_are_refused(client: Client) -> None:
    async with client.post("/") as response:
        assert response.status == 405


def test_hash_covers_names_and_contents(tmp_path: Path) -> None:
    same = [Pages(write_pages(tmp_path / name)).hash for name in ("a", "b")]
    assert same[0] == same[1]
    assert Pages(write_pages(tmp_path / "c", "export {1};")).hash != same[0]
    (tmp_path / "b" / "parts" / "a.css").rename(tmp_path / "b" / "parts" / "b.css")
    assert Pages(tmp_path / "b").hash != same[0]
