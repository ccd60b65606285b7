"""Commands that need no broker: help, version, and completion in shells."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Final

from leveret.broker.leveretctl import known_commands
from leveret.broker.leveretctl.command import Command, CommandContext, Outcome, Result, command
from leveret.broker.leveretctl.command_errors import USAGE, ApiFault, CommandFault, NoAnswer, bad_argument, failed
from leveret.broker.leveretctl.command_line import (
    FLAG,
    GENERAL_OPTIONS,
    OPTIONS,
    SHORT_OPTIONS,
    Argument,
    Option,
    find_address,
    option,
    scan,
)
from leveret.broker.leveretctl.printing import FORMATTERS
from leveret.broker.version import VERSION

# Options without effect are not completed.
_HIDDEN: Final = frozenset(("erlang-cookie", "longnames", "node", "print-stacktrace"))
# Resources of the API that have the names for a placeholder of a usage line.
_RESOURCES: Final = {
    "exchange": "exchanges",
    "queue": "queues",
    "queue_name": "queues",
    "stream": "queues",
    "username": "users",
    "vhost": "vhosts",
}
_NAMED_BY: Final = {
    "clear_policy": "policies",
    "clear_operator_policy": "operator-policies",
    "delete_reader": "readers",
}
_PLACEHOLDER: Final = re.compile(r"<([^<>]+)>")


#: Finds the names of objects: resource of the API, virtual host and the beginning of the names.
Names = Callable[[str, str, str], list[str]]


def completions(command_name: str, prefix: str, before: Sequence[str] = (), names: Names = lambda *_: []) -> list[str]:
    """Return the completions of a word among a command's arguments.

    Args:
        command_name: name of the command; an unknown one has only the general options.
        prefix: typed part of the word.
        before: the words before it, the command among them.
        names: finds names of the broker's objects.
    """
    command = known_commands.find(command_name)
    parsed = scan(list(before))
    vhost = str(parsed.options.get("vhost", "/"))
    option, equals, value = prefix.removeprefix("--").partition("=")
    if prefix.startswith("--") and equals:
        return [f"--{option}={each}" for each in _values(command, option, vhost, value, names)]
    waiting = _waiting_option(before)
    if waiting:
        return _values(command, waiting, vhost, prefix, names)
    columns = known_commands.names() if command_name == "help" else list(command.columns) if command else []
    candidates = columns + [_as_typed(each) for each in _options(command)]
    found = {word for word in candidates if word.startswith(prefix)}
    at = len(parsed.arguments) - 1
    if command is not None and not prefix.startswith("-") and 0 <= at < len(command.arguments):
        found.update(_names_for(command, command.arguments[at].usage, vhost, prefix, names))
    return sorted(found)


def _waiting_option(before: Sequence[str]) -> str:
    """Return the name of the option whose value comes next; "" if it is none."""
    last = before[-1] if before else ""
    name = last[2:] if last.startswith("--") else SHORT_OPTIONS.get(last.removeprefix("-"), "")
    return name if name in OPTIONS and OPTIONS[name].kind != FLAG else ""


def _values(command: Command | None, name: str, vhost: str, prefix: str, names: Names) -> list[str]:
    """Return the values of an option that begin with a prefix."""
    if name == "vhost":
        return names("vhosts", "", prefix)
    if name == "formatter":
        return [each for each in FORMATTERS if each.startswith(prefix)]
    option = command.options.get(name) if command else None
    if command is None or option is None:
        return []
    listed = [each for each in option.choices if each.startswith(prefix)]
    return listed or _names_for(command, option.value, vhost, prefix, names)


def _names_for(command: Command, shown: str, vhost: str, prefix: str, names: Names) -> list[str]:
    """Return the names of the objects that a placeholder like `<queue>` stands for."""
    found = _PLACEHOLDER.search(shown)
    word = found[1].split(" ")[-1] if found else ""
    resource = _NAMED_BY.get(command.name) if word == "name" else _RESOURCES.get(word)
    return [] if resource is None else names(resource, vhost, prefix)


def _options(command: Command | None) -> list[Option]:
    own = command.options if command else {}
    return [each for name, each in (GENERAL_OPTIONS | own).items() if name not in _HIDDEN]


def _as_typed(option: Option) -> str:
    if option.name == "table-headers":
        return "--no-table-headers"
    return f"--{option.name}" if option.kind == FLAG else f"--{option.name}="


_SCRIPTS: Final = Path(__file__).parents[1] / "completion"
#: Shell -> its completion script.
SCRIPTS: Final = {shell: _SCRIPTS / f"leveretctl.{shell}" for shell in ("bash", "zsh", "fish")}


# Seconds after which names are completed no more.
_SECONDS: Final = 2.0
_PAGED: Final = ("queues", "exchanges")
_IN_VHOSTS: Final = (*_PAGED, "policies", "operator-policies")


@command(
    (Argument("[<command>]"), option("list-commands", "list only the names of all commands")),
    line="(<command> | [--list-commands])",
    offline=True,
)
def help(context: CommandContext, name: str = "") -> Result:
    """Displays usage information for a command."""
    terminal = sys.stdout.isatty()
    if context.flag("list-commands"):
        return Outcome("\n".join(known_commands.names()))
    if not context.arguments:
        return Outcome(known_commands.command_list(terminal))
    found = known_commands.find(name)
    if found is None:
        near = known_commands.closest_name(name)
        text = known_commands.unknown_command(name, near)
        raise failed(f"\n{text if near else text.rstrip()}", USAGE)
    return Outcome(known_commands.command_help(found, terminal))


@command(offline=True)
def version(context: CommandContext) -> Result:
    """Displays CLI tools version."""
    return Outcome(VERSION, {"result": "ok", "value": {"version": VERSION}})


@command(
    (
        Argument("[prefix]", "typed part of the word"),
        Argument("[<word> ...]", "the words before it", "<word>"),
        option("for", "complete options, values, columns and names for that command, not command names"),
    ),
    line="[<word> ...] [prefix] [--for <command>]",
    offline=True,
)
def autocomplete(context: CommandContext, *words: str) -> Result:
    """Lists the completions of a word."""
    prefix, before = words[-1] if words else "", words[:-1]
    if "for" in context.options:
        found = completions(context.text("for"), prefix, before, partial(_names, before))
    else:
        found = [name for name in known_commands.names() if name.startswith(prefix)]
    return Outcome("\n".join(found), found)


def _names(before: Sequence[str], resource: str, vhost: str, prefix: str) -> list[str]:
    """Find names for a command line; none if the broker does not answer soon."""
    from leveret.broker.leveretctl.api import Api

    options = scan(list(before)).options
    try:
        api = Api(find_address(options, os.environ), _SECONDS)
    except ValueError:
        return []
    path, query = (resource, vhost) if resource in _IN_VHOSTS else (resource,), {"columns": "name"}
    if resource in _PAGED:
        # Of very many only some, which begin so.
        query |= {"page": "1", "page_size": "100", "name": f"^{re.escape(prefix)}", "use_regex": "true"}
    try:
        found = api.get(*path, **query)
    except (ApiFault, CommandFault, NoAnswer):
        return []
    finally:
        api.close()
    entries = found["items"] if isinstance(found, dict) else found
    return sorted(name for each in entries if (name := str(each["name"])).startswith(prefix))


def _check_shell(context: CommandContext) -> None:
    if context.arguments[0] not in SCRIPTS:
        raise bad_argument(f"shell should be {', '.join(SCRIPTS)}")


@command(
    (
        Argument("bash | zsh | fish", 'source it from ~/.bashrc: eval "$(leveretctl completion bash)"', "bash"),
        Argument("", "write it to a file _leveretctl in a directory of $fpath", "zsh", least=0),
        Argument("", "write it to ~/.config/fish/completions/leveretctl.fish", "fish", least=0),
    ),
    check=_check_shell,
    offline=True,
)
def completion(context: CommandContext, shell: str, *_: str) -> Result:
    """Prints the completion script of a shell."""
    return Outcome(SCRIPTS[shell].read_text("utf-8").rstrip("\n"))
