"""Runs an object in a separate process and calls its methods."""

from __future__ import annotations

from collections.abc import Callable
from multiprocessing.connection import Connection as Pipe
from typing import Any, Final

from tests.bench.in_flight import PROCESSES, STALL_SECONDS, BenchError
from tests.bench.sockets import allow_many

_JOIN_SECONDS: Final = 5.0

PROCESSES.set_forkserver_preload(["tests.bench.consumer", "tests.bench.publisher", "tests.bench.round_trips"])


class Worker:
    """An object that lives in another process; its methods are called by name, one at a time."""

    def __init__(self, make: Callable[..., object], *arguments: object) -> None:
        self._pipe, theirs = PROCESSES.Pipe()
        self._name = make.__name__
        self._process = PROCESSES.Process(target=_serve, args=(theirs, make, arguments), daemon=True)
        self._process.start()
        theirs.close()

    def begin(self, method: str, *arguments: object) -> None:
        """Call a method, without waiting for its `result`."""
        self._pipe.send((method, arguments))

    def result(self) -> Any:
        """Wait until the object is made, at first, and then until the method that was begun is done."""
        try:
            done, value = self._pipe.recv()
        except EOFError:
            raise BenchError(f"the process of the {self._name.lower()} ended") from None
        if not done:
            raise BenchError(f"{self._name.lower()}: {value}")
        return value

    def call(self, method: str, *arguments: object) -> Any:
        """Call a method and return its result."""
        self.begin(method, *arguments)
        return self.result()

    def close(self) -> None:
        """End the process, at once where it is still busy after 5 s."""
        self._pipe.close()
        self._process.join(_JOIN_SECONDS)
        if self._process.is_alive():
            self._process.kill()
            self._process.join(STALL_SECONDS)
        self._process.close()


def _serve(pipe: Pipe, make: Callable[..., object], arguments: tuple[object, ...]) -> None:
    """Make the object and do what comes through the pipe, until the other side closes it or a call fails."""
    try:
        allow_many()
        served = make(*arguments)
        pipe.send((True, None))
        while True:
            method, given = pipe.recv()
            pipe.send((True, getattr(served, method)(*given)))
    except (EOFError, BrokenPipeError, KeyboardInterrupt):
        return
    # What failed matters to the benchmark, in whatever class it came.
    except Exception as error:  # noqa: BLE001
        pipe.send((False, f"{type(error).__name__}: {error}"))
