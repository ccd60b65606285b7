"""Where the archives of these tests are: on a disk, in memory, and in a store with the interface of S3."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from tests.support.s3_store import running_s3


@pytest.fixture(scope="session")
def bucket() -> Iterator[str]:
    """URL of a bucket."""
    with running_s3() as url:
        yield url


@pytest.fixture(params=["local", "memory"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """URL of an archive that does not exist yet."""
    return str(tmp_path / "archive") if request.param == "local" else f"memory://{uuid4().hex}"


@pytest.fixture(params=["local", "memory", "s3"])
def any_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The same, also in the store, where each request takes some milliseconds."""
    if request.param == "s3":
        return f"{request.getfixturevalue('bucket')}/{uuid4().hex}"
    return str(tmp_path / "archive") if request.param == "local" else f"memory://{uuid4().hex}"
