"""All shovels of a broker: those of its parameters, and those of its configuration."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from leveret.broker.auth.backends.chain import AuthBackends
from leveret.broker.core.broker import Broker
from leveret.policies.shovel import COMPONENT, InvalidShovel, Shovel, read_shovel

if TYPE_CHECKING:
    from leveret.broker.shovels.run import Progress, Run

log = logging.getLogger("leveret.shovel")

_KEY = tuple[str | None, str]


@dataclass(frozen=True, slots=True)
class RunningShovel:
    """A shovel.

    Attributes:
        vhost: The virtual host of its parameter; None for one of the configuration.
        definition: What it does.
        run: What moves its messages.
    """

    vhost: str | None
    name: str
    definition: Shovel
    run: Run

    @property
    def progress(self) -> Progress:
        """What is known of it."""
        return self.run.progress


class Shovels:
    """The shovels of a broker. They run from start() to stop().

    Args:
        max_message_size: Maximum size in bytes of a message that comes from another broker.
        static: Those of the configuration: values as of parameters, by name.
    """

    def __init__(
        self, broker: Broker, backends: AuthBackends, max_message_size: int, static: Mapping[str, object]
    ) -> None:
        self._broker = broker
        self._backends = backends
        self._max_message_size = max_message_size
        self._static = static
        self._shovels: dict[_KEY, RunningShovel] = {}
        self._stopping: set[asyncio.Task[None]] = set()

    def start(self) -> None:
        """Start all shovels, and from now on those whose parameters are set."""
        self._broker.parameters.watchers[COMPONENT] = self._parameter_changed
        for vhost_name, component, name in [*self._broker.parameters.values]:
            if component == COMPONENT:
                self._parameter_changed(vhost_name, name)
        for name, value in self._static.items():
            self._start(None, name, value)

    async def stop(self) -> None:
        """Stop all shovels; this takes some seconds at most."""
        self._broker.parameters.watchers.pop(COMPONENT, None)
        for key in [*self._shovels]:
            self._stop(key)
        if self._stopping:
            await asyncio.wait(self._stopping)

    def abort(self) -> None:
        """Stop all shovels as the death of the process does."""
        self._broker.parameters.watchers.pop(COMPONENT, None)
        for shovel in self._shovels.values():
            shovel.run.abort()
        self._shovels.clear()

    def listed(self) -> list[RunningShovel]:
        """Return all shovels: by virtual host and name, and those of the configuration first."""
        return [self._shovels[key] for key in sorted(self._shovels, key=lambda key: (key[0] or "", key[1]))]

    def find(self, vhost_name: str | None, name: str) -> RunningShovel | None:
        """Return a shovel; None if there is none of that name."""
        return self._shovels.get((vhost_name, name))

    def restart(self, shovel: RunningShovel) -> None:
        """Stop a shovel, and start it again."""
        self._stop((shovel.vhost, shovel.name))
        self._run(shovel.vhost, shovel.name, shovel.definition)

    def delete(self, shovel: RunningShovel) -> None:
        """Remove a shovel with its parameter; one of the configuration until the next start."""
        self._stop((shovel.vhost, shovel.name))
        if shovel.vhost is not None:
            self._broker.parameters.clear(shovel.vhost, COMPONENT, shovel.name)

    def _parameter_changed(self, vhost_name: str, name: str) -> None:
        self._stop((vhost_name, name))
        value = self._broker.parameters.values.get((vhost_name, COMPONENT, name))
        if value is not None:
            self._start(vhost_name, name, value)

    def _start(self, vhost_name: str | None, name: str, value: Any) -> None:
        try:
            definition = read_shovel(name, value)
        except InvalidShovel as invalid:
            # From a newer release.
            log.error("shovel '%s' cannot be started: %s", name, "; ".join(str(invalid).splitlines()))
            return
        self._run(vhost_name, name, definition)

    def _run(self, vhost_name: str | None, name: str, definition: Shovel) -> None:
        from leveret.broker.shovels.run import Place, Run

        way = {"shovelled-by": self._broker.cluster_name}
        way |= {"shovel-type": "static" if vhost_name is None else "dynamic", "shovel-name": name}
        if vhost_name is not None:
            way["shovel-vhost"] = vhost_name
        place = Place(self._broker, self._backends, self._max_message_size)
        run = Run(place, name, definition, way, partial(self._finished, (vhost_name, name)))
        self._shovels[vhost_name, name] = RunningShovel(vhost_name, name, definition, run)
        self._broker.events.tell("shovel.worker.status", run.status)

    def _stop(self, key: _KEY) -> None:
        shovel = self._shovels.pop(key, None)
        if shovel is not None:
            self._tell_removed(key)
            task = asyncio.get_running_loop().create_task(shovel.run.stop())
            self._stopping.add(task)
            task.add_done_callback(self._stopping.discard)

    def _tell_removed(self, key: _KEY) -> None:
        self._broker.events.tell("shovel.worker.removed", dict, {"vhost": key[0], "name": key[1]})

    def _finished(self, key: _KEY) -> None:
        """Remove a shovel that has moved all that it should."""
        vhost_name, name = key
        del self._shovels[key]
        self._tell_removed(key)
        log.info("shovel '%s' has moved all messages, and is removed", name)
        if vhost_name is not None:
            self._broker.parameters.clear(vhost_name, COMPONENT, name)
