"""aio-pika: opening, declaring, consuming, acknowledging, transactions."""

from __future__ import annotations

import asyncio

import aio_pika
import pytest
import pytest_asyncio
from aio_pika.abc import (
    AbstractChannel,
    AbstractConnection,
    AbstractIncomingMessage,
    AbstractQueue,
)
from aio_pika.exceptions import (
    AuthenticationError,
    ChannelNotFoundEntity,
    ChannelPreconditionFailed,
    DeliveryError,
    InvalidFrameError,
    ProbableAuthenticationError,
)
from aio_pika.patterns import RPC
from aiormq.exceptions import ChannelAccessRefused, ChannelLockedResource

from tests.integration.fixtures import Names
from tests.integration.waiting import PATIENCE
from tests.support.wire import parse_url


@pytest_asyncio.fixture
async def channel(aio_connection: AbstractConnection) -> AbstractChannel:
    """An open channel of `aio_connection`, with confirms, where a return raises."""
    return await aio_connection.channel(on_return_raises=True)


@pytest_asyncio.fixture
async def queue(channel: AbstractChannel) -> AbstractQueue:
    """A server-named queue of `aio_connection`."""
    return await channel.declare_queue(exclusive=True)


async def _publish(channel: AbstractChannel, queue: str, *texts: str) -> None:
    for text in texts:
        await channel.default_exchange.publish(aio_pika.Message(text.encode()), queue)


async def _drain(queue: AbstractQueue) -> list[str]:
    texts = []
    while (message := await queue.get(no_ack=True, fail=False)) is not None:
        texts.append(message.body.decode())
    return texts


# --- opening ----------------------------------------------------------------------------------------------


async def test_wrong_password(url: str) -> None:
    address = parse_url(url)
    with pytest.raises((AuthenticationError, ProbableAuthenticationError), match="ACCESS_REFUSED"):
        await aio_pika.connect(host=address.host, port=address.port, login=address.user, password="wrong")


async def test_missing_vhost(url: str) -> None:
    address = parse_url(url)
    # aiormq does not look into the aio_connection.close that it did not expect here.
    with pytest.raises(InvalidFrameError, match=r"Connection\.Close"):
        await aio_pika.connect(
            host=address.host,
            port=address.port,
            login=address.user,
            password=address.password,
            virtualhost="nowhere",
        )


async def test_new_secret(aio_connection: AbstractConnection, queue: AbstractQueue) -> None:
    await aio_connection.update_secret("guest", reason="a test")
    await _publish(await aio_connection.channel(), queue.name, "m")
    assert await _drain(queue) == ["m"]


# --- declaring --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", list(aio_pika.ExchangeType)[:4])
async def test_exchanges(
    channel: AbstractChannel, queue: AbstractQueue, name: Names, kind: aio_pika.ExchangeType
) -> None:
    exchange = await channel.declare_exchange(name("exchange"), kind)
    await queue.bind(exchange, "key", arguments={"colour": "red"})
    message = aio_pika.Message(b"m", headers={"colour": "red"})
    await exchange.publish(message, "key")
    assert await _drain(queue) == ["m"]
    await queue.unbind(exchange, "key", arguments={"colour": "red"})
    with pytest.raises(DeliveryError):
        await exchange.publish(message, "key")
    await exchange.delete()
    with pytest.raises(ChannelNotFoundEntity):
        await channel.get_exchange(exchange.name)


async def test_exchange_to_exchange(channel: AbstractChannel, queue: AbstractQueue, name: Names) -> None:
    source = await channel.declare_exchange(name("source"), aio_pika.ExchangeType.TOPIC, auto_delete=True)
    target = await channel.declare_exchange(name("target"), aio_pika.ExchangeType.FANOUT)
    await target.bind(source, "logs.#")
    await queue.bind(target)
    await source.publish(aio_pika.Message(b"m"), "logs.kernel.oops")
    assert await _drain(queue) == ["m"]
    await target.unbind(source, "logs.#")
    with pytest.raises(ChannelNotFoundEntity):
        await channel.get_exchange(source.name)


async def test_queues(channel: AbstractChannel, name: Names) -> None:
    queue = await channel.declare_queue(name("queue"), durable=True)
    assert (queue.declaration_result.message_count, queue.declaration_result.consumer_count) == (0, 0)
    await _publish(channel, queue.name, "a", "b")
    found = await channel.get_queue(queue.name)
    assert found.declaration_result.message_count == 2
    assert (await queue.purge()).message_count == 2
    assert (await queue.delete()).message_count == 0
    with pytest.raises(ChannelNotFoundEntity):
        await channel.get_queue(queue.name)


async def test_server_named_queues(channel: AbstractChannel) -> None:
    first = await channel.declare_queue(exclusive=True)
    second = await channel.declare_queue(exclusive=True)
    assert first.name.startswith("amq.gen-")
    assert first.name != second.name


async def test_different_redeclaration(aio_connection: AbstractConnection, name: Names) -> None:
    channel = await aio_connection.channel()
    queue = await channel.declare_queue(name("queue"))
    with pytest.raises(ChannelPreconditionFailed, match="inequivalent arg 'durable' for queue"):
        await channel.declare_queue(queue.name, durable=True)


async def test_exclusive_queue(url: str, queue: AbstractQueue) -> None:
    async with await aio_pika.connect(url) as other:
        with pytest.raises(ChannelLockedResource):
            await (await other.channel()).get_queue(queue.name)
        with pytest.raises(ChannelLockedResource):
            await (await other.channel()).queue_delete(queue.name)


