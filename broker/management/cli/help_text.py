"""What the program says about itself and about misuse."""

from __future__ import annotations

from typing import Final

from leveret.broker.management.cli import registry
from leveret.broker.management.cli.command import Command
from leveret.broker.management.cli.formatters.style import Style

PROGRAM: Final = "leveretctl"
SECTIONS: Final = (
    "Help",
    "Nodes",
    "Cluster",
    "Users",
    "Access Control",
    "Monitoring, observability and health checks",
    "Parameters",
    "Policies",
    "Virtual hosts",
    "Configuration and Environment",
    "Definitions",
    "Feature flags",
    "Operations",
    "Queues",
    "Deprecated",
)
_GENERAL: Final = """\
The following options are accepted by most or all commands.

short            | long          | description
-----------------|---------------|--------------------------------
-?               | --help        | displays command help
                 | --url <url>   | the broker's HTTP API, http://user:password@host:port;
                 |               | default: $LEVERET_URL, then http://guest:guest@127.0.0.1:15672
-t <n>           | --timeout <n> | seconds to wait for an answer
-q               | --quiet       | suppress informational messages
-s               | --silent      | suppress informational messages
                                 | and table header row
-p               | --vhost       | for commands that are scoped to a virtual host,
                 |               | virtual host to use
                 | --formatter   | alternative result formatter to use:
                                 | json, pretty_table, table, csv, erlang
                 | --dry-run     | say what would be done, without doing it
-n <node>        | --node <node> | accepted and ignored, as is -l | --longnames"""


def overview(terminal: bool) -> str:
    """Return the list of all commands.

    Args:
        terminal: whether headers may be bold.
    """
    bold = Style(terminal=terminal).bold
    lines = [
        "",
        bold("Usage"),
        "",
        f"{PROGRAM} [--url <url>] [--timeout <timeout>] [--quiet] <command> [<options>]",
        "",
    ]
    lines += ["Available commands:", ""]
    commands = sorted(registry.commands(), key=lambda command: command.name)
    longest = max(len(command.name) for command in commands)
    for section in SECTIONS:
        lines += [f"{bold(section)}:", ""]
        lines += [f"   {each.name:{longest}}  {each.summary}" for each in commands if each.section == section]
        lines.append("")
    lines.append(f"Use '{PROGRAM} help <command>' to learn more about a specific command")
    return "\n".join(lines)


def usage(command: Command) -> str:
    """Return the line that says how a command is called."""
    return f"{PROGRAM} [--url <url>] [--quiet] {command.name} {command.usage}".rstrip()


def details(command: Command, terminal: bool) -> str:
    """Return all about a command.

    Args:
        command: which.
        terminal: whether headers may be bold.
    """
    bold = Style(terminal=terminal).bold
    lines = ["", bold("Usage"), "", usage(command), "", f"{command.summary.rstrip('.')}.", ""]
    explanations = list(command.explanations)
    if command.columns:
        explanations.insert(0, ("<column>", f"must be one of {', '.join(sorted(command.columns))}"))
    if explanations:
        lines += [bold("Arguments and Options"), ""]
        for name, text in explanations:
            lines += [name, f"\t{text}", ""]
    lines += [bold("General Options"), "", _GENERAL, ""]
    return "\n".join(lines)


def misuse(command: Command, text: str, argv: list[str], terminal: bool) -> str:
    """Return what is printed about a command line that the command does not understand."""
    given = " ".join(_masked(argv))
    usage_header = Style(terminal=terminal).bold("Usage")
    return f"Error (argument validation): {text}\nArguments given:\n\t{given}\n\n{usage_header}\n\n{usage(command)}"


def _masked(argv: list[str]) -> list[str]:
    """Leave out the password of a URL: the text may end in a log."""
    return [_without_login(word) if "://" in word and "@" in word else word for word in argv]


def _without_login(word: str) -> str:
    scheme, _, rest = word.partition("://")
    return f"{scheme}://{rest.rpartition('@')[2]}"


def unknown(name: str, near: str | None) -> str:
    """Return what is printed about a command that does not exist."""
    text = f"Command '{name}' not found. "
    return f"{text}\nDid you mean '{near}'? \n" if near else text


def unreachable(address: str, reason: str) -> str:
    """Return what is printed when the broker does not answer."""
    return f"""\
Error: unable to perform an operation on node '{address}'. Please see diagnostics information and suggestions below.

Most common reasons for this are:

 * Target node is unreachable (e.g. due to hostname resolution, TCP connection or firewall issues)
 * Target node is not running
 * Its management API listens on another address or port

DIAGNOSTICS
===========

attempted to contact: [{address}]

{address}:
  * {reason}
  * suggestion: start the broker, or name its HTTP API with --url or LEVERET_URL
"""
