"""Runs a program of `queue_programs` on a broker and on the model, and compares their visible behaviour."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from typing import Any, cast

from pamqp import commands

from tests.conformance import queue_programs as programs
from tests.conformance.deaths import deaths, first_death
from tests.conformance.operator_policies import KINDS, PolicySet, only
from tests.conformance.queue_model import UNLIMITED, ClientsModel, Expected, Member, ModelChannel, SharedQueue
from tests.conformance.queue_programs import BOTH, COPY, MAIN, NAMES, ONE, TWO, WIDE, Definition, Program
from tests.support import content, methods
from tests.support.queue_model import Content
from tests.support.tables import Triple, plain
from tests.support.wire import BODY, HEADER, METHOD, Channel, Connection, Delivery, frame

#: Seconds that the broker may take for asynchronous work after a reply.
PATIENCE = 60.0


class Worker:
    """A channel that takes messages, and its model."""

    def __init__(self, connection: Connection) -> None:
        self.real = connection.channel()
        self.model = ModelChannel()
        self.consumers = 0


class QueueClient:
    """Runs one program."""

    def __init__(self, connection: Connection, policies: PolicySet, program: Program) -> None:
        self._connection = connection
        self._policies = policies
        self._program = program
        self._suffix = uuid.uuid4().hex[:12]
        self._exchanges = {each: self._name(each) for each in (BOTH, WIDE)}
        self._model = ClientsModel((self._exchanges[BOTH], (self._name(ONE), self._name(TWO))))
        self._control = connection.channel()
        self._publisher = connection.channel()
        self._publisher.confirm_select()
        self._confirmed: dict[int, bool] = {}
        self._published = 0
        self._labels = 0
        self._workers = [Worker(connection) for _ in range(programs.WORKERS)]
        self._queues: dict[str, SharedQueue] = {}

    def run(self) -> None:
        self._declare()
        try:
            for step in self._program.steps:
                STEPS[type(step)](self, step)
                self._settle_down()
            self._finish()
        finally:
            self._remove()

    # -- before and after ------------------------------------------------------------------------------------

    def _name(self, each: str) -> str:
        """The real name of a queue or exchange of the program; others, which do not exist, are left as they are."""
        return f"{each}.{self._suffix}" if each in (*NAMES, BOTH, WIDE) else each

    def _named(self, definition: Definition) -> Definition:
        """A definition with real names."""
        names = ("dead-letter-exchange", "dead-letter-routing-key")
        return {key: self._name(value) if key in names else value for key, value in definition.items()}

    def _declare(self) -> None:
        program = self._program
        for each in NAMES:
            given = self._named(program.arguments[each])
            kind = program.kind if each == MAIN else "classic"
            single_active = program.single_active and each == MAIN
            arguments = [_argument(key, value) for key, value in given.items()]
            if kind == "quorum":
                arguments.append(("x-queue-type", "S", "quorum"))
            elif program.lazy:
                arguments.append(("x-queue-mode", "S", "lazy"))
            if single_active:
                arguments.append(("x-single-active-consumer", "t", 1))
            self._control.queue_declare(self._name(each), durable=program.durable, arguments=arguments)
            queue = SharedQueue(self._name(each), kind, given, single_active)
            self._queues[each] = self._model.queues[queue.name] = queue
        for exchange, targets in ((BOTH, (ONE, TWO)), (WIDE, (MAIN, COPY))):
            self._control.exchange_declare(self._exchanges[exchange], "fanout")
            for each in targets:
                self._control.queue_bind(self._name(each), self._exchanges[exchange])

    def _finish(self) -> None:
        """Close the workers' channels, then empty all queues, or delete `main` and empty the others."""
        for number in range(len(self._workers)):
            self._close(programs.OnChannel(number, "close"))
            self._settle_down()
        if self._program.deleted:
            main = self._queues.pop(MAIN)
            assert self._control.queue_delete(main.name).message_count == len(main.ready)
            del self._model.queues[main.name]
        for each in self._queues:
            while self._get(programs.Get(0, each, True)):
                self._settle_down()

    def _remove(self) -> None:
        for kind in KINDS:
            self._policies.clear(self._name(MAIN), kind)
        channel = self._connection.channel()
        for each in NAMES:
            channel.queue_delete(self._name(each))
        for exchange in self._exchanges.values():
            channel.exchange_delete(exchange)
        for open_ in list(self._connection.channels.values()):
            if open_.closed is None:
                open_.close()

    # -- steps -----------------------------------------------------------------------------------------------

    def _publish(self, step: programs.Publish) -> None:
        if self._program.has_cycles:
            # What comes back would meet what is still on its way.
            for size in step.sizes:
                self._publish_at_once(step, (size,))
                self._settle_down()
        else:
            self._publish_at_once(step, step.sizes)

    def _publish_at_once(self, step: programs.Publish, sizes: tuple[int, ...]) -> None:
        exchange, key = (self._exchanges[WIDE], "wide") if step.wide else ("", self._name(MAIN))
        given: dict[str, Any] = {"delivery_mode": 2 if step.persistent else 1}
        if step.priority is not None:
            given["priority"] = step.priority
        if step.expired:
            given["expiration"] = "0"
        contents = []
        for size in sizes:
            self._labels += 1
            label = str(self._labels)
            expiration = 0 if step.expired else None
            contents.append(Content(label, _body(label, size), exchange, key, step.priority or 0, expiration))
        targets = [self._queues[each] for each in ((MAIN, COPY) if step.wide else (MAIN,))]
        taken = [self._model.publish(queue, contents) for queue in targets]
        channel = self._publisher if step.confirmed else self._control
        _send(channel, contents, given)
        if step.confirmed:
            first, self._published = self._published + 1, self._published + len(contents)
            found = [self._confirm(tag) for tag in range(first, self._published + 1)]
            assert found == [all(each) for each in zip(*taken, strict=True)]

    def _confirm(self, tag: int) -> bool:
        """Wait for the confirm of a publish; return whether it was an ack."""
        self._publisher.wait_until(lambda: self._is_confirmed(tag), f"confirm of {tag}", PATIENCE)
        return self._confirmed[tag]

    def _is_confirmed(self, tag: int) -> bool:
        confirms = self._publisher.confirms
        while confirms:
            confirm = confirms.popleft()
            for each in range(1 if confirm.multiple else confirm.delivery_tag, confirm.delivery_tag + 1):
                self._confirmed.setdefault(each, confirm.ack)
        return tag in self._confirmed

    def _get(self, step: programs.Get) -> bool:
        worker, queue = self._workers[step.worker], self._queues[step.queue]
        if queue.kind == "quorum" and (queue.single_active or step.worker):
            return False
        expected = self._model.take(worker.model, queue, step.no_ack)
        delivery = worker.real.get(queue.name, no_ack=step.no_ack)
        assert (delivery is None) == (expected is None), f"get from {step.queue}: {delivery}, expected {expected}"
        if delivery is not None and expected is not None:
            self._compare(queue, delivery, expected)
        return delivery is not None

    def _settle(self, step: programs.Settle) -> None:
        holding = [each for each in self._workers if each.model.outstanding]
        if not holding:
            return
        worker = holding[step.worker % len(holding)]
        tags = list(worker.model.outstanding)
        tag = tags[step.at % len(tags)]
        multiple = step.multiple and step.method != "reject"
        if step.method == "ack":
            worker.real.ack(tag, multiple=multiple)
        elif step.method == "nack":
            worker.real.nack(tag, multiple=multiple, requeue=step.requeue)
        else:
            worker.real.reject(tag, requeue=step.requeue)
        outcome = "acknowledge" if step.method == "ack" else "requeue" if step.requeue else "reject"
        self._model.settle_tags(worker.model, worker.model.up_to(tag) if multiple else [tag], outcome)

    def _consume(self, step: programs.Consume) -> None:
        worker, queue = self._workers[step.worker], self._queues[MAIN]
        if queue.kind == "quorum" and (step.worker == 0 or step.no_ack or queue.consumers):
            # Whom it serves next, and when it takes the room of an unacknowledged message back, is its own affair.
            return
        worker.consumers += 1
        name = f"{step.worker}-{worker.consumers}"
        worker.real.qos(step.prefetch)
        arguments: list[Triple] = [("x-priority", "I", step.priority)] if step.priority else []
        worker.real.consume(queue.name, name, no_ack=step.no_ack, arguments=arguments)
        room = UNLIMITED if step.no_ack else step.prefetch or UNLIMITED
        member = Member(room, step.no_ack, step.priority, channel=worker.model, name=name)
        self._model.consume(worker.model, queue, member)

    def _end(self, step: programs.OnChannel) -> None:
        worker = self._workers[step.worker]
        if step.what == "close" or (step.what == "cancel" and self._program.single_active):
            # The next consumer is not served before something else happens, when one in turn is cancelled.
            self._close(step)
        elif step.what == "recover":
            worker.real.recover()
            self._model.settle_tags(worker.model, list(worker.model.outstanding), "requeue")
        elif worker.model.members:
            name = next(iter(worker.model.members))
            worker.real.cancel(name)
            self._model.cancel(worker.model, name)

    def _close(self, step: programs.OnChannel) -> None:
        worker = self._workers[step.worker]
        if self._program.kind == "quorum" and step.worker == 0:
            # It has gets only. A quorum queue takes them back by their tags, but as texts: 10 before 9.
            self._end(programs.OnChannel(0, "recover"))
            self._settle_down()
        worker.real.close()
        self._model.close(worker.model)
        self._workers[step.worker] = Worker(self._connection)

    def _purge(self, step: programs.Purge) -> None:
        queue = self._queues[step.queue]
        expected = self._model.purge(queue)
        assert self._control.queue_purge(queue.name).message_count == expected

    def _set_policy(self, step: programs.SetPolicy) -> None:
        queue = self._queues[MAIN]
        definition = self._named(step.definition)
        if definition:
            self._policies.set(only(queue.name), definition, name=queue.name, kind=KINDS[step.operator])
        else:
            self._policies.clear(queue.name, KINDS[step.operator])
        if step.operator:
            queue.operator_policy = definition
        else:
            queue.policy = definition
        self._model.set_policies(queue)

    # -- what can be seen -------------------------------------------------------------------------------------

    def _settle_down(self) -> None:
        """Wait until the broker has completed a step, and compare counts and deliveries."""
        letters, self._model.letters = self._model.letters, 0
        for each, queue in self._queues.items():
            if each in (MAIN, COPY) or letters:
                self._wait_for_counts(queue)
        for _ in range(1 + min(letters, 2)):
            for each, queue in self._queues.items():
                if each == MAIN or letters:
                    self._wait_in_line(queue)
        for worker in self._workers:
            self._compare_deliveries(worker)

    def _wait_for_counts(self, queue: SharedQueue) -> None:
        # A quorum queue counts who holds messages, not who waits: unacknowledged gets, but no inactive consumers.
        expected = len(queue.ready), None if queue.kind == "quorum" else len(queue.consumers)
        deadline = time.monotonic() + PATIENCE
        while True:
            declared = self._control.queue_declare(queue.name, passive=True)
            found = declared.message_count, None if queue.kind == "quorum" else declared.consumer_count
            if found == expected:
                return
            assert time.monotonic() < deadline, f"{queue.name}: {found} messages and consumers, expected {expected}"
            time.sleep(0.002)

    def _wait_in_line(self, queue: SharedQueue) -> None:
        """Ask a queue for something that it does only after all that it was asked before, and that changes nothing."""
        if queue.kind == "quorum":
            return
        if not queue.ready:
            assert self._control.get(queue.name) is None, f"{queue.name} is not empty"
            return
        channel = self._connection.channel()
        text = f"PRECONDITION_FAILED - queue '{queue.name}' in vhost '{self._policies.vhost}' not empty"
        with channel.expect_channel_close(406, text):
            channel.queue_delete(queue.name, if_empty=True)

    def _compare_deliveries(self, worker: Worker) -> None:
        """Compare what consumers have been given since the last time, and the order in which they were."""
        expected = worker.model.expected
        worker.real.wait_until(
            lambda: len(worker.real.pending) >= len(expected), f"{len(expected)} deliveries", PATIENCE
        )
        if expected:
            worker.real.sync()
        assert [each.tag for each in expected] == [each.delivery_tag for each in worker.real.pending]
        for delivery, each in zip(worker.real.pending, expected, strict=True):
            self._compare(self._queues[MAIN], delivery, each)
        worker.real.pending.clear()
        expected.clear()

    def _compare(self, queue: SharedQueue, delivery: Delivery, expected: Expected) -> None:
        """Compare all fields of a delivery."""
        wanted = expected.content
        properties = delivery.properties
        assert (properties["message_id"], delivery.body) == (wanted.label, wanted.body.encode())
        assert (delivery.delivery_tag, delivery.consumer_tag) == (expected.tag, expected.consumer)
        assert (delivery.message_count, delivery.redelivered) == (expected.left, expected.redelivered)
        assert (delivery.exchange, delivery.routing_key) == (wanted.exchange, wanted.key)
        assert properties.get("priority", 0) == wanted.priority
        assert properties.get("expiration") == (None if wanted.expiration is None else str(wanted.expiration))
        headers = plain(delivery.headers)
        found = [] if "x-death" not in headers else deaths(delivery)
        assert [_death(each) for each in found] == [
            (each.queue, each.reason, each.count, each.exchange, [each.key]) for each in wanted.deaths
        ]
        if wanted.first_death is not None:
            names = ("queue", "reason", "exchange")
            assert first_death(delivery) == {
                f"x-first-death-{name}": value for name, value in zip(names, wanted.first_death, strict=True)
            }
        shown = queue.kind == "quorum" and (expected.consumer is None or expected.returns > 0)
        assert headers.get("x-delivery-count") == (expected.returns if shown else None)


