"""Docker for the tests: a daemon of their own, or the one that DOCKER_HOST names.

The own one keeps its data, its socket and its containers apart from any other daemon of the machine, needs no bridge
and touches no firewall, so that containers have to use the host's network.

`python -m tests.docker.daemon` tells whether it can be started: status 0, or 1 with the reason on stderr.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

CACHE: Final = Path(__file__).parents[2] / ".docker-cache"
"""What is worth keeping between runs, and the daemon's data while it runs; git ignores it."""

_START_SECONDS: Final = 60.0
_STOP_SECONDS: Final = 30.0
_COMMAND_SECONDS: Final = 60.0
_PROGRAMS: Final = ("docker", "dockerd", "containerd", "runc", "unshare", "setpriv")


class CannotStartError(Exception):
    """There is no Docker to be had here; the text says why."""


class Docker:
    """The client of one daemon."""

    def __init__(self, host: str, own: bool) -> None:
        self.own = own
        self._environment = {**os.environ, "DOCKER_HOST": host}
        if own:
            # Its release may be older than its client, and BuildKit is a plugin that may be missing.
            self._environment["DOCKER_BUILDKIT"] = "0"

    def run(self, *arguments: str, seconds: float = _COMMAND_SECONDS) -> subprocess.CompletedProcess[str]:
        """Run a command of the client, whatever comes of it."""
        return subprocess.run(
            ["docker", *arguments],
            env=self._environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=seconds,
            check=False,
        )

    def __call__(self, *arguments: str, seconds: float = _COMMAND_SECONDS) -> str:
        """Run a command of the client that has to succeed; return its output."""
        done = self.run(*arguments, seconds=seconds)
        assert done.returncode == 0, f"docker {' '.join(arguments)}: {done.returncode}\n{done.stdout}{done.stderr}"
        return done.stdout.strip()


@contextmanager
def docker() -> Iterator[Docker]:
    """Give a daemon: that of DOCKER_HOST, else one that is started, and in the end stopped and cleared away."""
    named = os.environ.get("DOCKER_HOST")
    if named:
        _find("docker")
        client = Docker(named, own=False)
        answer = client.run("version", "--format", "{{.Server.Version}}")
        if answer.returncode:
            raise CannotStartError(f"DOCKER_HOST is {named}, but: {answer.stderr.strip()}")
        yield client
        return
    _check_needs()
    CACHE.mkdir(exist_ok=True)
    # The path of a socket may have no more than some hundred characters.
    with (
        tempfile.TemporaryDirectory(prefix="leveret-docker-") as run,
        tempfile.TemporaryDirectory(prefix="daemon-", dir=CACHE, ignore_cleanup_errors=True) as data,
        (Path(run) / "log").open("w+") as log,
    ):
        host = f"unix://{run}/docker.sock"
        # What it mounts and forgets goes with its mount namespace; it ends with this process, whatever ends that.
        command = ["unshare", "--mount", "setpriv", "--pdeathsig", "TERM"]
        command += ["dockerd", "--bridge", "none", "--iptables=false", "--ip6tables=false", "--host", host]
        command += ["--data-root", data, "--exec-root", f"{run}/exec", "--pidfile", f"{run}/docker.pid"]
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        try:
            client = Docker(host, own=True)
            _wait_until_it_answers(client, process, Path(run) / "log")
            yield client
        finally:
            _stop(process, Path(run))


def _check_needs() -> None:
    if not sys.platform.startswith("linux"):
        raise CannotStartError("dockerd runs on Linux only; set DOCKER_HOST to use one that runs elsewhere")
    _find(*_PROGRAMS)
    if os.geteuid() != 0:
        raise CannotStartError("dockerd can only be started by root; set DOCKER_HOST to use one that runs")


def _find(*programs: str) -> None:
    missing = [name for name in programs if shutil.which(name) is None]
    if missing:
        raise CannotStartError(f"{', '.join(missing)} not found; `sh tests/system-needs.sh docker` installs Docker")


def _wait_until_it_answers(client: Docker, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + _START_SECONDS
    while client.run("version").returncode:
        if process.poll() is not None or time.monotonic() > deadline:
            said = log.read_text(errors="replace").strip().splitlines() or ["nothing"]
            state = "did not answer" if process.returncode is None else f"ended with status {process.returncode}"
            raise CannotStartError(f"dockerd {state}; its last word: {said[-1]}")
        time.sleep(0.1)


def _stop(process: subprocess.Popen[bytes], run: Path) -> None:
    """End the daemon and with it all of its containers."""
    process.terminate()
    try:
        process.wait(_STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        # Its containerd stays behind then.
        with suppress(OSError, ValueError):
            os.kill(int((run / "exec/containerd/containerd.pid").read_text()), 9)


def main() -> int:
    """Return 0 if Docker can be had, 1 with the reason on stderr if not."""
    try:
        with docker():
            return 0
    except CannotStartError as error:
        sys.stderr.write(f"{error}\n")
        return 1


if __name__ == "__main__":
    sys.exit(main())
