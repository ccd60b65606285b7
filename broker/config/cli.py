"""Command line of the broker, built from the option declarations."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NoReturn

from leveret import compilation
from leveret.broker.config.config_errors import ConfigError, UsageError
from leveret.broker.config.declaration import RawSetting
from leveret.broker.config.load import CONFIG_FILE_VARIABLE, LoadResult, nearest, read
from leveret.broker.config.options import OPTIONS, Settings
from leveret.broker.version import VERSION

CHECK_CONFIG: Final = "check-config"
"""Command that checks a configuration; the broker's options follow."""
CONFIG_REFERENCE: Final = "config-reference"
"""Command that prints the reference of all options."""
BACKUP_COMMANDS: Final = ("backup", "restore", "verify")
"""Commands that take, restore and read backups."""
COMMANDS: Final = (CHECK_CONFIG, CONFIG_REFERENCE, *BACKUP_COMMANDS)


def parse(argv: Sequence[str], environ: Mapping[str, str]) -> Settings:
    """Build the settings from command line, environment and configuration file.

    Raises:
        UsageError: The command line is invalid.
        ConfigError: The environment or the file is invalid.
        SystemExit: 0, after `--help` or `--version`.
    """
    return read_configuration(argv, environ).checked().settings()


def read_configuration(argv: Sequence[str], environ: Mapping[str, str]) -> LoadResult:
    """Read command line, environment and configuration file, and collect all errors.

    Raises:
        UsageError: The command line cannot be parsed.
        SystemExit: 0, after `--help` or `--version`.
    """
    parser = _parser()
    arguments, surplus = parser.parse_known_args(argv)
    file = arguments.config or environ.get(CONFIG_FILE_VARIABLE)
    loaded = read(Path(file) if file else None, environ, arguments.given)
    unknown = [UsageError(f"unknown argument {each!r}{_advice(parser, each)}") for each in surplus]
    # Errors of the command line come first, as they may have caused the other errors.
    loaded.problems[:0] = unknown
    return loaded


def read_or_exit(argv: Sequence[str], environ: Mapping[str, str]) -> LoadResult:
    """Read a configuration without errors, as parse() does, but exit with one line on stderr if there is one.

    Raises:
        SystemExit: 0 after `--help` or `--version`, 1 for environment or file, 2 for the command line.
    """
    try:
        return read_configuration(argv, environ).checked()
    except ConfigError as error:
        sys.stderr.write(f"leveret: {error}\n")
        sys.exit(error.exit_status)


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message}; see leveret --help")


class _AppendSetting(argparse.Action):
    """Appends the value of a flag to the list of settings. All flags share the list, so that the last one counts."""

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


class _PrintVersion(argparse.Action):
    """Prints the version in one line; argparse's own action would break the line."""

    def __call__(self, parser: argparse.ArgumentParser, *rest: object) -> None:
        sys.stdout.write(f"leveret {VERSION} ({compilation.describe()})\n")
        parser.exit()


def _parser() -> _Parser:
    parser = _Parser(
        prog="leveret",
        description="An AMQP 0-9-1 broker.",
        epilog="Every option can also be set in the file and by the environment, as LEVERET_PORT=5672. `leveret"
        " check-config` with the same options reports all errors without starting the broker; --print prints the"
        " effective configuration. `leveret config-reference` describes all options.",
        allow_abbrev=False,
    )
    parser.set_defaults(given=[])
    for option in OPTIONS.values():
        if option.flag:
            text = f"{option.help} Default: {_format_default(option.default)}.".replace("%", "%%")
            parser.add_argument(
                option.flag, action=_AppendSetting, const=option.name, metavar=option.metavar, help=text, dest="given"
            )
    parser.add_argument("--config", metavar="FILE", help=f"YAML file of options. Default: ${CONFIG_FILE_VARIABLE}.")
    parser.add_argument(
        "--set", action=_AppendSetting, metavar="key=value", help="Set any option; may be repeated.", dest="given"
    )
    parser.add_argument("--version", action=_PrintVersion, nargs=0, help="Print the version and exit.")
    return parser


def _format_default(default: object) -> str:
    """Return a default value as it is written on the command line."""
    if default is None:
        return "none"
    return ", ".join(map(str, default)) if isinstance(default, tuple) else str(default)


def _advice(parser: argparse.ArgumentParser, argument: str) -> str:
    if argument in COMMANDS:
        return "; it has to come first" if argument == CHECK_CONFIG else "; it stands alone"
    if not argument.startswith("-"):
        near = nearest(argument, COMMANDS)
    else:
        # Without the dashes, which would make all flags similar.
        flags = [flag.lstrip("-") for flag in parser._option_string_actions if flag.startswith("--")]
        flag = nearest(argument.partition("=")[0].lstrip("-"), flags)
        near = flag and f"--{flag}"
    return f"; did you mean {near}?" if near else "; see leveret --help"
