"""Descriptions of commands, their context and their results."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from leveret.broker.leveretctl.command_errors import (
    ApiFault,
    CommandFault,
    UsageFault,
    failed,
    refused,
    to_command_fault,
)
from leveret.broker.leveretctl.command_line import GENERAL_OPTIONS, Address, Argument, Option, Value

if TYPE_CHECKING:
    from leveret.broker.leveretctl.api import Api

# Seconds; the default of rabbitmqctl's commands that have a timeout.
DEFAULT_TIMEOUT: Final = 60


class CommandContext:
    """Arguments, options and API client of a command that runs."""

    def __init__(
        self, address: Address | None, timeout: float | None, arguments: list[str], options: dict[str, Value]
    ) -> None:
        self.address = address
        self.timeout = timeout
        self._api: Api | None = None
        self.arguments = arguments
        self.options = options
        # Source of passwords and documents that are not on the command line.
        self.stdin = sys.stdin
        self._node: str | None = None

    @property
    def api(self) -> Api:
        """Client of the broker's HTTP API."""
        if self._api is None:
            # Imported late because it takes longer than all other imports, and misspelt commands do not need it.
            from leveret.broker.leveretctl.api import Api

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
        return self.text("vhost", "/")

    @property
    def node(self) -> str:
        """The node name; requested once."""
        if self._node is None:
            self._node = str(self.api.get("overview", columns="node")["node"])
        return self._node

    def require(self, missing: CommandFault, *path: str, **query: Any) -> Any:
        """Return an object of the API.

        Raises:
            CommandFault: the object does not exist: `missing`.
        """
        found = self.api.find(*path, **query)
        if found is None:
            raise missing
        return found

    @property
    def silent(self) -> bool:
        """Whether only the result is wanted."""
        return self.flag("silent") or self.flag("quiet")

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
    """Result of a command that is not a listing: its text, and its value for `--formatter json`; None prints none."""

    text: str = ""
    json: Any = None


class ResultRows(NamedTuple):
    """Result of a command that lists objects.

    Args:
        streamed: whether rabbitmqctl prints row by row, so that an empty listing prints nothing.
        headed: whether the plain table starts with the column names.
        json: value for `--formatter json` if it is not the list of rows.
        footer: text below the rows in the table formats.
        status: exit status of the command.
    """

    columns: tuple[str, ...]
    rows: Iterable[dict[str, Any]]
    streamed: bool = False
    headed: bool = True
    json: Any = None
    footer: str = ""
    status: int = 0


Result = Outcome | ResultRows


# A command that returns only a text, or nothing, has `"result": "ok"` as JSON.
Run = Callable[..., Result | str | None]
Part = Argument | Option
Text = str | Callable[..., str]


