"""Methods of class tx."""

from __future__ import annotations

from typing import Final

from leveret.broker.session.channel import Channel
from leveret.broker.session.transaction import Transaction
from leveret.protocol.faults import precondition_failed
from leveret.protocol.methods import INDEX

_SELECT_OK: Final = INDEX["tx.select-ok"]
_ROLLBACK_OK: Final = INDEX["tx.rollback-ok"]


def select(channel: Channel) -> None:
    """Put the channel into transaction mode: publishes and acknowledgements are held until commit.

    Raises:
        ChannelFault: PRECONDITION_FAILED (406) on a channel in confirm mode.
    """
    if channel.confirms is not None:
        raise precondition_failed("cannot switch from confirm to tx mode")
    if channel.transaction is None:
        channel.transaction = Transaction(channel)
    channel.send(_SELECT_OK)


def commit(channel: Channel) -> None:
    """Commit the transaction.

    Raises:
        ChannelFault: PRECONDITION_FAILED (406) without a transaction, or if a queue refused a message; the
            remaining publishes and acknowledgements are applied anyway.
    """
    transaction = _transaction(channel)
    if not transaction.commit():
        raise precondition_failed("partial tx completion")
    channel.connection.server.broker.stores.await_sync(transaction)


def rollback(channel: Channel) -> None:
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


METHODS: Final = {"tx.select": select, "tx.commit": commit, "tx.rollback": rollback}
