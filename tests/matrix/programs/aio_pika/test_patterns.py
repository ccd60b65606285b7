"""aio-pika's patterns: remote procedure calls, and a master with workers."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import aio_pika
import pytest
from aio_pika.abc import AbstractRobustChannel
from aio_pika.exceptions import MessageProcessError
from aio_pika.patterns import RPC, JsonMaster, Master, NackMessage, RejectMessage

from tests.integration.waiting import wait_until
from tests.matrix.programs.vhosts import Vhost

T = TypeVar("T")
_PATIENCE = 60


def _run(vhost: Vhost, *acts: Callable[[AbstractRobustChannel], Awaitable[T]]) -> list[T]:
    """Call coroutine functions together, each with a channel of a connection of its own."""

    async def one(act: Callable[[AbstractRobustChannel], Awaitable[T]]) -> T:
        async with await aio_pika.connect_robust(vhost.url) as connection, connection.channel() as channel:
            return await act(channel)

    async def all_of_them() -> list[T]:
        async with asyncio.timeout(_PATIENCE):
            return await asyncio.gather(*map(one, acts))

    return asyncio.run(all_of_them())


@pytest.mark.parametrize("exchange", ["", "calls"], ids=["default_exchange", "own_exchange"])
def test_rpc(vhost: Vhost, exchange: str) -> None:
    ready, done = asyncio.Event(), asyncio.Event()

    async def serve(channel: AbstractRobustChannel) -> Any:
        rpc = await RPC.create(channel, exchange=exchange)

        async def multiply(*, x: int, y: int) -> int:
            return x * y

        await rpc.register("multiply", multiply, auto_delete=True)
        ready.set()
        await done.wait()
        await rpc.unregister(multiply)

    async def call(channel: AbstractRobustChannel) -> Any:
        rpc = await RPC.create(channel, exchange=exchange)
        await ready.wait()
        answers = await asyncio.gather(*(rpc.proxy.multiply(x=number, y=3) for number in range(100)))
        done.set()
        return answers

    assert _run(vhost, serve, call)[1] == [3 * number for number in range(100)]


def test_rpc_error(vhost: Vhost) -> None:
    async def call(channel: AbstractRobustChannel) -> str:
        rpc = await RPC.create(channel)

        async def fail() -> None:
            raise ValueError("it was to fail")

        await rpc.register("fail", fail, auto_delete=True)
        with pytest.raises(ValueError, match="it was to fail") as raised:
            await rpc.call("fail")
        return str(raised.value)

    assert _run(vhost, call) == ["it was to fail"]


def test_rpc_of_an_unknown_method(vhost: Vhost) -> None:
    """The call comes back as unroutable."""

    async def call(channel: AbstractRobustChannel) -> str:
        rpc = await RPC.create(channel)
        with pytest.raises(MessageProcessError, match="returned") as raised:
            await rpc.call("nobody_knows_it")
        return str(raised.value)

    assert _run(vhost, call)


def test_rpc_that_expires(vhost: Vhost) -> None:
    """Nobody takes the call in time: it comes back as a dead letter, through a headers exchange."""

    async def call(channel: AbstractRobustChannel) -> bool:
        rpc = await RPC.create(channel)
        await channel.declare_queue("asleep", auto_delete=True, arguments={"x-dead-letter-exchange": RPC.DLX_NAME})
        with pytest.raises(asyncio.TimeoutError):
            await rpc.call("asleep", expiration=1)
        return True

    assert _run(vhost, call) == [True]


@pytest.mark.parametrize("kind", [Master, JsonMaster])
def test_master_and_workers(vhost: Vhost, kind: type[Master]) -> None:
    async def master_and_workers(channel: AbstractRobustChannel) -> Any:
        done: list[int] = []
        all_done = asyncio.Event()

        async def work(*, number: int) -> None:
            done.append(number)
            if len(done) == 200:
                all_done.set()

        await channel.set_qos(prefetch_count=1)
        master = kind(channel)
        workers = [await master.create_worker(f"work.{kind.__name__}", work, auto_delete=True) for _ in range(4)]
        tasks = (master.create_task(f"work.{kind.__name__}", {"number": number}) for number in range(200))
        await asyncio.gather(*tasks)
        await all_done.wait()
        await asyncio.gather(*(worker.close() for worker in workers))
        return sorted(done)

    assert _run(vhost, master_and_workers) == [list(range(200))]


@pytest.mark.parametrize("error", [RejectMessage, NackMessage])
def test_task_is_given_back(vhost: Vhost, error: Any) -> None:
    async def work_until_it_succeeds(channel: AbstractRobustChannel) -> Any:
        attempts: list[int] = []
        succeeded = asyncio.Event()

        async def work(*, number: int) -> None:
            attempts.append(number)
            if len(attempts) < 3:
                raise error(requeue=True)
            succeeded.set()

        master = Master(channel)
        worker = await master.create_worker(f"again.{error.__name__}", work, auto_delete=True)
        await master.create_task(f"again.{error.__name__}", {"number": 7})
        await succeeded.wait()
        await worker.close()
        return attempts

    assert _run(vhost, work_until_it_succeeds) == [[7, 7, 7]]


def test_task_of_a_closed_worker_goes_to_the_next(vhost: Vhost) -> None:
    """A worker's connection ends while it works; another one gets the task."""
    taken, given_up = asyncio.Event(), asyncio.Event()

    async def give_up(channel: AbstractRobustChannel) -> Any:
        queue = await channel.declare_queue("handed_on", durable=True)
        await Master(channel).create_task("handed_on", {"number": 1})

        async def take(message: aio_pika.abc.AbstractIncomingMessage) -> None:
            taken.set()

        await queue.consume(take)
        await taken.wait()
        await channel.close()
        given_up.set()

    async def take_over(channel: AbstractRobustChannel) -> Any:
        await given_up.wait()
        queue = await channel.declare_queue("handed_on", durable=True)
        message = await queue.get(timeout=_PATIENCE)
        await message.ack()
        return message.redelivered

    assert _run(vhost, give_up, take_over)[1] is True


def test_robust_connection_comes_back(vhost: Vhost) -> None:
    """After an administrator has closed its connection, a consumer goes on with its queue, exchange and binding."""

    async def consume(channel: AbstractRobustChannel) -> Any:
        received: asyncio.Queue[bytes] = asyncio.Queue()
        exchange = await channel.declare_exchange("robust", "topic", auto_delete=True)
        queue = await channel.declare_queue(exclusive=True)
        await queue.bind(exchange, "a.#")

        async def take(message: aio_pika.abc.AbstractIncomingMessage) -> None:
            await message.ack()
            await received.put(message.body)

        await queue.consume(take)
        await exchange.publish(aio_pika.Message(b"before"), "a.b")
        assert await received.get() == b"before"
        name = queue.name
        await asyncio.to_thread(wait_until, lambda: vhost.close_consumers(name), "there is a consumer")
        # What is sent before the binding is there again is lost.
        while received.empty():
            try:
                await exchange.publish(aio_pika.Message(b"after"), "a.b", timeout=1)
            except (aio_pika.exceptions.AMQPError, TimeoutError, ConnectionError, RuntimeError):
                pass
            await asyncio.sleep(0.1)
        return await received.get()

    assert _run(vhost, consume) == [b"after"]