class Command(NamedTuple):
    """Command of leveretctl.

    Texts are strings, in which `{0}` stands for the first argument and `{context.vhost}` for the virtual host, or
    functions that return them, with the arguments of `run`; empty for none.

    Args:
        run: gets the context, and the arguments one by one.
        parts: arguments and options in the order of the usage line and the help, with those general options that
            the usage line shows.
        banner: line that is printed before the command runs.
        check: validates arguments before output starts; raises UsageFault or CommandFault.
        line: arguments and options of the usage line, if they are not those of the parts.
        timeout: default of `--timeout` in seconds; None waits without limit.
        offline: whether the command needs no broker.
        not_found: error if the API does not find an object; other refusals have the API's reason then.
        of_leveret: what RabbitMQ does not support, for the error if the broker is one.
    """

    name: str
    summary: str
    run: Run
    parts: tuple[Part, ...] = ()
    banner: Text = ""
    check: Callable[[CommandContext], None] | None = None
    line: str = ""
    timeout: int | None = DEFAULT_TIMEOUT
    offline: bool = False
    not_found: Text = ""
    of_leveret: str = ""

    @property
    def usage(self) -> str:
        """Arguments and options in the usage line."""
        return self.line or " ".join(filter(None, (part.usage for part in self.parts)))

    @property
    def arguments(self) -> list[Argument]:
        """Arguments in order."""
        return [part for part in self.parts if isinstance(part, Argument)]

    @property
    def options(self) -> dict[str, Option]:
        """Options besides the general ones, by long name."""
        parts = (part for part in self.parts if isinstance(part, Option))
        return {part.name: part for part in parts if part.name not in GENERAL_OPTIONS}

    @property
    def supports_dry_run(self) -> bool:
        """Whether the command runs with `--dry-run`; others only print their banner."""
        return any(isinstance(part, Option) and part.name == "dry-run" for part in self.parts)

    @property
    def columns(self) -> Collection[str]:
        """Names of the selectable columns."""
        return next((each.columns for each in self.arguments if each.columns), ())

    def check_count(self, arguments: list[str]) -> None:
        """Check the number of arguments."""
        if len(arguments) < sum(each.minimum for each in self.arguments):
            raise UsageFault("not enough arguments.")
        if len(arguments) > sum(each.maximum for each in self.arguments):
            raise UsageFault("too many arguments.")

    def check_arguments(self, context: CommandContext) -> None:
        """Check names of columns, and what else the command checks before output starts.

        Raises:
            UsageFault: an argument is invalid.
            CommandFault: another refusal.
        """
        if self.columns:
            names = context.arguments[sum(each.minimum for each in self.arguments) :]
            unknown = sorted(set(selected_columns(names, ())) - set(self.columns))
            if unknown:
                raise UsageFault(f"Info key(s) {','.join(unknown)} are not supported")
        if self.check is not None:
            self.check(context)

    def result(self, context: CommandContext) -> Result:
        """Run the command; raise its own error for one of the API."""
        try:
            found = self.run(context, *context.arguments)
        except ApiFault as fault:
            raise self._refusal(fault, context) from fault
        if isinstance(found, Outcome | ResultRows):
            return found
        # The node's name costs a request, which only this format needs.
        return Outcome(found or "", {"node": context.node, "result": "ok"} if context.json else None)

    def banner_text(self, context: CommandContext) -> str:
        """Return the line that is printed before the command runs."""
        return _filled(self.banner, context)

    def _refusal(self, fault: ApiFault, context: CommandContext) -> CommandFault:
        if self.not_found and fault.not_found:
            return failed(_filled(self.not_found, context))
        if self.of_leveret:
            return refused(fault, self.of_leveret)
        return failed(fault.reason) if self.not_found else to_command_fault(fault)


def _filled(text: Text, context: CommandContext) -> str:
    if isinstance(text, str):
        return text.format(*context.arguments, context=context)
    return text(context, *context.arguments)


COMMANDS: Final[dict[str, Command]] = {}


def command(
    parts: tuple[Part, ...] = (),
    *,
    name: str = "",
    summary: str = "",
    banner: Text = "",
    check: Callable[[CommandContext], None] | None = None,
    line: str = "",
    timeout: int | None = DEFAULT_TIMEOUT,
    offline: bool = False,
    not_found: Text = "",
    of_leveret: str = "",
    **more: Any,
) -> Callable[[Run], Run]:
    """Return a decorator that makes a function a command, or one of several.

    The arguments are those of `Command`; name and summary are the function's name and docstring unless they are given.
    `more` are keyword arguments of the function for this command.
    """

    def register(run: Run) -> Run:
        bound = partial(run, **more) if more else run
        called, about = name or run.__name__, summary or (run.__doc__ or "").removesuffix(".")
        COMMANDS[called] = Command(
            called, about, bound, parts, banner, check, line, timeout, offline, not_found, of_leveret
        )
        return run

    return register


def selected_columns(arguments: Iterable[str], default: tuple[str, ...]) -> tuple[str, ...]:
    """Return the columns that the arguments name, without duplicates. Commas separate names too."""
    names = [name for argument in arguments for name in argument.split(",") if name]
    return tuple(dict.fromkeys(names)) or default
