"""taskiq's brokers as the sender and the worker declare them."""

from __future__ import annotations

from taskiq_aio_pika import AioPikaBroker, Exchange, Queue, QueueType


def made(url: str, kind: str) -> AioPikaBroker:
    """A broker with queues and an exchange of its own."""
    queue_type = QueueType.CLASSIC if kind in {"classic", "priorities"} else QueueType.QUORUM
    return AioPikaBroker(
        url,
        qos=1 if kind == "priorities" else 10,
        exchange=Exchange(name=f"taskiq.{kind}"),
        task_queues=[Queue(name=f"taskiq.{kind}", type=queue_type, max_priority=10 if kind == "priorities" else None)],
        delay_queue=Queue(name=f"taskiq.{kind}.delay", type=queue_type),
        delayed_message_exchange_plugin=kind == "exchange",
        dead_letter_queue=Queue(name=f"taskiq.{kind}.dead_letter", type=queue_type),
    )
