"""Help and usage texts."""

from __future__ import annotations

from typing import Final

from leveret.broker.management.cli import known_commands
from leveret.broker.management.cli.command import Command
from leveret.broker.management.cli.printing import Style

PROGRAM: Final = "leveretctl"
_GENERAL: Final = """\
The following options are accepted by most or all commands.

short            | long          | description
-----------------|---------------|--------------------------------
-?               | --help        | displays command help
                 | --url <url>   | the broker's HTTP API, http://user:password@host:port;
                 |               | default: $LEVERET_URL, then http://guest:guest@127.0.0.1:15672
                 | --cacert <f>  | PEM file of the authority of its certificate, with https://;
                 |               | default: $LEVERET_CACERT, then those of the system
-t <n>           | --timeout <n> | seconds to wait for an answer
-q               | --quiet       | suppress informational messages
-s               | --silent      | suppress informational messages
                                 | and table header row
-p               | --vhost       | for commands that are scoped to a virtual host,
                 |               | virtual host to use
                 | --formatter   | alternative result formatter to use:
                                 | json, pretty_table, table, csv, erlang
                 | --dry-run     | show what would be done, without doing it
-n <node>        | --node <node> | accepted and ignored, as is -l | --longnames"""


def command_list(terminal: bool) -> str:
    """Return the help text that lists all commands, with bold headers on a terminal."""
    bold = Style(terminal=terminal).bold
    line = f"{PROGRAM} [--url <url>] [--timeout <timeout>] [--quiet] <command> [<options>]"
    lines = ["", bold("Usage"), "", line, "", "Available commands:", ""]
    longest = max(map(len, known_commands.names()))
    for section, modules in known_commands.SECTIONS.items():
        listed = sorted(" ".join(modules.values()).split())
        summaries = [f"   {name:{longest}}  {known_commands.get(name).summary}" for name in listed]
        lines += [f"{bold(section)}:", "", *summaries, ""]
    lines.append(f"Use '{PROGRAM} help <command>' to learn more about a specific command")
    return "\n".join(lines)


def usage(command: Command) -> str:
    """Return the usage line of a command."""
    return f"{PROGRAM} [--url <url>] [--quiet] {command.name} {command.usage}".rstrip()


def command_help(command: Command, terminal: bool) -> str:
    """Return the help text of a command, with bold headers on a terminal."""
    bold = Style(terminal=terminal).bold
    lines = ["", bold("Usage"), "", usage(command), "", f"{command.summary.rstrip('.')}.", ""]
    explanations = [(part.heading, part.text) for part in command.parts if part.text]
    if command.columns:
        explanations.insert(0, ("<column>", f"must be one of {', '.join(sorted(command.columns))}"))
    if explanations:
        lines += [bold("Arguments and Options"), ""]
        for name, text in explanations:
            lines += [name, f"\t{text}", ""]
    lines += [bold("General Options"), "", _GENERAL, ""]
    return "\n".join(lines)


def usage_error(command: Command, text: str, argv: list[str], terminal: bool) -> str:
    """Return the error text for an invalid command line."""
    given = " ".join(_masked(argv))
    usage_header = Style(terminal=terminal).bold("Usage")
    return f"Error (argument validation): {text}\nArguments given:\n\t{given}\n\n{usage_header}\n\n{usage(command)}"


def _masked(argv: list[str]) -> list[str]:
    """Remove logins from URLs, because the text may be logged."""
    return [_without_login(word) if "://" in word and "@" in word else word for word in argv]


def _without_login(word: str) -> str:
    scheme, _, rest = word.partition("://")
    return f"{scheme}://{rest.rpartition('@')[2]}"


def unknown_command(name: str, near: str | None) -> str:
    """Return the error text for a command that does not exist."""
    text = f"Command '{name}' not found. "
    return f"{text}\nDid you mean '{near}'? \n" if near else text


def unreachable_broker(address: str, reason: str) -> str:
    """Return the error text for a broker that does not respond."""
    return f"""\
Error: unable to perform an operation on node '{address}'. Please see diagnostics information and suggestions below.

Most common reasons for this are:

 * Target node is unreachable_broker (e.g. due to hostname resolution, TCP connection or firewall issues)
 * Target node is not running
 * Its management API listens on another address or port

DIAGNOSTICS
===========

attempted to contact: [{address}]

{address}:
  * {reason}
  * suggestion: start the broker, or set the URL of its HTTP API with --url or LEVERET_URL
"""
