"""Making room in memory before the alarm has to be raised.

Source: https://www.rabbitmq.com/docs/memory-use, https://www.rabbitmq.com/docs/memory#paging-threshold
"""

from __future__ import annotations

from operator import itemgetter
from typing import Final

from leveret.broker.core.broker import Broker
from leveret.broker.core.memory import give_back_memory, used_memory

#: Queues that hold less than this are left alone: it would not help.
_WORTHWHILE_BYTES: Final = 1 << 20


class Pager:
    """Pages messages to disk when memory runs low.

    Args:
        broker: Has the queues.
        threshold: Bytes of memory in use above which it does so; it may be changed.
    """

    def __init__(self, broker: Broker, threshold: int) -> None:
        self._broker = broker
        self.threshold = threshold
        #: Something has been paged out since the last look.
        self._has_paged = False

    def relieve(self, used: int) -> int:
        """Have queues page out what is above the threshold, those that hold most first.

        Args:
            used: Bytes of memory in use.
        Returns:
            Bytes that will leave memory.
        """
        if self._has_paged and used > self.threshold:
            # Else what has left would count as in use, and all the rest would have to leave.
            give_back_memory()
            used = used_memory()
        self._has_paged = False
        excess = used - self.threshold
        if excess <= 0:
            return 0
        holding = [
            (queue.storage.held_bytes, queue)
            for vhost in self._broker.vhosts.values()
            for queue in vhost.queues.values()
            if queue.storage.held_bytes >= _WORTHWHILE_BYTES
        ]
        freed = 0
        for held, queue in sorted(holding, key=itemgetter(0), reverse=True):
            if freed >= excess:
                break
            part = min(held, excess - freed)
            queue.page_out(part)
            freed += part
        self._has_paged = freed > 0
        return freed
