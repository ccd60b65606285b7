"""nameko: calls, events of all kinds, messages, and a killed program."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from nameko.exceptions import RemoteError, UnknownService
from nameko.standalone.events import event_dispatcher
from nameko.standalone.rpc import ClusterRpcProxy

from tests.integration.waiting import wait_until
from tests.matrix.programs.notes import Notes
from tests.matrix.programs.processes import Program
from tests.matrix.programs.vhosts import Vhost

_numbers = itertools.count(1)


class Workshop:
    """A virtual host and the notes that services leave."""

    def __init__(self, vhost: Vhost, directory: Path) -> None:
        self._vhost, self._directory = vhost, directory
        self.notes = Notes(directory / f"notes-{next(_numbers)}")
        self.config = {"AMQP_URI": vhost.url}

    def gate(self) -> Path:
        """A file that does not exist yet."""
        return self._directory / f"gate-{next(_numbers)}"

    @contextmanager
    def program(self) -> Iterator[Program]:
        """All services in one process."""
        command = ["nameko", "run", "--broker", self._vhost.url, "tests.matrix.programs.nameko.services"]
        log = self._directory / f"services-{next(_numbers)}.log"
        with Program(command, {"MATRIX_NOTES": str(self.notes.path)}, log, ready="Connected to") as program:
            yield program

    def wait_for_consumers(self, queue: str, count: int = 1) -> None:
        """Wait until a queue has this many consumers."""
        wait_until(lambda: (self._vhost.queue(queue) or {}).get("consumers") == count, f"consumers of {queue}")


@pytest.fixture(scope="module")
def running(vhost: Vhost, directory: Path) -> Iterator[Workshop]:
    workshop = Workshop(vhost, directory)
    with workshop.program():
        for queue in (
            "rpc-numbers",
            "rpc-front",
            "orders",
            "evt-front-ordered--back.note_of_pool",
            "evt-front-ordered",
        ):
            workshop.wait_for_consumers(queue)
        yield workshop


def test_call(running: Workshop) -> None:
    with ClusterRpcProxy(running.config, timeout=60) as services:
        assert services.numbers.add(1, 2) == 3


def test_calls_on_their_way_together(running: Workshop) -> None:
    with ClusterRpcProxy(running.config, timeout=60) as services:
        calls = [services.numbers.add.call_async(number, 1) for number in range(50)]
        assert [call.result() for call in calls] == list(range(1, 51))


def test_service_that_calls_another(running: Workshop) -> None:
    with ClusterRpcProxy(running.config, timeout=60) as services:
        assert services.front.total(list(range(20))) == 2 * sum(range(20))


def test_error_of_a_call(running: Workshop) -> None:
    with ClusterRpcProxy(running.config, timeout=60) as services, pytest.raises(RemoteError, match="it was to fail"):
        services.numbers.fail()


def test_unknown_service(running: Workshop) -> None:
    """The call comes back as unroutable."""
    with ClusterRpcProxy(running.config, timeout=60) as services, pytest.raises(UnknownService):
        services.nobody.add(1, 2)


@pytest.mark.parametrize("kind", ["pool", "singleton", "broadcast", "message"])
def test_events(running: Workshop, kind: str) -> None:
    with ClusterRpcProxy(running.config, timeout=60) as services:
        services.front.order(f"of {kind}")
    running.notes.wait_for(f"{kind} of {kind}")


def test_event_from_outside(running: Workshop) -> None:
    event_dispatcher(running.config)("front", "ordered", "from outside")
    running.notes.wait_for("pool from outside")
    running.notes.wait_for("broadcast from outside")


def test_services_connect_again(running: Workshop, vhost: Vhost) -> None:
    wait_until(lambda: vhost.close_consumers("rpc-numbers"), "there is a consumer")

    def called() -> bool:
        try:
            with ClusterRpcProxy(running.config, timeout=60) as services:
                return bool(services.numbers.add(2, 2) == 4)
        except UnknownService:
            return False

    wait_until(called, "the service answers again")


def test_killed_program(running: Workshop, vhost: Vhost, directory: Path) -> None:
    """A call that a killed program was working on is done by another one."""
    other = Workshop(vhost, directory)
    gate = other.gate()
    with ClusterRpcProxy(other.config, timeout=60) as services:
        with other.program() as doomed:
            other.wait_for_consumers("rpc-numbers", 2)
            # In turns: one of two goes to each program.
            calls = [services.numbers.hold.call_async(str(gate)) for _ in range(2)]
            other.notes.wait_for(str(gate))
            running.notes.wait_for(str(gate))
            doomed.kill()
        gate.touch()
        assert [call.result() for call in calls] == ["held", "held"]
    assert len(running.notes.of(str(gate))) == 2
