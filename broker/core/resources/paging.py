"""Pages messages to disk before the memory alarm is reached.

Source: https://www.rabbitmq.com/docs/memory-use, https://www.rabbitmq.com/docs/memory#paging-threshold
"""

from __future__ import annotations

from operator import itemgetter
from typing import Final

from leveret.broker.core.broker import Broker
from leveret.broker.core.resources.memory import release_free_memory, used_memory

#: Queues with fewer bytes of messages in memory are skipped.
_WORTHWHILE_BYTES: Final = 1 << 20


class Pager:
    """Pages messages to disk when memory runs low.

    Args:
        broker: The broker whose queues page out.
        threshold: Memory use in bytes that starts paging (mutable).
    """

    def __init__(self, broker: Broker, threshold: int) -> None:
        self._broker = broker
        self.threshold = threshold
        #: Whether the last check paged messages out.
        self._has_paged = False

    def page_out_excess(self, used: int) -> int:
        """Page out messages while memory use is above the threshold, the largest queues first.

        Args:
            used: Bytes of memory in use.
        Returns:
            Bytes that will leave memory.
        """
        if self._has_paged and used > self.threshold:
            # Otherwise free memory of the allocator would count as in use, and too many messages would be paged out.
            release_free_memory()
            used = used_memory()
        self._has_paged = False
        excess = used - self.threshold
        if excess <= 0:
            return 0
        holding = [
            (queue.backing.held_bytes, queue)
            for vhost in self._broker.vhosts.values()
            for queue in vhost.queues.values()
            if queue.backing.held_bytes >= _WORTHWHILE_BYTES
        ]
        freed = 0
        for held, queue in sorted(holding, key=itemgetter(0), reverse=True):
            if freed >= excess:
                break
            part = min(held, excess - freed)
            queue.backing.page_out(part)
            freed += part
        self._has_paged = freed > 0
        return freed