# --- consuming --------------------------------------------------------------------------------------------


async def test_iterator_with_prefetch(channel: AbstractChannel, queue: AbstractQueue) -> None:
    await channel.set_qos(prefetch_count=3)
    await _publish(channel, queue.name, *map(str, range(20)))
    texts = []
    async with asyncio.timeout(PATIENCE), queue.iterator() as messages:
        async for message in messages:
            async with message.process():
                texts.append(message.body.decode())
            if len(texts) == 20:
                break
    assert texts == [str(number) for number in range(20)]
    assert await _drain(queue) == []


async def test_prefetch_holds_the_rest_back(aio_connection: AbstractConnection, queue: AbstractQueue) -> None:
    consuming = await aio_connection.channel()
    await consuming.set_qos(prefetch_count=2)
    received: asyncio.Queue[AbstractIncomingMessage] = asyncio.Queue()
    await (await consuming.get_queue(queue.name)).consume(received.put)
    await _publish(await aio_connection.channel(), queue.name, "a", "b", "c", "d")
    async with asyncio.timeout(PATIENCE):
        first, second = await received.get(), await received.get()
    assert (first.body, second.body) == (b"a", b"b")
    assert await _drain(queue) == ["c", "d"]
    await first.reject(requeue=True)
    async with asyncio.timeout(PATIENCE):
        again = await received.get()
    assert (again.body, again.redelivered) == (b"a", True)
    await consuming.close()
    assert await _drain(queue) == ["a", "b"]


async def test_cancel(channel: AbstractChannel, queue: AbstractQueue) -> None:
    received: asyncio.Queue[AbstractIncomingMessage] = asyncio.Queue()
    tag = await queue.consume(received.put, no_ack=True)
    await queue.cancel(tag)
    await _publish(channel, queue.name, "a")
    assert await _drain(queue) == ["a"]
    assert received.empty()


async def test_exclusive_consumer(aio_connection: AbstractConnection, queue: AbstractQueue) -> None:
    received: asyncio.Queue[AbstractIncomingMessage] = asyncio.Queue()
    await queue.consume(received.put, exclusive=True)
    other = await (await aio_connection.channel()).get_queue(queue.name)
    with pytest.raises(ChannelAccessRefused, match="in exclusive use"):
        await other.consume(received.put)


async def test_get_and_acks(channel: AbstractChannel, queue: AbstractQueue) -> None:
    await _publish(channel, queue.name, *"abcde")
    messages = [await queue.get() for _ in range(4)]
    assert [message.body for message in messages] == [b"a", b"b", b"c", b"d"]
    _, second, third, fourth = messages
    assert fourth.message_count == 1
    await second.ack(multiple=True)
    await third.nack(requeue=True)
    await fourth.reject()
    assert await _drain(queue) == ["c", "e"]


async def test_transaction(aio_connection: AbstractConnection, queue: AbstractQueue) -> None:
    channel = await aio_connection.channel(publisher_confirms=False)
    async with channel.transaction():
        await _publish(channel, queue.name, "a", "b")
    assert await _drain(queue) == ["a", "b"]
    transaction = channel.transaction()
    await transaction.select()
    await _publish(channel, queue.name, "lost")
    await transaction.rollback()
    await transaction.commit()
    assert await _drain(queue) == []


async def test_twenty_channels(aio_connection: AbstractConnection) -> None:
    async def use(number: int) -> None:
        async with aio_connection.channel() as channel:
            queue = await channel.declare_queue(exclusive=True)
            texts = [f"{number}-{each}" for each in range(10)]
            await _publish(channel, queue.name, *texts)
            assert await _drain(queue) == texts

    await asyncio.gather(*(use(number) for number in range(20)))


async def test_rpc_pattern(aio_connection: AbstractConnection, name: Names) -> None:
    async def double(*, number: int) -> int:
        return 2 * number

    method = name("rpc")
    async with aio_connection.channel() as serving, aio_connection.channel() as calling:
        server = await RPC.create(serving)
        await server.register(method, double, auto_delete=True)
        client = await RPC.create(calling)
        async with asyncio.timeout(PATIENCE):
            answers = await asyncio.gather(*(client.call(method, {"number": n}) for n in range(20)))
        assert answers == [2 * n for n in range(20)]
        await client.close()
        await server.close()


async def test_direct_reply_to(url: str, channel: AbstractChannel, name: Names) -> None:
    replies: asyncio.Queue[AbstractIncomingMessage] = asyncio.Queue()
    requests = await channel.declare_queue(name("rpc"))
    reply_queue = await channel.get_queue("amq.rabbitmq.reply-to")
    await reply_queue.consume(replies.put, no_ack=True)
    async with await aio_pika.connect(url) as other:
        serving = await other.channel()
        for text in ("one", "two", "three"):
            request = aio_pika.Message(text.encode(), reply_to="amq.rabbitmq.reply-to")
            await channel.default_exchange.publish(request, requests.name)
            received = await (await serving.get_queue(requests.name)).get(no_ack=True)
            assert received is not None
            assert received.reply_to is not None
            assert received.reply_to.startswith("amq.rabbitmq.reply-to.")
            # A mandatory reply is returned by RabbitMQ before 4.2 even when it is delivered.
            answer = aio_pika.Message(received.body.upper())
            await serving.default_exchange.publish(answer, received.reply_to, mandatory=False)
            async with asyncio.timeout(PATIENCE):
                assert (await replies.get()).body == text.upper().encode()
