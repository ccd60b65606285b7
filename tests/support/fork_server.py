"""Starts brokers out of a process that has imported all modules: the imports are most of what a start costs.

Each broker is a process of its own that runs the program's `main()` with arguments of its own, as `python -m leveret`
does. Run as a program, this module is the server that forks them. It ends with the process that has started it.
"""

from __future__ import annotations

import atexit
import gc
import json
import os
import selectors
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

from leveret.broker.__main__ import main

_ROOT: Final = Path(__file__).parents[2]
#: Of a request; the environment is part of it.
_REQUEST_BYTES: Final = 1 << 20
#: Open files that a broker is given: for standard output, for the log, and to report its process id and its end.
_FILES: Final = 3


class ForkedBroker:
    """A broker that the server has forked; has what `subprocess.Popen` has of these names."""

    def __init__(self, report: socket.socket) -> None:
        self._report = report
        self._returncode: int | None = None
        self.pid = self._receive()

    def _receive(self) -> int:
        text = self._report.recv(64)
        if not text:
            raise RuntimeError("the process that forks the brokers has ended")
        return int(text)

    def poll(self) -> int | None:
        """Return the exit status, minus the signal that killed it, or None if it runs."""
        try:
            return self.wait(0)
        except subprocess.TimeoutExpired:
            return None

    def wait(self, timeout: float | None = None) -> int:
        """Return the exit status once it has ended."""
        if self._returncode is None:
            # A timeout of 0 asks, and does not wait.
            self._report.settimeout(timeout)
            try:
                self._returncode = self._receive()
            except (BlockingIOError, TimeoutError):
                raise subprocess.TimeoutExpired("leveret", timeout or 0) from None
            self._report.close()
        return self._returncode

    def send_signal(self, number: int) -> None:
        """Send it a signal, unless it has ended."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        """End it with SIGKILL, unless it has ended."""
        self.send_signal(signal.SIGKILL)


class ForkServer:
    """Starts the process that forks brokers."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._variables = _variables()

    def can_fork(self) -> bool:
        """Return whether a new interpreter would import the same: the variables that it reads have not changed."""
        return _variables() == self._variables

    def fork(self, arguments: list[str], output: int, log: int) -> ForkedBroker:
        """Start a broker."""
        if self._process is None:
            self._start()
        report, theirs = socket.socketpair(type=socket.SOCK_SEQPACKET)
        with theirs:
            request = json.dumps([arguments, dict(os.environ)]).encode()
            socket.send_fds(self._requests, [request], [output, log, theirs.fileno()])
        return ForkedBroker(report)

    def _start(self) -> None:
        self._requests, theirs = socket.socketpair(type=socket.SOCK_SEQPACKET)
        self._requests.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _REQUEST_BYTES)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", __name__, str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                cwd=_ROOT,
                pass_fds=[theirs.fileno()],
            )
        atexit.register(self._end)

    def _end(self) -> None:
        self._requests.close()
        assert self._process is not None
        self._process.wait()


def _variables() -> dict[str, str]:
    """What a Python reads when it starts, and the package when it is imported."""
    return {name: value for name, value in os.environ.items() if name.startswith(("PYTHON", "LEVERET_", "COVERAGE_"))}


class _Server:
    """Forks brokers as asked, and reports their ends."""

    def __init__(self, requests: socket.socket) -> None:
        self._requests = requests
        self._reports: dict[int, socket.socket] = {}
        self._woken, self._waking = socket.socketpair()
        self._waking.setblocking(False)

    def serve(self) -> list[str] | None:
        """Return the command line in each broker, and None in the server when nobody asks any more."""
        signal.signal(signal.SIGCHLD, lambda *_: None)
        # Ctrl-C is for the tests. A broker sets its own handlers.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.set_wakeup_fd(self._waking.fileno())
        with selectors.DefaultSelector() as selector:
            for each in (self._requests, self._woken):
                selector.register(each, selectors.EVENT_READ)
            while True:
                for key, _ in selector.select():
                    if key.fileobj is self._woken:
                        self._woken.recv(4096)
                        self._report_ends()
                        continue
                    request, files, _, _ = socket.recv_fds(self._requests, _REQUEST_BYTES, _FILES)
                    if not request:
                        return None
                    arguments = self._fork(json.loads(request), files)
                    if arguments is not None:
                        return arguments

    def _fork(self, request: list[Any], files: list[int]) -> list[str] | None:
        """Return the command line in the broker, and None in the server."""
        output, log, report = files
        pid = os.fork()
        if pid == 0:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            for number, file in ((1, output), (2, log)):
                os.dup2(file, number)
            arguments, environment = request
            os.environ.clear()
            os.environ.update(environment)
            return [str(each) for each in arguments]
        os.close(output)
        os.close(log)
        self._reports[pid] = socket.socket(fileno=report)
        self._say(pid, pid)
        return None

    def _report_ends(self) -> None:
        for pid in list(self._reports):
            ended, status = os.waitpid(pid, os.WNOHANG)
            if ended:
                self._say(pid, os.waitstatus_to_exitcode(status))
                self._reports.pop(pid).close()

    def _say(self, pid: int, number: int) -> None:
        try:
            self._reports[pid].send(str(number).encode())
        except BrokenPipeError:
            # The test that started it is over.
            pass


def _import_all() -> None:
    """Import what a broker imports when it starts."""
    import leveret.broker.management.http.applications
    import leveret.broker.management.http.controller
    import leveret.broker.management.http.server
    import leveret.broker.program  # noqa: F401 - is in memory when a broker wants it


def _run_server() -> None:
    _import_all()
    # Not to be copied into each broker because its collector has looked at it.
    gc.freeze()
    server = _Server(socket.socket(fileno=int(sys.argv[1])))
    arguments = server.serve()
    if arguments is None:
        return
    # What the server has open is not the broker's.
    del server
    os.closerange(3, os.sysconf("SC_OPEN_MAX"))
    sys.argv = ["leveret", *arguments]
    main()


if __name__ == "__main__":
    _run_server()
