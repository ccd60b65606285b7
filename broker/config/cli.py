"""The broker's command line, built from the option declarations."""

from __future__ import annotations

import argparse
import difflib
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NoReturn

from leveret.broker.config.errors import ConfigError, UsageError
from leveret.broker.config.load import CONFIG_FILE_VARIABLE, LoadResult, read
from leveret.broker.config.options import OPTIONS
from leveret.broker.config.raw_setting import RawSetting
from leveret.broker.version import VERSION

if TYPE_CHECKING:
    from leveret.broker.config.options import Settings


CHECK_CONFIG: Final = "check-config"
"""The command that checks a configuration; the broker's options follow."""
CONFIG_REFERENCE: Final = "config-reference"
"""The command that describes all options."""
COMMANDS: Final = (CHECK_CONFIG, CONFIG_REFERENCE)


def parse(argv: Sequence[str], environ: Mapping[str, str]) -> Settings:
    """Make the settings out of the command line, the environment and the file that they name.

    Args:
        argv: The arguments, without the program's name.
        environ: The environment.

    Returns:
        The settings.

    Raises:
        UsageError: The command line cannot be used.
        ConfigError: The environment or the file cannot be used.
        SystemExit: 0, after `--help` or `--version`.
    """
    loaded = gather(argv, environ)
    if loaded.problems:
        raise loaded.problems[0]
    return loaded.settings()


def gather(argv: Sequence[str], environ: Mapping[str, str]) -> LoadResult:
    """Read the command line, the environment and the file that they name, and find all that is wrong with them.

    Args:
        argv: The arguments, without the program's name.
        environ: The environment.

    Returns:
        What was given, and what is wrong.

    Raises:
        UsageError: The command line cannot be taken apart.
        SystemExit: 0, after `--help` or `--version`.
    """
    parser = _parser()
    arguments, surplus = parser.parse_known_args(argv)
    file = arguments.config or environ.get(CONFIG_FILE_VARIABLE)
    loaded = read(Path(file) if file else None, environ, arguments.given)
    unknown = [UsageError(f"unknown argument {each!r}{_advice(parser, each)}") for each in surplus]
    # As ever, the command line comes first: what is wrong with it may have made the rest wrong.
    loaded.problems[:0] = unknown
    return loaded


def parse_or_exit(argv: Sequence[str], environ: Mapping[str, str]) -> Settings:
    """Do as `parse` does, but end the program with one line on stderr where it raises.

    Args:
        argv: The arguments, without the program's name.
        environ: The environment.

    Returns:
        The settings.

    Raises:
        SystemExit: 0 after `--help` or `--version`, 1 for environment or file, 2 for the command line.
    """
    try:
        return parse(argv, environ)
    except ConfigError as error:
        sys.stderr.write(f"leveret: {error}\n")
        sys.exit(error.exit_status)


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message}; see leveret --help")


class _Give(argparse.Action):
    """Adds a flag's value to those given; all flags share one list, so that the last one wins."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: Any,
        option_string: str | None = None,
    ) -> None:
        name, value = self.const, values
        if name is None:
            name, equals, value = values.partition("=")
            if not equals:
                raise UsageError(f"{option_string} {values}: write it as --set key=value")
        namespace.given.append(RawSetting(name, value, str(option_string), UsageError))


def _parser() -> _Parser:
    parser = _Parser(
        prog="leveret",
        description="An AMQP 0-9-1 broker.",
        epilog="Every option can also be set in the file and by the environment, as LEVERET_PORT=5672. `leveret"
        " check-config` with the same options tells all that is wrong with them and starts nothing, with --print what"
        " is in force; `leveret config-reference` describes all options.",
        allow_abbrev=False,
    )
    parser.set_defaults(given=[])
    for option in OPTIONS.values():
        if option.flag:
            text = f"{option.help} Default: {_shown(option.default)}.".replace("%", "%%")
            parser.add_argument(
                option.flag, action=_Give, const=option.name, metavar=option.metavar, help=text, dest="given"
            )
    parser.add_argument("--config", metavar="FILE", help=f"YAML file of options. Default: ${CONFIG_FILE_VARIABLE}.")
    parser.add_argument(
        "--set", action=_Give, metavar="key=value", help="Set any option; may be repeated.", dest="given"
    )
    parser.add_argument("--version", action="version", version=f"leveret {VERSION}")
    return parser


def _shown(default: object) -> str:
    """A default value as it would be written."""
    if default is None:
        return "none"
    return ", ".join(map(str, default)) if isinstance(default, tuple) else str(default)


def _advice(parser: argparse.ArgumentParser, argument: str) -> str:
    if argument in COMMANDS:
        return "; it has to come first" if argument == CHECK_CONFIG else "; it stands alone"
    if not argument.startswith("-"):
        near = difflib.get_close_matches(argument, COMMANDS, n=1)
        return f"; did you mean {near[0]}?" if near else "; see leveret --help"
    # With the dashes, everything would resemble everything.
    flags = [flag.lstrip("-") for flag in parser._option_string_actions if flag.startswith("--")]
    near = difflib.get_close_matches(argument.partition("=")[0].lstrip("-"), flags, n=1)
    return f"; did you mean --{near[0]}?" if near else "; see leveret --help"
