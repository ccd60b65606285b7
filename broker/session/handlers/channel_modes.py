"""Methods of classes channel, confirm and tx, and access.request of older clients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from leveret.broker.core.message_stores import WriteFailures
from leveret.broker.session.channel import Channel, Transaction
from leveret.broker.session.output import Confirms
from leveret.broker.unfinished import Unfinished
from leveret.protocol.faults import not_implemented, precondition_failed
from leveret.protocol.methods import INDEX

_FLOW_OK: Final = INDEX["channel.flow-ok"]
_CLOSE_OK: Final = INDEX["channel.close-ok"]
_REQUEST_OK: Final = INDEX["access.request-ok"]
_CONFIRM_SELECT_OK: Final = INDEX["confirm.select-ok"]
_TX_SELECT_OK: Final = INDEX["tx.select-ok"]
_COMMIT: Final = INDEX["tx.commit"]
_COMMIT_OK: Final = INDEX["tx.commit-ok"]
_ROLLBACK_OK: Final = INDEX["tx.rollback-ok"]


def flow(channel: Channel, active: bool) -> None:
    """Answer channel.flow with active=true; as in RabbitMQ, clients use basic.qos to limit deliveries.

    Raises:
        ConnectionFault: NOT_IMPLEMENTED (540) for active=false.
    """
    if not active:
        raise not_implemented("active=false")
    channel.send(_FLOW_OK, True)


def close_channel(channel: Channel, reply_code: int, reply_text: str, class_id: int, method_id: int) -> None:
    """Close the channel at the client's request; its number is free afterwards."""
    channel.flush_confirms()
    channel.deliver_due()
    channel.close()
    channel.send(_CLOSE_OK)


def request_access(channel: Channel, *_: Any) -> None:
    """Answer access.request of AMQP 0-8; tickets are ignored."""
    channel.send(_REQUEST_OK, 1)


def select_confirms(channel: Channel, nowait: bool) -> None:
    """Put the channel into confirm mode.

    Raises:
        ChannelFault: PRECONDITION_FAILED (406) on a channel in transaction mode.
    """
    if channel.transaction is not None:
        raise precondition_failed("cannot switch from tx to confirm mode")
    if channel.confirms is None:
        channel.confirms = Confirms(channel.number, channel.counters)
    if not nowait:
        channel.send(_CONFIRM_SELECT_OK)


def select_tx(channel: Channel) -> None:
    """Put the channel into transaction mode: publishes and acknowledgements are held until commit.

    Raises:
        ChannelFault: PRECONDITION_FAILED (406) on a channel in confirm mode.
    """
    if channel.confirms is not None:
        raise precondition_failed("cannot switch from confirm to tx mode")
    if channel.transaction is None:
        channel.transaction = Transaction(channel.unacked)
    channel.send(_TX_SELECT_OK)


def commit_tx(channel: Channel) -> None:
    """Commit the transaction.

    Raises:
        ChannelFault: PRECONDITION_FAILED (406) without a transaction, or if a queue refused a message; the
            remaining publishes and acknowledgements are applied anyway.
        Unfinished: It takes longer than a time slice.
    """
    transaction, new_slice = _transaction(channel), channel.host.vhost.turn.slice
    if not transaction.commit(new_slice()):
        raise Unfinished(lambda: transaction.commit(new_slice()))
    if not transaction.end_commit():
        raise precondition_failed("partial tx completion")
    channel.host.stores.await_sync(_Commit(channel, transaction))


class _Commit:
    """A commit that is not on disk yet."""

    __slots__ = ("_channel", "_transaction")

    def __init__(self, channel: Channel, transaction: Transaction) -> None:
        self._channel = channel
        self._transaction = transaction

    def written(self, failures: WriteFailures) -> Callable[[], None] | None:
        """Prepare tx.commit-ok after the write; return the callback for the sync."""
        if failures.any:
            self._channel.fail(precondition_failed("partial tx completion"), _COMMIT)
            return None
        self._channel.host.gate.hold(self._channel.output)
        return self._synced

    def _synced(self) -> None:
        if self._channel.transaction is self._transaction:
            self._channel.send(_COMMIT_OK)


def rollback_tx(channel: Channel) -> None:
    """Roll the transaction back.

    Raises:
        ChannelFault: PRECONDITION_FAILED (406) without a transaction.
    """
    _transaction(channel).rollback()
    channel.send(_ROLLBACK_OK)


def _transaction(channel: Channel) -> Transaction:
    if channel.transaction is None:
        raise precondition_failed("channel is not transactional")
    return channel.transaction


METHODS: Final = {
    "channel.flow": flow,
    "channel.close": close_channel,
    "access.request": request_access,
    "confirm.select": select_confirms,
    "tx.select": select_tx,
    "tx.commit": commit_tx,
    "tx.rollback": rollback_tx,
}
