"""Rules 41.6, 41.7 and 45.14: how long bodies of requests may be, and that their declared encoding is ignored."""

from __future__ import annotations

import codecs
import gzip
import json
import zlib

import pytest

from tests.conformance.http_api import Belongings, HttpApi, bad_request, path

FORM = "application/x-www-form-urlencoded"
TOO_LONG = bad_request("Exceeded HTTP request body size limit")
#: So that the limit is passed wherever the body is cut into pieces.
LONG = 20_000_000


@pytest.mark.parametrize("charset", ["utf-8", "punycode", "idna", "no-such-charset", "rot13", "utf-16"])
def test_41_6_a_form_is_utf_8_whatever_its_charset(api: HttpApi, belongings: Belongings, charset: str) -> None:
    form = f"username={belongings.user('management')}&password=conformance".encode()
    headers = {"Content-Type": f"{FORM}; charset={charset}"}
    assert api.ask("POST", "login", form, user="", headers=headers).status == 200
    assert api.ask("POST", "login", form + b"x", user="", headers=headers).status == 401


def test_41_6_a_form_that_is_no_utf_8_is_a_wrong_login(api: HttpApi) -> None:
    for form in (b"username=\xff&password=\xfe", b"username=%FF&password=%FE"):
        assert api.ask("POST", "login", form, user="", headers={"Content-Type": FORM}).status == 401


@pytest.mark.parametrize("content_type", ["multipart/form-data", "multipart/form-data; boundary=x", "text/plain"])
def test_41_6_a_login_that_does_not_call_itself_a_form(api: HttpApi, belongings: Belongings, content_type: str) -> None:
    form = f"username={belongings.user('management')}&password=conformance".encode()
    headers = {"Content-Type": content_type}
    assert api.ask("POST", "login", form, user="", headers=headers).status == 415
    assert api.ask("POST", "login", form + b"x", user="", headers=headers).status == 401


def test_41_6_a_form_has_64_kb_at_most(api: HttpApi) -> None:
    form = b"username=nobody&password="
    headers = {"Content-Type": FORM}
    assert api.ask("POST", "login", form.ljust(64_000, b"x"), user="", headers=headers).status == 401
    reply = api.ask("POST", "login", form.ljust(66_000, b"x"), user="", headers=headers)
    assert (reply.status, reply.body) == (413, b"")


def test_41_6_a_form_is_not_inflated(api: HttpApi) -> None:
    form = zlib.compress(b"username=guest&password=guest")
    headers = {"Content-Type": FORM, "Content-Encoding": "deflate"}
    assert api.ask("POST", "login", form, user="", headers=headers).status == 401


@pytest.mark.parametrize("encoding", ["gzip", "deflate", "br", "identity", "nonsense"])
def test_41_7_a_body_is_read_as_it_comes(api: HttpApi, own_vhost: str, encoding: str) -> None:
    headers = {"Content-Encoding": encoding}
    reply = api.ask("PUT", path("queues", own_vhost, "plain"), b"{}", headers=headers)
    assert reply.status == 201
    reply = api.ask("PUT", path("queues", own_vhost, "packed"), gzip.compress(b"{}"), headers=headers)
    assert (reply.status, reply.document) == (400, bad_request("not_json"))
    api.check("DELETE", path("queues", own_vhost, "plain"), None, 204)


def test_41_7_one_byte_order_mark_is_skipped(api: HttpApi, own_vhost: str) -> None:
    queue = json.dumps({"durable": True}).encode()
    below, mark = path("queues", own_vhost, "q"), codecs.BOM_UTF8
    for body in (mark, b" " + mark + queue, mark + mark + queue, queue.decode().encode("utf-16")):
        api.check("PUT", below, body, 400, bad_request("not_json"))
    api.check("PUT", below, mark + queue, 201)
    assert api.get(below)["durable"] is True
    imported = {"name": "imported", "vhost": own_vhost, "durable": True, "auto_delete": False, "arguments": {}}
    definitions = mark + json.dumps({"queues": [imported]}).encode()
    head = b'--B\r\nContent-Disposition: form-data; name="file"; filename="a"\r\n\r\n'
    for body, kind in (
        (definitions, "application/json"),
        (head + definitions + b"\r\n--B--\r\n", "multipart/form-data; boundary=B"),
    ):
        assert api.ask("POST", "definitions", body, headers={"Content-Type": kind}).status == 204
        api.check("DELETE", path("queues", own_vhost, "imported"), None, 204)


def test_41_7_what_is_no_utf_8_is_replaced(api: HttpApi, own_vhost: str) -> None:
    for written in (b"\xff", b"\\ud800", b"\\uDC00"):
        body = b'{"arguments":{"x-dead-letter-exchange":"' + written + b'"}}'
        below = path("queues", own_vhost, written.hex())
        api.check("PUT", below, body, 201)
        assert api.get(below)["arguments"] == {"x-dead-letter-exchange": "\ufffd"}
        api.check("PUT", path("queues", own_vhost, "q"), b"{" + written + b"}", 400, bad_request("not_json"))


def test_41_7_a_body_has_8_mb_at_most(api: HttpApi, own_vhost: str) -> None:
    body = json.dumps({"description": "x" * LONG}).encode()
    reply = api.ask("PUT", path("vhosts", own_vhost), body)
    assert (reply.status, reply.document) == (400, TOO_LONG)


def test_41_7_a_long_body_without_a_login_is_not_read(api: HttpApi, own_vhost: str) -> None:
    reply = api.ask("PUT", path("vhosts", own_vhost), b"x" * LONG, user="")
    assert (reply.status, reply.body) == (401, b"")


def test_41_7_an_upload_may_be_longer(api: HttpApi) -> None:
    document = json.dumps({"rabbit_version": "3.10.8", "comment": "x" * 9_000_000})
    body = f'--B\r\nContent-Disposition: form-data; name="file"; filename="a"\r\n\r\n{document}\r\n--B--\r\n'.encode()
    headers = {"Content-Type": "multipart/form-data; boundary=B"}
    assert api.ask("POST", "definitions", body, headers=headers).status == 204


@pytest.mark.parametrize("name", ["%00", "a%0D%0Ab", "%1B%5B0m", "%EF%BF%BF", "%C2%85"])
def test_45_14_names_of_downloads_cannot_break_the_header(api: HttpApi, name: str) -> None:
    reply = api.ask("GET", f"definitions?download={name}")
    assert reply.status == 200
    assert not any(character in reply.headers["content-disposition"] for character in "\r\n")
