"""Methods of class confirm."""

from __future__ import annotations

from typing import Final

from leveret.broker.session.channel import Channel
from leveret.broker.session.confirms import Confirms
from leveret.protocol.faults import precondition_failed
from leveret.protocol.methods import INDEX

_SELECT_OK: Final = INDEX["confirm.select-ok"]


def select(channel: Channel, nowait: bool) -> None:
    """Put the channel into confirm mode.

    Raises:
        ChannelFault: PRECONDITION_FAILED (406) on a channel in transaction mode.
    """
    if channel.transaction is not None:
        raise precondition_failed("cannot switch from tx to confirm mode")
    if channel.confirms is None:
        channel.confirms = Confirms(channel.number, channel.counters)
    if not nowait:
        channel.send(_SELECT_OK)


METHODS: Final = {"confirm.select": select}
