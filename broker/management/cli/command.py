"""Descriptions of commands, their context and their results."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TextIO

from leveret.broker.management.cli.address import Address
from leveret.broker.management.cli.faults import UsageFault
from leveret.broker.management.cli.options import Value

if TYPE_CHECKING:
    from leveret.broker.management.cli.api import Api

DEFAULT_VHOST: Final = "/"
# Seconds; the default of rabbitmqctl's commands that have a timeout.
DEFAULT_TIMEOUT: Final = 60


class CommandContext:
    """Arguments, options and API client of a command that runs.

    Args:
        address: address of the API; None for an offline command.
        timeout: seconds to wait for a response; None waits without limit.
        arguments: positional arguments.
        options: option values by long name.
        stdin: source of passwords and documents that are not on the command line.
    """

    def __init__(
        self,
        address: Address | None,
        timeout: float | None,
        arguments: list[str],
        options: dict[str, Value],
        stdin: TextIO | None = None,
    ) -> None:
        self.address = address
        self.timeout = timeout
        self._api: Api | None = None
        self.arguments = arguments
        self.options = options
        self.stdin = sys.stdin if stdin is None else stdin
        self._node: str | None = None

    @property
    def api(self) -> Api:
        """Client of the broker's HTTP API."""
        if self._api is None:
            # Imported late because it takes longer than all other imports, and misspelt commands do not need it.
            from leveret.broker.management.cli.api import Api

            assert self.address is not None, "an offline command has no address"
            self._api = Api(self.address, self.timeout)
        return self._api

    def close(self) -> None:
        """Close the connection to the broker."""
        if self._api is not None:
            self._api.close()

    @property
    def vhost(self) -> str:
        """The virtual host that the command applies to."""
        return self.text("vhost", DEFAULT_VHOST)

    @property
    def node(self) -> str:
        """The node name; requested once."""
        if self._node is None:
            self._node = str(self.api.get("overview", columns="node")["node"])
        return self._node

    @property
    def json(self) -> bool:
        """Whether the output format is JSON."""
        return self.options.get("formatter") == "json"

    def flag(self, name: str) -> bool:
        """Return whether a flag is set."""
        return self.options.get(name) is True

    def text(self, name: str, default: str = "") -> str:
        """Return a text option."""
        return str(self.options.get(name, default))

    def integer(self, name: str, default: int) -> int:
        """Return an integer option."""
        return int(self.options.get(name, default))


class Outcome(NamedTuple):
    """Result of a command that is not a listing.

    Args:
        text: text to print; empty prints nothing.
        json: value to print with `--formatter json`; None prints nothing.
    """

    text: str = ""
    json: Any = None


class ResultRows(NamedTuple):
    """Result of a command that lists objects.

    Args:
        columns: column names in order.
        rows: values by column name.
        streamed: whether rabbitmqctl prints row by row, so that an empty listing prints nothing.
        headed: whether the plain table starts with the column names.
        json: value for `--formatter json` if it is not the list of rows.
        footer: text below the rows in the table formats.
    """

    columns: tuple[str, ...]
    rows: Iterable[dict[str, Any]]
    streamed: bool = False
    headed: bool = True
    json: Any = None
    footer: str = ""


Result = Outcome | ResultRows
NO_OUTPUT: Final = Outcome()


def ok_result(context: CommandContext) -> Outcome:
    """Return the result of a command without output: nothing as text, `"result": "ok"` as JSON."""
    return Outcome(json={"node": context.node, "result": "ok"}) if context.json else NO_OUTPUT


class Command(NamedTuple):
    """Command of leveretctl.

    Args:
        name: name on the command line.
        section: section of the command list.
        summary: one-line description.
        run: executes the command.
        usage: arguments and options in the usage line.
        min_arguments: minimum number of arguments.
        max_arguments: maximum number of arguments; None allows any number.
        options: long names of the command's options besides the general ones.
        banner: returns the line that is printed before the command runs; None prints none.
        check: validates arguments before output starts; raises UsageFault or CommandFault.
        explanations: arguments and options with their descriptions.
        columns: names of the selectable columns.
        timeout: default of `--timeout` in seconds; None waits without limit.
        offline: whether the command needs no broker.
        supports_dry_run: whether the command runs with `--dry-run`; others only print their banner.
    """

    name: str
    section: str
    summary: str
    run: Callable[[CommandContext], Result]
    usage: str = ""
    min_arguments: int = 0
    max_arguments: int | None = 0
    options: tuple[str, ...] = ()
    banner: Callable[[CommandContext], str] | None = None
    check: Callable[[CommandContext], None] | None = None
    explanations: tuple[tuple[str, str], ...] = ()
    columns: tuple[str, ...] = ()
    timeout: int | None = DEFAULT_TIMEOUT
    offline: bool = False
    supports_dry_run: bool = False

    @property
    def allowed(self) -> frozenset[str]:
        """Long names of the command's options besides the general ones."""
        return frozenset(self.options)


def check_count(command: Command, arguments: list[str]) -> None:
    """Check the number of arguments.

    Raises:
        UsageFault: too few or too many.
    """
    if len(arguments) < command.min_arguments:
        raise UsageFault("not enough arguments.")
    if command.max_arguments is not None and len(arguments) > command.max_arguments:
        raise UsageFault("too many arguments.")
