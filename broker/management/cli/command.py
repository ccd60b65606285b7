"""What a command is, what it is run with, and what it gives back."""

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
# rabbitmqctl's own for the commands that have one.
DEFAULT_TIMEOUT: Final = 60


class CommandContext:
    """What a command is run with.

    Args:
        address: where the broker is; None for a command that asks none.
        timeout: seconds to wait for an answer; None: for ever.
        arguments: the command's own.
        options: by long name.
        stdin: asked for what is not on the command line.
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
        """The broker's HTTP API."""
        if self._api is None:
            # Takes longer to load than all else together, and a misspelt command does without.
            from leveret.broker.management.cli.api import Api

            assert self.address is not None, "an offline command asks no broker"
            self._api = Api(self.address, self.timeout)
        return self._api

    def close(self) -> None:
        """Close the connection to the broker."""
        if self._api is not None:
            self._api.close()

    @property
    def vhost(self) -> str:
        """The virtual host that the command is about."""
        return self.text("vhost", DEFAULT_VHOST)

    @property
    def node(self) -> str:
        """The broker's name for itself; asks for it once."""
        if self._node is None:
            self._node = str(self.api.get("overview", columns="node")["node"])
        return self._node

    @property
    def json(self) -> bool:
        """Whether the output is to be JSON."""
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
    """What a command gives back that lists nothing.

    Args:
        text: for people; empty: nothing is printed.
        json: for `--formatter json`; None: nothing is printed.
    """

    text: str = ""
    json: Any = None


class ResultRows(NamedTuple):
    """What a command gives back that lists.

    Args:
        columns: names of the columns, in order.
        rows: values by column name.
        streamed: whether rabbitmqctl prints row by row, so that nothing is printed when there are none.
        headed: whether the plain table has a line of column names.
        json: for `--formatter json`, when it is not a list of rows.
        footer: said below the rows to people.
    """

    columns: tuple[str, ...]
    rows: Iterable[dict[str, Any]]
    streamed: bool = False
    headed: bool = True
    json: Any = None
    footer: str = ""


Result = Outcome | ResultRows
DONE: Final = Outcome()


def done(context: CommandContext) -> Outcome:
    """Return what commands give back that have nothing to say."""
    return Outcome(json={"node": context.node, "result": "ok"}) if context.json else DONE


class Command(NamedTuple):
    """One command.

    Args:
        name: as typed.
        section: of the list of commands.
        summary: one line about it.
        run: does it.
        usage: what may follow the name.
        least: how many arguments it needs.
        most: how many it takes; None: any number.
        options: long names of the options beside the general ones.
        banner: says what is about to be done; None: nothing.
        check: looks at the arguments before anything is printed; raises UsageFault or CommandFault.
        explanations: arguments and options with what they are.
        columns: that may be listed, when it lists columns of choice.
        timeout: seconds to wait for an answer unless `--timeout` says otherwise; None: for ever.
        offline: whether it talks to no broker.
        supports_dry_run: whether it does something of its own with `--dry-run`; others print their banner and end.
    """

    name: str
    section: str
    summary: str
    run: Callable[[CommandContext], Result]
    usage: str = ""
    least: int = 0
    most: int | None = 0
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
        """Long names of the options that it takes beside the general ones."""
        return frozenset(self.options)


def check_count(command: Command, arguments: list[str]) -> None:
    """Check the number of arguments.

    Raises:
        UsageFault: too few or too many.
    """
    if len(arguments) < command.least:
        raise UsageFault("not enough arguments.")
    if command.most is not None and len(arguments) > command.most:
        raise UsageFault("too many arguments.")
