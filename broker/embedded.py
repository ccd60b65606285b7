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
import atexit
import shutil
import tempfile
import threading
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Final
from urllib.parse import quote
from uuid import uuid4

import uvloop

from leveret.broker.addresses import format_address
from leveret.broker.app import App, StartError
from leveret.broker.config.declaration import RawSetting
from leveret.broker.config.errors import DefinitionsError
from leveret.broker.config.load import load
from leveret.broker.config.options import Settings

#: Seconds that starting and stopping in a thread may take.
_DEADLINE: Final = 30.0


class Leveret:
    """A broker in the running event loop, on free loopback ports: an asynchronous context manager.

    Args:
        data_dir: Data directory; by default a temporary one, which is removed by stop().
        options: Options by their names in a configuration file, for example ``{"heartbeat": 0}``; see
            ``leveret --help``. Configuration files and environment variables are not read.
    Raises:
        ConfigError: An option does not exist, or its value is invalid.

    Attributes:
        url: AMQP URL of the default user and virtual host.
        http_url: URL of the HTTP API, with the default user.
    """

    def __init__(self, data_dir: Path | str | None = None, options: Mapping[str, object] | None = None) -> None:
        self._settings = _settings(data_dir, options or {})
        self._temporary = self._settings.data_dir if data_dir is None else None
        self._app: App | None = None
        self.url = self.http_url = ""

    async def start(self) -> None:
        """Start it.

        Raises:
            StartError: It cannot start; the text says why.
        """
        if self._temporary is not None:
            self._temporary.mkdir(mode=0o700)
        try:
            self._app = app = App(self._settings, eager_http=False)
            await app.start()
        except BaseException:
            await self.stop()
            raise
        settings = self._settings
        user = f"{quote(settings.default_user, safe='')}:{quote(settings.default_pass, safe='')}"
        self.http_url = f"http://{user}@{format_address(*app.addresses['management'][0])}"
        vhost = quote(settings.default_vhost, safe="")
        # With listeners.tcp: none only the encrypted port exists.
        scheme = "amqp" if "amqp" in app.addresses else "amqps"
        self.url = f"{scheme}://{user}@{format_address(*app.addresses[scheme][0])}/{vhost}"

    async def stop(self) -> None:
        """Stop the broker, and remove a temporary data directory. May be called twice."""
        app, self._app = self._app, None
        if app is not None:
            await app.stop()
        if self._temporary is not None:
            shutil.rmtree(self._temporary, ignore_errors=True)

    async def __aenter__(self) -> Leveret:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()


class LeveretThread:
    """A broker in a separate thread: a context manager. For arguments and attributes see Leveret."""

    def __init__(self, data_dir: Path | str | None = None, options: Mapping[str, object] | None = None) -> None:
        self._broker = Leveret(data_dir, options)
        self._thread = threading.Thread(target=self._run, name="leveret", daemon=True)
        self._started = threading.Event()
        self._failure: Exception | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopping: asyncio.Event | None = None

    @property
    def url(self) -> str:
        """AMQP URL of the default user and virtual host."""
        return self._broker.url

    @property
    def http_url(self) -> str:
        """URL of the HTTP API, with the default user."""
        return self._broker.http_url

    def start(self) -> None:
        """Start it.

        Raises:
            StartError: It cannot start; the text says why.
            TimeoutError: It did not start within 30 s.
        """
        self._thread.start()
        # Removes the temporary data directory if the program ends without calling stop().
        atexit.register(self.stop)
        if not self._started.wait(_DEADLINE):
            raise TimeoutError(f"the broker did not start within {_DEADLINE:.0f} s")
        if self._failure is not None:
            raise self._failure
        if not self.url:
            raise StartError("the broker did not start")

    def stop(self) -> None:
        """Stop the broker, and wait until it has stopped. Does nothing if it is not running."""
        atexit.unregister(self.stop)
        if self._thread.ident is None:
            return
        if self._loop is not None and self._stopping is not None and self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._stopping.set)
        self._thread.join(_DEADLINE)

    def __enter__(self) -> LeveretThread:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(self._serve())

    async def _serve(self) -> None:
        self._loop, self._stopping = asyncio.get_running_loop(), asyncio.Event()
        try:
            await self._broker.start()
        except (StartError, DefinitionsError) as failure:
            self._failure = failure
            return
        finally:
            self._started.set()
        await self._stopping.wait()
        await self._broker.stop()


def _settings(data_dir: Path | str | None, options: Mapping[str, object]) -> Settings:
    directory = Path(tempfile.gettempdir(), f"leveret-{uuid4().hex}") if data_dir is None else data_dir
    own = {
        "host": "127.0.0.1",
        "port": 0,
        "management_port": 0,
        "prometheus_port": 0,
        "data_dir": str(directory),
        # Data of tests need not survive a power failure.
        "storage.sync": "off",
    }
    raw = [RawSetting(name, value, "an option of the embedded broker") for name, value in {**own, **options}.items()]
    return load(None, {}, raw)
