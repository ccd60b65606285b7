"""A broker inside another Python program, mainly for tests.

In a program with an event loop::

    async with Leveret() as broker:
        connection = await aio_pika.connect(broker.url)

Elsewhere, in a separate thread::

    with LeveretThread() as broker:
        connection = pika.BlockingConnection(pika.URLParameters(broker.url))
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, Final, TypeAlias, TypeVar
from urllib.parse import quote

from leveret.broker.addresses import format_address
from leveret.broker.app import App, Embedding
from leveret.broker.auth.passwords import GENERATE, new_password
from leveret.broker.config.declaration import RawSetting
from leveret.broker.config.load import load
from leveret.broker.config.options import Settings
from leveret.broker.ports import Ports
from leveret.broker.testing.environment import (
    BrokerClock,
    DataFolder,
    FillableFiles,
    FillableUnsyncedFiles,
    NotRunningError,
)
from leveret.broker.testing.fault_interceptor import FaultInterceptor
from leveret.broker.testing.faults import Faults
from leveret.broker.testing.messages import (
    PublishedMessage,
    PublishedMessages,
    QueuedMessage,
    Snapshot,
    find_queue,
    read_queue,
)

T = TypeVar("T")

#: Seconds until what has begun is done.
_SETTLE_SECONDS: Final = 30.0
#: Seconds between two looks at a condition.
POLL_SECONDS: Final = 0.005
#: Options by their names in a configuration file.
Options: TypeAlias = Mapping[str, object]
#: A document as RabbitMQ exports it, or the path of one.
Definitions: TypeAlias = Mapping[str, Any] | str | Path


class Leveret:
    """A broker in the running event loop, on free loopback ports: an asynchronous context manager.

    Args:
        data_dir: Data directory; by default a temporary one, which is removed by stop().
        options: Options by their names in a configuration file, for example ``{"heartbeat": 0}``; see
            ``leveret --help``. Configuration files and environment variables are not read.
        definitions: What exists at first: virtual hosts, users, queues and so on, as RabbitMQ exports them; a document
            or the path of one.
    Raises:
        ConfigError: An option does not exist, or its value is invalid.

    Attributes:
        url: AMQP URL of the default user and virtual host.
        http_url: URL of the HTTP API, with the default user.
        clock: Its clock; ``await broker.clock.advance(3600)`` lets an hour pass.
        faults: Faults on demand; ``with broker.faults.refuse(queue="orders"):`` has a queue refuse messages.
    """

    def __init__(
        self,
        data_dir: Path | str | None = None,
        options: Options | None = None,
        definitions: Definitions | None = None,
    ) -> None:
        self._folder = DataFolder(None if data_dir is None else Path(data_dir))
        self._first = dict(options or {}), definitions
        #: The options and definitions in use, and their settings, with any data directory.
        self._used = self._first
        self._settings = self._read(*self._first)
        self._ports = Ports()
        self._files = FillableUnsyncedFiles() if data_dir is None else FillableFiles()
        self._app: App | None = None
        #: Whether start() continues on the same data: it was killed.
        self._is_dead = False
        self._clock_offset = 0
        self._published = PublishedMessages()
        self._interceptor = FaultInterceptor(self._published)
        self.faults = Faults(self.running, self._files, self._interceptor)
        self.clock = BrokerClock(self.running)
        self.url = self.http_url = ""

    @property
    def data_dir(self) -> Path:
        """The data directory; that of a temporary broker changes with a reset."""
        return self._folder.path

    def running(self) -> App:
        """Return the running broker.

        Raises:
            NotRunningError: It is not running.
        """
        if self._app is None:
            raise NotRunningError
        return self._app

    # -- start and end ------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Start it; after kill() on the same data, with the same URLs.

        Raises:
            StartError: It cannot start; the text says why.
            DefinitionsError: A definition is invalid.
        """
        if self._app is not None:
            return
        try:
            if not self._is_dead:
                self._folder.create()
            await self._begin()
        except BaseException:
            await self.stop()
            raise

    async def stop(self) -> None:
        """Stop the broker, and remove a temporary data directory. May be called twice."""
        app, self._app = self._app, None
        self._is_dead = False
        self._ports.close()
        if app is not None:
            await app.stop()
        await self._folder.remove()

    async def reset(self, options: Options | None = None, definitions: Definitions | None = None) -> None:
        """Begin anew with the same URLs: no connections, no data, the first definitions, the system's time.

        Clients get connection.close; those that connect meanwhile are served afterwards.

        Args:
            options: Options that count until the next reset, besides those that it was made with.
            definitions: Definitions until the next reset, instead of those that it was made with.
        Raises:
            ConfigError: An option does not exist, or its value is invalid; nothing has changed.
            NotRunningError: It has not been started, or was stopped.
            StartError: It cannot start with these options; reset() may be called again.
            DefinitionsError: A definition is invalid; reset() may be called again.
        """
        if self._app is None and not self._is_dead:
            raise NotRunningError
        wanted = {**self._first[0], **(options or {})}, self._first[1] if definitions is None else definitions
        if wanted != self._used:
            self._settings, self._used = self._read(*wanted), wanted
        await self._abandon(close_politely=True)
        self._clock_offset = 0
        self._published.clear()
        await self._folder.clear()
        await self._begin()
        self._folder.prepare()

    async def kill(self) -> None:
        """End as ``kill -9`` would: nothing more is written or sent. Clients are refused until start() is called.

        Raises:
            NotRunningError: It is not running.
        """
        self._clock_offset = self.running().broker.timers.offset
        await self._abandon(close_politely=False)
        await self._ports.shut()

    async def restart(self) -> None:
        """Kill it, and start it again on the same data.

        Raises:
            NotRunningError: It is not running.
            StartError: It cannot start; the text says why.
        """
        await self.kill()
        await self.start()

    async def snapshot(self) -> Snapshot:
        """Return the present state, as a restart would find it: without transient messages and queues.

        Raises:
            NotRunningError: It is not running.
            TimeoutError: It was not done with what had begun within 30 s.
        """
        app = self.running()
        # From here to the copy nothing else runs.
        await self.wait_until(lambda: app.is_settled, _SETTLE_SECONDS)
        return Snapshot(self._folder.copy(), app.broker.timers.offset, self._published.copy())

    async def restore(self, snapshot: Snapshot) -> None:
        """Go back to a snapshot of this broker, with the same URLs: its data, its time, what had been published.

        Clients get connection.close, and what has been declared or published since is gone. A snapshot can be restored
        any number of times, and after reset(), too.

        Raises:
            NotRunningError: The broker has not been started, or was stopped.
            ValueError: The snapshot was removed.
            StartError: It cannot start; the text says why.
        """
        if self._app is None and not self._is_dead:
            raise NotRunningError
        if not snapshot.exists:
            raise ValueError("the snapshot was removed, or the broker that it is of was stopped")
        await self._abandon(close_politely=True)
        self._clock_offset = snapshot.clock_offset
        await self._folder.replace(snapshot.path)
        await self._begin()
        self._published.replace(snapshot.published)
        self._folder.prepare()

    async def __aenter__(self) -> Leveret:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    # -- looking ------------------------------------------------------------------------------------------

    def messages(self, queue: str, vhost: str | None = None) -> list[QueuedMessage]:
        """Return the messages of a queue in their order, ready and unacked, without taking them.

        Args:
            vhost: Name of its virtual host; by default the default one.
        Raises:
            LookupError: There is no such queue; the text names those that there are.
            NotRunningError: It is not running.
        """
        return read_queue(find_queue(self.running(), queue, vhost))

    def published(self, exchange: str | None = None, vhost: str | None = None) -> list[PublishedMessage]:
        """Return what clients have published over AMQP since the start or the last reset, routed or not.

        Args:
            exchange: Name of the exchange, "" for the default one; None for all.
            vhost: Name of the virtual host; by default the default one.
        """
        return self._published.find(self._settings.default_vhost if vhost is None else vhost, exchange)

    async def wait_until(self, condition: Callable[[], T], timeout: float = 10.0) -> T:  # noqa: ASYNC109 - real time
        """Wait until a condition holds, and return its value.

        Args:
            condition: Asked again and again, about every 5 ms.
            timeout: Seconds of real time.
        Raises:
            TimeoutError: It did not come to hold in time; the text has its last value.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout
        while not (value := condition()):
            if loop.time() > deadline:
                raise not_in_time(timeout, value)
            await asyncio.sleep(POLL_SECONDS)
        return value

    # -- internal -----------------------------------------------------------------------------------------

    async def _begin(self) -> None:
        """Start on the data directory as it is."""
        self._ports.rewind()
        embedding = Embedding(
            self._files, self._folder.is_temporary, self._ports.bind, self._interceptor, self._clock_offset
        )
        # Until it has started, another attempt is possible.
        self._is_dead = True
        app = App(replace(self._settings, data_dir=self._folder.path), embedding)
        try:
            await app.start()
        except BaseException:
            await app.abandon()
            raise
        self._app, self._is_dead = app, False
        self.url, self.http_url = urls(self._settings, app.addresses)

    async def _abandon(self, close_politely: bool) -> None:
        app, self._app = self._app, None
        self._is_dead = True
        if app is not None:
            await app.abandon(close_politely)

    def _read(self, options: Options, definitions: Definitions | None) -> Settings:
        # Data of tests need not survive a power failure.
        return read_settings(self._folder.path, {"storage.sync": "off", **options}, definitions)


def read_settings(data_dir: Path, options: Options, definitions: Definitions | None) -> Settings:
    """Return the settings of a broker on free loopback ports.

    Args:
        data_dir: Its data directory.
        options: Options by their names in a configuration file.
        definitions: What exists at first; see Leveret.
    Raises:
        ConfigError: An option does not exist, or its value is invalid.
    """
    own: dict[str, object] = {
        "host": "127.0.0.1",
        "port": 0,
        "management_port": 0,
        "prometheus_port": 0,
        "data_dir": str(data_dir),
    }
    if isinstance(definitions, Mapping):
        own["definitions"] = definitions
    elif definitions is not None:
        own["load_definitions"] = str(definitions)
    named = {**own, **options}.items()
    settings = load(None, {}, [RawSetting(name, value, "an option of the embedded broker") for name, value in named])
    # Its URL has the password.
    return replace(settings, default_pass=new_password()) if settings.default_pass == GENERATE else settings


def urls(settings: Settings, addresses: Mapping[str, Sequence[tuple[str, int]]]) -> tuple[str, str]:
    """Return the AMQP URL of the default user and virtual host, and the URL of the HTTP API; "" without one.

    Args:
        addresses: Hosts and ports by listener.
    """
    user = f"{quote(settings.default_user, safe='')}:{quote(settings.default_pass, safe='')}"
    # Without management_port there is no HTTP API.
    management = addresses.get("management")
    http_url = f"http://{user}@{format_address(*management[0])}" if management else ""
    vhost = quote(settings.default_vhost, safe="")
    # With listeners.tcp: none only the encrypted port exists.
    scheme = "amqp" if "amqp" in addresses else "amqps"
    return f"{scheme}://{user}@{format_address(*addresses[scheme][0])}/{vhost}", http_url


def not_in_time(seconds: float, value: object) -> TimeoutError:
    """Return the error of a condition that did not come to hold.

    Args:
        seconds: How long it was waited for.
        value: Its last value.
    """
    return TimeoutError(f"not within {seconds:g} s; the condition was {value!r} at last")
