"""A store of objects with the interface of Amazon S3, on this machine."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.request import urlopen

import pytest
import s3fs
from moto.server import ThreadedMotoServer


@contextmanager
def running_s3() -> Iterator[str]:
    """Run a store, and name it to all clients in this process and in those that it starts."""
    # It would log each request.
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    with pytest.MonkeyPatch.context() as patch:
        try:
            host, port = server.get_host_and_port()
            patch.setenv("AWS_ENDPOINT_URL", f"http://{host}:{port}")
            patch.setenv("AWS_ACCESS_KEY_ID", "name")
            patch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
            patch.setenv("AWS_DEFAULT_REGION", "us-east-1")
            s3fs.S3FileSystem.clear_instance_cache()
            # What it has is kept for as long as this process runs.
            urlopen(f"http://{host}:{port}/moto-api/reset", data=b"").close()
            s3fs.S3FileSystem().mkdir("bucket")
            yield "s3://bucket"
        finally:
            s3fs.S3FileSystem.clear_instance_cache()
            server.stop()
