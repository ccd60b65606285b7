"""A simulated disk for several threads, which tells at any moment what an end of the broker would leave of it."""

from __future__ import annotations

import copy
import random
import threading
import time
from typing import Any

from tests.support.simulated_files import SimulatedFiles


class SlowFiles(SimulatedFiles):
    """A disk for several threads whose syncs take a moment, so that much happens meanwhile."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self._lock = threading.RLock()
        self._rng = random.Random(seed)

    def __getattribute__(self, name: str) -> Any:
        found = super().__getattribute__(name)
        if name.startswith("_") or not callable(found):
            return found

        def locked(*arguments: Any, **named: Any) -> Any:
            if name == "fdatasync":
                time.sleep(self._rng.random() * 0.001)
            with self._lock:
                return found(*arguments, **named)

        return locked

    def after_kill(self) -> SimulatedFiles:
        """What would be left if the process ended now."""
        left = SimulatedFiles()
        memo: dict[int, Any] = {}
        left._names = copy.deepcopy(self._names, memo)
        left._synced_names = copy.deepcopy(self._synced_names, memo)
        left._directories = set(self._directories)
        left._synced_directories = set(self._synced_directories)
        return left

    def after_power_loss(self, rng: random.Random) -> SimulatedFiles:
        """What would be left if power went now."""
        left = self.after_kill()
        left.crash(rng)
        return left
