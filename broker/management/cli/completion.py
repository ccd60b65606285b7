"""Shell completion: scripts for bash, zsh and fish, and the candidates that they request."""

from __future__ import annotations

from typing import Final

from leveret.broker.management.cli import registry
from leveret.broker.management.cli.formatters import FORMATTERS
from leveret.broker.management.cli.options import FLAG, GENERAL_OPTIONS, OPTION_TYPES

# Options without effect are not completed.
_HIDDEN: Final = frozenset(("erlang-cookie", "longnames", "node", "print-stacktrace"))
_VALUES: Final = {
    "formatter": tuple(FORMATTERS),
    "apply-to": ("all", "queues", "classic_queues", "quorum_queues", "streams", "exchanges"),
    "default-queue-type": ("classic", "quorum", "stream"),
    "format": ("json",),
    "unit": ("bytes", "mb", "gb", "days", "weeks", "months", "years"),
}


def completions(command_name: str, prefix: str) -> list[str]:
    """Return the completions of a word among a command's arguments.

    Args:
        command_name: name of the command; an unknown one has only the general options.
        prefix: typed part of the word.
    """
    name, equals, value = prefix.removeprefix("--").partition("=")
    if prefix.startswith("--") and equals:
        return [f"--{name}={each}" for each in _VALUES.get(name, ()) if each.startswith(value)]
    command = registry.find(command_name)
    columns = list(command.columns) if command else []
    if command_name == "help":
        columns = registry.names()
    candidates = columns + [_as_typed(option) for option in _options(command_name)]
    return sorted(word for word in candidates if word.startswith(prefix))


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
    mapfile -t COMPREPLY < <(leveretctl autocomplete --for="$command" -- "$word" 2>/dev/null)
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
    local -a found
    local command= each
    for each in "${(@)words[2,CURRENT-1]}"; do
        if [[ $each =~ '^[a-z_]+$' ]] && leveretctl help --list-commands | grep -qx -- "$each"; then
            command=$each
            break
        fi
    done
    if [[ -z $command && $words[CURRENT] != -* ]]; then
        found=(${(f)"$(leveretctl autocomplete -- "$words[CURRENT]" 2>/dev/null)"})
    else
        found=(${(f)"$(leveretctl autocomplete --for="$command" -- "$words[CURRENT]" 2>/dev/null)"})
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
        leveretctl autocomplete --for="$command" -- $word 2>/dev/null
    end
end
complete -c leveretctl -f -a '(__leveretctl_words)'
"""
SCRIPTS: Final = {"bash": BASH, "zsh": ZSH, "fish": FISH}
