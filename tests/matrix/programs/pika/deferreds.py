"""A program on pika's adapter for Twisted; prints what happened as JSON, like `callbacks`. Its argument is the URL."""

from __future__ import annotations

import json
import sys
from typing import Any

import pika
from pika.adapters.twisted_connection import TwistedProtocolConnection
from twisted.internet import defer, endpoints, reactor, task

from tests.matrix.programs.pika.callbacks import MESSAGES, PREFETCH


async def work(seen: dict[str, Any]) -> None:
    """Do what `callbacks.Work` does."""
    parameters = pika.URLParameters(sys.argv[1])
    end = endpoints.TCP4ClientEndpoint(reactor, parameters.host, parameters.port)
    connection = await endpoints.connectProtocol(end, TwistedProtocolConnection(parameters))
    await connection.ready
    channel = await connection.channel()
    await channel.confirm_delivery()
    queue = (await channel.queue_declare("", exclusive=True)).method.queue
    properties = pika.BasicProperties(delivery_mode=2)
    publishing = [channel.basic_publish("", queue, str(number), properties) for number in range(MESSAGES)]
    seen["confirmed"] = len(await defer.gatherResults(publishing))
    try:
        await channel.basic_publish("", "nobody", "lost", mandatory=True)
    except pika.exceptions.UnroutableError as error:
        seen["returned"] = [each.method.reply_code for each in error.messages]
    await channel.basic_qos(prefetch_count=PREFETCH)
    messages, tag = await channel.basic_consume(queue)
    seen["received"] = []
    for _ in range(MESSAGES):
        _, method, _, body = await messages.get()
        seen["received"].append(int(body))
        if len(seen["received"]) % PREFETCH == 0:
            channel.basic_ack(method.delivery_tag, multiple=True)
    await channel.basic_cancel(tag)
    seen["left"] = (await channel.queue_declare(queue, passive=True)).method.message_count
    await channel.queue_delete(queue)
    await connection.close()


def main(_: Any) -> Any:
    """Work, then print."""
    seen: dict[str, Any] = {}
    done = defer.ensureDeferred(work(seen))
    done.addCallback(lambda _: sys.stdout.write(json.dumps(seen)))
    return done


if __name__ == "__main__":
    task.react(main)
