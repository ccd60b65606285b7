"""Clients at work in threads, until their broker ends: a round of the tests that end it again and again."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final, Protocol

from tests.support.leveret_process import LeveretProcess
from tests.support.wire import ChannelClosed, ConnectionClosed, ConnectionDropped

_PATIENCE: Final = 180.0
#: What clients see of a broker that refuses them something, or is stopped.
_CLOSES: Final = (ChannelClosed, ConnectionClosed)


class Worker(Protocol):
    """A client, connected."""

    def work(self) -> None:
        """Do one thing."""

    def disconnect(self) -> None:
        """End the connection without connection.close."""


class Round:
    """All clients at work in threads."""

    def __init__(self, clients: Sequence[Worker], may_refuse: bool = False) -> None:
        self._clients = clients
        self._may_refuse = may_refuse
        self._actions = threading.Semaphore(0)
        self._is_ending = threading.Event()
        self._is_stopped = False
        self._failures: list[BaseException] = []
        self._threads = [threading.Thread(target=self._work, args=[client], daemon=True) for client in clients]
        for thread in self._threads:
            thread.start()

    def wait(self, actions: int, seconds: float = _PATIENCE) -> None:
        """Wait until the clients have done this many things, the time is over, or a client has failed."""
        deadline = time.monotonic() + seconds
        for _ in range(actions):
            left = deadline - time.monotonic()
            if not self._actions.acquire(timeout=max(0.0, left)) or self._failures:
                break

    def wait_until(self, condition: Callable[[], object]) -> None:
        """Wait until a condition is fulfilled, or a client has failed, or 180 s are over."""
        deadline = time.monotonic() + _PATIENCE
        while not (condition() or self._failures) and time.monotonic() < deadline:
            self._actions.acquire(timeout=0.1)

    def end(self, end: Callable[[], object], is_stop: bool = False) -> None:
        """End the broker by a function, and then the clients."""
        self._is_stopped = is_stop
        self._is_ending.set()
        try:
            end()
        finally:
            for thread in self._threads:
                thread.join(_PATIENCE)
            for client in self._clients:
                client.disconnect()
        for failure in self._failures:
            raise failure
        assert not any(thread.is_alive() for thread in self._threads), "a client waits for a broker that has ended"

    def _work(self, client: Worker) -> None:
        try:
            while not self._is_ending.is_set():
                client.work()
                self._actions.release()
        except _CLOSES as error:
            if not (self._may_refuse or self._is_stopped):
                self._failures.append(error)
        except (ConnectionDropped, OSError) as error:
            # It must not leave a client without an answer in any case.
            is_expected = self._may_refuse and not isinstance(error, TimeoutError)
            if not (self._is_ending.is_set() or is_expected):
                self._failures.append(error)
        except BaseException as error:  # noqa: BLE001 - raised by end()
            self._failures.append(error)
        finally:
            # One that fails early must not be waited for.
            self._actions.release()


def kill_while_starting(process: LeveretProcess, seconds: float) -> None:
    """Start the broker, and kill it after some time."""

    timer = threading.Timer(seconds, process.kill_now)
    timer.start()
    with suppress(RuntimeError):
        process.start()
    timer.join()
    process.kill()
