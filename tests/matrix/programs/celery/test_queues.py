"""Queues of a worker: priorities, routing, broadcasts, dead letters, and pools that grow with their queue."""

from __future__ import annotations

from pathlib import Path

from kombu.entity import Exchange, Queue

from tests.matrix.programs.celery.queues import QUEUES
from tests.matrix.programs.celery.worker import bench
from tests.matrix.programs.vhosts import Vhost


def test_priorities(vhost: Vhost, directory: Path) -> None:
    settings = {
        "task_default_queue": "priorities",
        "task_queue_max_priority": 10,
        "worker_prefetch_multiplier": 1,
        "task_acks_late": True,
    }
    with bench(vhost.url, directory, settings) as made, made.worker():
        gate = made.gate("priorities")
        made.send("hold", "first", str(gate))
        made.notes.wait_for("first")
        for text, priority in (("low", 1), ("middle", 5), ("high", 9)):
            for number in range(3):
                made.send("note", f"priority {text} {number}", priority=priority)
        gate.touch()
        made.notes.wait_for("priority", 9)
        expected = [f"priority {text} {number}" for text in ("high", "middle", "low") for number in range(3)]
        assert made.notes.texts("priority") == expected


def test_routing_by_topic(vhost: Vhost, directory: Path) -> None:
    settings = {"task_routes": {"note": {"exchange": "news", "exchange_type": "topic"}}}
    with bench(vhost.url, directory, settings) as made:
        news = Exchange("news", "topic")
        queues = [Queue("sports", news, "sports.#"), Queue("all", news, "#")]
        with made.app.connection_for_write() as connection:
            for queue in queues:
                queue(connection.default_channel).declare()
        made.send("note", "about sports", routing_key="sports.ball")
        made.send("note", "about money", routing_key="money")
        with made.worker("--queues=sports", name="sports"):
            made.notes.wait_for("about sports")
        assert made.notes.texts() == ["about sports"]
        with made.worker("--queues=all", name="all"):
            made.notes.wait_for("about", 3)
        assert sorted(made.notes.texts()) == ["about money", "about sports", "about sports"]


def test_broadcast(vhost: Vhost, directory: Path) -> None:
    """A task for all workers."""
    with (
        bench(vhost.url, directory) as made,
        made.worker("--queues=everybody", name="one", module="tasks_in_queues"),
        made.worker("--queues=everybody", name="two", module="tasks_in_queues"),
    ):
        made.app.conf.task_queues = QUEUES
        made.send("note", "heard", queue="everybody")
        made.notes.wait_for("heard", 2)


def test_reject_dead_letters(vhost: Vhost, directory: Path) -> None:
    with (
        bench(vhost.url, directory) as made,
        made.worker("--queues=dead_lettering", module="tasks_in_queues"),
    ):
        with made.app.connection_for_write() as connection:
            Queue("dead_letters")(connection.default_channel).declare()
        made.app.conf.task_queues = QUEUES
        made.send("note_late_and_reject", "rejected", queue="dead_lettering")
        headers = vhost.take("dead_letters")["properties"]["headers"]
        assert headers["x-first-death-reason"] == "rejected"
        assert headers["task"] == "note_late_and_reject"


def test_autoscale(vhost: Vhost, directory: Path) -> None:
    """The pool grows with its queue; where it may grow more, so does the prefetch of the consumer that is there."""
    settings = {"task_default_queue": "autoscaled", "worker_prefetch_multiplier": 1}
    with bench(vhost.url, directory, settings) as made, made.worker("--autoscale=4,1"):
        gate = made.gate("autoscale")
        results = [made.send("hold_late", f"held {number}", str(gate)) for number in range(6)]
        made.notes.wait_for("held", 4)
        made.app.control.autoscale(6, 1)
        made.notes.wait_for("held", 6)
        gate.touch()
        assert [each.get(timeout=60) for each in results] == [f"held {number}" for number in range(6)]


def test_prefetch_grows_for_tasks_to_come(vhost: Vhost, directory: Path) -> None:
    """A worker takes any number of tasks that are not due yet: it raises its prefetch for each."""
    with bench(vhost.url, directory, {"task_default_queue": "many"}) as made, made.worker(name="many"):
        for number in range(100):
            made.send("note", f"to come {number}", countdown=3600)
        made.send("note", "due")
        made.notes.wait_for("due")
        scheduled = made.app.control.inspect(["many@matrix"], timeout=30).scheduled()
        assert len(scheduled["many@matrix"]) == 100
