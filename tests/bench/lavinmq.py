"""Runs LavinMQ for the benchmark if `LAVINMQ` names its program."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from tests.bench.in_flight import BenchError
from tests.bench.peer_process import free_ports, start, stop, wait_until_ready
from tests.integration.certificates import Authority

#: Path of LavinMQ's program. Releases before 2.9 confirm before they sync, which durable scenarios show.
LAVINMQ_VARIABLE: Final = "LAVINMQ"


@contextmanager
def running_lavinmq(program: str) -> Iterator[tuple[str, str]]:
    """Run LavinMQ on free loopback ports with an empty data directory; stop it at the end.

    Args:
        program: path of `lavinmq`.

    Yields:
        Its AMQP URL, and the one of its encrypted listener.

    Raises:
        BenchError: it did not start; the text has the end of its log.
    """
    with tempfile.TemporaryDirectory(prefix="bench-lavinmq-", ignore_cleanup_errors=True) as name:
        port, tls_port, http_port = free_ports(3)
        issued = Authority(Path(name)).issue("127.0.0.1")
        command = [program, "-D", f"{name}/data", "-b", "127.0.0.1", "-p", str(port), "--http-port", str(http_port)]
        command += ["--amqps-port", str(tls_port), "--cert", str(issued.certificate), "--key", str(issued.key)]
        path = Path(name, "lavinmq.log")
        try:
            with path.open("wb") as log:
                process = start(command, log, dict(os.environ))
        except OSError as error:
            raise BenchError(f"{program} cannot be started: {error.strerror}") from None
        try:
            url = f"amqp://guest:guest@127.0.0.1:{port}"
            wait_until_ready("LavinMQ", url, process, path)
            yield url, f"amqps://guest:guest@127.0.0.1:{tls_port}"
        finally:
            stop(process)