def _argument(key: str, value: Any) -> Triple:
    return (f"x-{key}", "S", value) if isinstance(value, str) else (f"x-{key}", "l", value)


def _body(label: str, size: int) -> str:
    return (f"{label}." * size)[:size]


def _send(channel: Channel, contents: list[Content], properties: dict[str, Any]) -> None:
    """Publish messages in one write."""
    out = []
    for each in contents:
        route = {"exchange": each.exchange, "routing_key": each.key}
        encoded = content.properties(**properties, message_id=each.label)
        out.append(frame(METHOD, channel.number, methods.payload(commands.Basic.Publish, **route)))
        out.append(frame(HEADER, channel.number, content.header(len(each.body), encoded)))
        if each.body:
            out.append(frame(BODY, channel.number, each.body.encode()))
    channel.connection.wire.send_bytes(b"".join(out))


def _death(entry: dict[str, Any]) -> tuple[str, str, int, str, list[str]]:
    return entry["queue"], entry["reason"], entry["count"], entry["exchange"], entry["routing-keys"]


STEPS = cast(
    "dict[type[programs.Step], Callable[[QueueClient, Any], object]]",
    {
        programs.Publish: QueueClient._publish,
        programs.Get: QueueClient._get,
        programs.Settle: QueueClient._settle,
        programs.Consume: QueueClient._consume,
        programs.OnChannel: QueueClient._end,
        programs.Purge: QueueClient._purge,
        programs.SetPolicy: QueueClient._set_policy,
    },
)
