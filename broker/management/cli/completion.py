"""Shell completion: scripts for bash, zsh and fish, and the candidates that they request."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final, Protocol

from leveret.broker.management.cli import registry
from leveret.broker.management.cli.command import Command
from leveret.broker.management.cli.formatters import FORMATTERS
from leveret.broker.management.cli.options import FLAG, GENERAL_OPTIONS, OPTION_TYPES, SHORT_OPTIONS, scan

# Options without effect are not completed.
_HIDDEN: Final = frozenset(("erlang-cookie", "longnames", "node", "print-stacktrace"))
# Values of options whose usage does not list them, as `--match all|any` does.
_VALUES: Final = {
    "formatter": tuple(FORMATTERS),
    "apply-to": ("all", "queues", "classic_queues", "quorum_queues", "streams", "exchanges"),
    "format": ("json",),
    "unit": ("bytes", "mb", "gb", "days", "weeks", "months", "years"),
}
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
_OPTION_VALUE: Final = re.compile(r"--([\w-]+) (?:<([^<>]+)>|([\w|]+))")
_PLACEHOLDER: Final = re.compile(r"<([^<>]+)>")


class Names(Protocol):
    """Finds the names of objects of the broker."""

    def __call__(self, resource: str, vhost: str, prefix: str) -> list[str]:
        """Return the names that begin with a prefix.

        Args:
            resource: Path of the API: queues, exchanges, vhosts, users, policies, and so on.
            vhost: The virtual host, for what is in one.
            prefix: How they begin.
        """


def no_names(resource: str, vhost: str, prefix: str) -> list[str]:
    """Return none: the Names without a broker."""
    return []


def completions(command_name: str, prefix: str, before: Sequence[str] = (), names: Names = no_names) -> list[str]:
    """Return the completions of a word among a command's arguments.

    Args:
        command_name: name of the command; an unknown one has only the general options.
        prefix: typed part of the word.
        before: the words before it, the command among them.
        names: finds names of the broker's objects.
    """
    command = registry.find(command_name)
    parsed = scan(list(before))
    vhost = str(parsed.options.get("vhost", "/"))
    option, equals, value = prefix.removeprefix("--").partition("=")
    if prefix.startswith("--") and equals:
        return [f"--{option}={each}" for each in _values(command, option, vhost, value, names)]
    waiting = _waiting_option(before)
    if waiting:
        return _values(command, waiting, vhost, prefix, names)
    columns = list(command.columns) if command else []
    if command_name == "help":
        columns = registry.names()
    candidates = columns + [_as_typed(each) for each in _options(command_name)]
    found = {word for word in candidates if word.startswith(prefix)}
    if command is not None and not prefix.startswith("-"):
        placeholders = _PLACEHOLDER.findall(_OPTION_VALUE.sub("", command.usage))
        at = len(parsed.arguments) - 1
        if 0 <= at < len(placeholders):
            found.update(_names_for(command, placeholders[at], vhost, prefix, names))
    return sorted(found)


def _waiting_option(before: Sequence[str]) -> str:
    """Return the name of the option whose value comes next; "" if it is none."""
    last = before[-1] if before else ""
    name = last[2:] if last.startswith("--") else SHORT_OPTIONS.get(last.removeprefix("-"), "")
    return name if OPTION_TYPES.get(name, FLAG) != FLAG else ""


def _values(command: Command | None, option: str, vhost: str, prefix: str, names: Names) -> list[str]:
    """Return the values of an option that begin with a prefix."""
    listed: Sequence[str] = _VALUES.get(option, ())
    found = list[str]()
    if option == "vhost":
        found = names("vhosts", "", prefix)
    for name, placeholder, words in _OPTION_VALUE.findall(command.usage if command else ""):
        if name == option and "|" in (placeholder or words):
            listed = (placeholder or words).split("|")
        elif name == option and command is not None and not found:
            found = _names_for(command, placeholder, vhost, prefix, names)
    return list(dict.fromkeys([*(each for each in listed if each.startswith(prefix)), *found]))


def _names_for(command: Command, placeholder: str, vhost: str, prefix: str, names: Names) -> list[str]:
    resource = _RESOURCES.get(placeholder.split(" ")[-1])
    if resource is None and placeholder == "name":
        resource = _NAMED_BY.get(command.name)
    return [] if resource is None else names(resource, vhost, prefix)


def _options(command_name: str) -> list[str]:
    command = registry.find(command_name)
    own = command.options if command else ()
    return [option for option in (*GENERAL_OPTIONS, *own) if option not in _HIDDEN]


def _as_typed(option: str) -> str:
    if option == "table-headers":
        return "--no-table-headers"
    return f"--{option}" if OPTION_TYPES[option] == FLAG else f"--{option}="


BASH: Final = """\
# Completion of leveretctl for bash; loaded by: eval "$(leveretctl completion bash)"
_leveretctl() {
    local word=${COMP_WORDS[COMP_CWORD]} line=("${COMP_WORDS[@]:1:COMP_CWORD-1}") command= each
    # bash splits --option=value at the equals sign
    if [[ ${COMP_WORDS[COMP_CWORD]} == = ]]; then
        word="${COMP_WORDS[COMP_CWORD-1]}="
    elif [[ COMP_CWORD -gt 1 && ${COMP_WORDS[COMP_CWORD-1]} == = ]]; then
        word="${COMP_WORDS[COMP_CWORD-2]}=$word"
    fi
    for each in "${line[@]}"; do
        if [[ $each =~ ^[a-z_]+$ ]] && leveretctl help --list-commands | grep -qx -- "$each"; then
            command=$each
            break
        fi
    done
    if [[ -z $command && $word != -* ]]; then
        mapfile -t COMPREPLY < <(leveretctl autocomplete -- "$word" 2>/dev/null)
        return
    fi
    mapfile -t COMPREPLY < <(leveretctl autocomplete --for="$command" -- "${line[@]}" "$word" 2>/dev/null)
    if [[ $word == --*=* ]]; then
        COMPREPLY=("${COMPREPLY[@]#--*=}")
    fi
    if [[ ${#COMPREPLY[@]} -eq 1 && ${COMPREPLY[0]} == *= ]]; then
        compopt -o nospace
    fi
}
complete -o default -F _leveretctl leveretctl
"""
ZSH: Final = """\
#compdef leveretctl
# Completion of leveretctl for zsh: a file _leveretctl in a directory of $fpath.
compdef _leveretctl leveretctl
_leveretctl() {
    local -a found line=("${(@)words[2,CURRENT-1]}")
    local command= each
    for each in $line; do
        if [[ $each =~ '^[a-z_]+$' ]] && leveretctl help --list-commands | grep -qx -- "$each"; then
            command=$each
            break
        fi
    done
    if [[ -z $command && $words[CURRENT] != -* ]]; then
        found=(${(f)"$(leveretctl autocomplete -- "$words[CURRENT]" 2>/dev/null)"})
    else
        found=(${(f)"$(leveretctl autocomplete --for="$command" -- "${(@)line}" "$words[CURRENT]" 2>/dev/null)"})
    fi
    if (( $#found )); then
        compadd -S '' -- ${(M)found:#*=}
        compadd -- ${found:#*=}
    else
        _files
    fi
}
if [[ $funcstack[1] == _leveretctl ]]; then
    _leveretctl "$@"
fi
"""
FISH: Final = """\
# Completion of leveretctl for fish: ~/.config/fish/completions/leveretctl.fish.
function __leveretctl_words
    set -l known (leveretctl help --list-commands)
    set -l command
    for each in (commandline -opc)[2..-1]
        if contains -- $each $known
            set command $each
            break
        end
    end
    set -l word (commandline -ct)
    if test -z "$command"; and not string match -q -- '-*' $word
        leveretctl autocomplete -- $word 2>/dev/null
    else
        leveretctl autocomplete --for="$command" -- (commandline -opc)[2..-1] $word 2>/dev/null
    end
end
complete -c leveretctl -f -a '(__leveretctl_words)'
"""
SCRIPTS: Final = {"bash": BASH, "zsh": ZSH, "fish": FISH}
