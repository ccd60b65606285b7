"""Runs the program that takes backups on this node, while it is this node's turn."""

from __future__ import annotations

from collections.abc import Callable

from leveret.broker.config.options import Settings
from leveret.broker.side_programs import BACKUP, SideProgram
from leveret.storage.url_secrets import mask_url


class BackupTaker:
    """Takes the backups of a data directory by a program beside the broker. Used by one event loop.

    Args:
        settings: Configuration of the broker; `backup.url` is set.
        on_report: Called with each line that the program writes about backups.
        on_failure: Called with what is logged when it has ended or could not be started.
    """

    def __init__(
        self, settings: Settings, on_report: Callable[[bytes], object], on_failure: Callable[[str], object]
    ) -> None:
        backup = settings.backup
        self._url = backup.url
        self._arguments = [f"--data-dir={settings.data_dir}", f"--interval={backup.interval}", f"--keep={backup.keep}"]
        self._arguments += [f"--log-interval={backup.log_interval}"]
        self._arguments += [f"--key-file={backup.key_file}"] if backup.key_file else []
        self._on_report = on_report
        self._on_failure = on_failure
        self._program: SideProgram | None = None

    def start(self, turn: str = "") -> None:
        """Begin.

        Args:
            turn: In a cluster, what the leader has said: `EPOCH/NUMBER/NODE`.
        """
        arguments = [*self._arguments, *([f"--turn={turn}"] if turn else [])]
        self._program = SideProgram(BACKUP, self._url, arguments, self._on_report, self._on_failure)
        self._program.start()

    async def stop(self, seconds: float) -> None:
        """End the program.

        Args:
            seconds: How long it may take to end in order; then it is killed, which loses nothing.
        """
        program, self._program = self._program, None
        if program is not None:
            await program.stop(seconds)

    async def kill(self) -> None:
        """Kill the program."""
        program, self._program = self._program, None
        if program is not None:
            await program.kill()


def shared_place(settings: Settings) -> str:
    """Return where the backups are, without passwords, if a standby may take them; "" if it may not.

    A directory is taken for one of this machine alone, unless `backup.take_on` says that all nodes have it.
    """
    backup = settings.backup
    is_directory = "://" not in backup.url or backup.url.startswith("file://")
    if backup.take_on == "leader" or (backup.take_on == "auto" and is_directory):
        return ""
    return mask_url(backup.url)
