"""help, version, autocomplete and completion: no broker is asked."""

from __future__ import annotations

from typing import Final

from leveret.broker.management.cli import completion, registry
from leveret.broker.management.cli.command import Command, CommandContext, Outcome, Result
from leveret.broker.management.cli.faults import USAGE, CommandFault, bad_argument
from leveret.broker.management.cli.help_text import details, overview, unknown
from leveret.broker.version import VERSION

SECTION: Final = "Help"


def _help(context: CommandContext) -> Result:
    import sys

    terminal = sys.stdout.isatty()
    if context.flag("list-commands"):
        return Outcome("\n".join(registry.names()))
    if not context.arguments:
        return Outcome(overview(terminal))
    name = context.arguments[0]
    command = registry.find(name)
    if command is None:
        near = registry.nearest(name)
        raise CommandFault(
            USAGE, f"Error:\n\n{unknown(name, near)}" if near else f"Error:\n\n{unknown(name, None).rstrip()}"
        )
    return Outcome(details(command, terminal))


def _version(context: CommandContext) -> Result:
    return Outcome(VERSION, {"result": "ok", "value": {"version": VERSION}})


def _autocomplete(context: CommandContext) -> Result:
    prefix = context.arguments[-1] if context.arguments else ""
    if "for" in context.options:
        found = completion.words(context.text("for"), prefix)
    else:
        found = [name for name in registry.names() if name.startswith(prefix)]
    return Outcome("\n".join(found), found)


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
        most=1,
        options=("list-commands",),
        offline=True,
        explanations=(("--list-commands", "only the names of all commands"),),
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
        summary="Provides the variants that a word can be completed to",
        usage="[prefix] [--for <command>]",
        run=_autocomplete,
        most=1,
        options=("for",),
        offline=True,
        explanations=(
            ("[prefix]", "what has been typed of the word"),
            ("--for <command>", "options and columns of that command, instead of commands"),
        ),
    ),
    Command(
        name="completion",
        section=SECTION,
        summary="Prints the completion script of a shell",
        usage="bash | zsh | fish",
        run=lambda context: Outcome(completion.SCRIPTS[context.arguments[0]].rstrip("\n")),
        least=1,
        most=1,
        offline=True,
        check=_check_shell,
        explanations=(
            ("bash", 'source it from ~/.bashrc: eval "$(leveretctl completion bash)"'),
            ("zsh", "write it to a file _leveretctl in a directory of $fpath"),
            ("fish", "write it to ~/.config/fish/completions/leveretctl.fish"),
        ),
    ),
)
