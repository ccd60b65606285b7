"""Frames before the login: `initial_frame_max` makes room for long passwords, which tokens are."""

from __future__ import annotations

from pathlib import Path

import pika
import pytest
from pika.exceptions import AMQPConnectionError

from tests.integration.program import running
from tests.support.management import Management


def connect(url: str, password: str) -> None:
    parameters = pika.URLParameters(url)
    parameters.credentials = pika.PlainCredentials("ann", password)
    connection = pika.BlockingConnection(parameters)
    connection.channel().queue_declare("q", exclusive=True)
    connection.close()


@pytest.mark.parametrize(("option", "room"), [(None, 4096), ("16384", 16384)])
def test_a_password_fits_if_its_frame_does(tmp_path: Path, option: str | None, room: int) -> None:
    with running(tmp_path, *([] if option is None else [f"--set=initial_frame_max={option}"])) as program:
        api = Management(program.http_url)
        api.request("PUT", "users", "ann", body={"password": "x" * (room // 2), "tags": ""})
        api.request("PUT", "permissions", "/", "ann", body={"configure": ".*", "write": ".*", "read": ".*"})
        connect(program.url, "x" * (room // 2))
        api.request("PUT", "users", "ann", body={"password": "x" * room, "tags": ""})
        with pytest.raises(AMQPConnectionError):
            connect(program.url, "x" * room)
        assert "frame above initial_frame_max during the handshake" in program.log()
        # After the login frames are as large as they were agreed on.
        api.request("PUT", "users", "ann", body={"password": "short", "tags": ""})
        connect(program.url, "short")
