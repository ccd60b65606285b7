"""A virtual host of the broker under test, for each file of tests.

MATRIX_URL is the AMQP URL of the broker's default user, MATRIX_HTTP the base URL of its HTTP API.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.matrix.programs.vhosts import Vhost
from tests.support.management import Management


@pytest.fixture(scope="module")
def vhost() -> Iterator[Vhost]:
    """A new virtual host, which is gone after the tests of the file."""
    api, url = Management(os.environ["MATRIX_HTTP"]), urlsplit(os.environ["MATRIX_URL"])
    made = Vhost(api, f"{url.scheme}://{url.netloc}", f"matrix-{uuid.uuid4().hex[:12]}")
    made.create(url.username or "guest")
    yield made
    made.delete()


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory for the files of a file's tests."""
    return tmp_path_factory.mktemp("matrix")
