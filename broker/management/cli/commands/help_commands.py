"""help, version, autocomplete and completion: commands that need no broker."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from functools import partial
from typing import Final

from leveret.broker.management.cli import completion, registry
from leveret.broker.management.cli.address import find_address
from leveret.broker.management.cli.command import Command, CommandContext, Outcome, Result
from leveret.broker.management.cli.faults import (
    USAGE,
    ApiFault,
    CommandFault,
    RequestTimeout,
    Unreachable,
    bad_argument,
)
from leveret.broker.management.cli.help_text import command_help, command_list, unknown_command
from leveret.broker.management.cli.options import scan
from leveret.broker.version import VERSION

SECTION: Final = "Help"
# Seconds after which names are completed no more.
_SECONDS: Final = 2.0
_PAGED: Final = ("queues", "exchanges")
_IN_VHOSTS: Final = (*_PAGED, "policies", "operator-policies")


def _help(context: CommandContext) -> Result:
    import sys

    terminal = sys.stdout.isatty()
    if context.flag("list-commands"):
        return Outcome("\n".join(registry.names()))
    if not context.arguments:
        return Outcome(command_list(terminal))
    name = context.arguments[0]
    command = registry.find(name)
    if command is None:
        near = registry.closest_name(name)
        raise CommandFault(
            USAGE,
            f"Error:\n\n{unknown_command(name, near)}" if near else f"Error:\n\n{unknown_command(name, None).rstrip()}",
        )
    return Outcome(command_help(command, terminal))


def _version(context: CommandContext) -> Result:
    return Outcome(VERSION, {"result": "ok", "value": {"version": VERSION}})


def _autocomplete(context: CommandContext) -> Result:
    prefix = context.arguments[-1] if context.arguments else ""
    before = context.arguments[:-1]
    if "for" in context.options:
        found = completion.completions(context.text("for"), prefix, before, partial(_names, before))
    else:
        found = [name for name in registry.names() if name.startswith(prefix)]
    return Outcome("\n".join(found), found)


def _names(before: Sequence[str], resource: str, vhost: str, prefix: str) -> list[str]:
    """Find names for a command line; none if the broker does not answer soon."""
    from leveret.broker.management.cli.api import Api

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
    except (ApiFault, CommandFault, RequestTimeout, Unreachable):
        return []
    finally:
        api.close()
    entries = found["items"] if isinstance(found, dict) else found
    return sorted(name for each in entries if (name := str(each["name"])).startswith(prefix))


def _check_shell(context: CommandContext) -> None:
    if context.arguments[0] not in completion.SCRIPTS:
        raise bad_argument(f"shell should be {', '.join(completion.SCRIPTS)}")


COMMANDS: Final = (
    Command(
        name="help",
        section=SECTION,
        summary="Displays usage information for a command",
        usage="(<command> | [--list-commands])",
        run=_help,
        max_arguments=1,
        options=("list-commands",),
        offline=True,
        explanations=(("--list-commands", "list only the names of all commands"),),
    ),
    Command(
        name="version",
        section=SECTION,
        summary="Displays CLI tools version",
        run=_version,
        offline=True,
    ),
    Command(
        name="autocomplete",
        section=SECTION,
        summary="Lists the completions of a word",
        usage="[<word> ...] [prefix] [--for <command>]",
        run=_autocomplete,
        max_arguments=None,
        options=("for",),
        offline=True,
        explanations=(
            ("[prefix]", "typed part of the word"),
            ("<word>", "the words before it"),
            ("--for <command>", "complete options, values, columns and names for that command, not command names"),
        ),
    ),
    Command(
        name="completion",
        section=SECTION,
        summary="Prints the completion script of a shell",
        usage="bash | zsh | fish",
        run=lambda context: Outcome(completion.SCRIPTS[context.arguments[0]].rstrip("\n")),
        min_arguments=1,
        max_arguments=1,
        offline=True,
        check=_check_shell,
        explanations=(
            ("bash", 'source it from ~/.bashrc: eval "$(leveretctl completion bash)"'),
            ("zsh", "write it to a file _leveretctl in a directory of $fpath"),
            ("fish", "write it to ~/.config/fish/completions/leveretctl.fish"),
        ),
    ),
)
