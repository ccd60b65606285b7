"""The program `leveretctl`: finds the command, runs it and prints its result."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Mapping
from typing import TextIO

from leveret.broker.leveretctl import known_commands
from leveret.broker.leveretctl.command import Command, CommandContext, ResultRows
from leveret.broker.leveretctl.command_errors import (
    INTERRUPTED,
    OK,
    SOFTWARE,
    TEMPORARY,
    UNAVAILABLE,
    USAGE,
    ApiFault,
    CommandFault,
    RequestTimeout,
    Unreachable,
    UsageFault,
    to_command_fault,
)
from leveret.broker.leveretctl.command_line import ParsedOptions, find_address, scan
from leveret.broker.leveretctl.printing import DEFAULT, FORMATTERS, Style, to_json
from leveret.broker.printable import escape_multiline
from leveret.broker.version import VERSION


class Streams:
    """Output streams: for results and banners, and for errors."""

    def __init__(self, out: TextIO, err: TextIO) -> None:
        self.out = out
        self.err = err

    def style(self, parsed: ParsedOptions) -> Style:
        """Return the output style that the options and the terminal select."""
        headers = parsed.options.get("table-headers") is not False and not parsed.options.get("silent")
        return Style(headers=headers, terminal=self.out.isatty())

    def error(self, text: str) -> None:
        """Print an error line."""
        # Keeps the order of output if both streams go to the same file.
        self.out.flush()
        self.err.write(f"{text}\n")


def main() -> None:
    """Run the program with the arguments of the process.

    Raises:
        SystemExit: the program ends, with the command's exit status.
    """
    _prepare_streams()
    streams = Streams(sys.stdout, sys.stderr)
    try:
        status = run([os.fsencode(word).decode("utf-8") for word in sys.argv[1:]], os.environ, streams)
        sys.stdout.flush()
    except OSError as error:
        # Avoids a second error when Python flushes the stream at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        # A closed pipe is not an error: the reader, such as `head`, has read enough.
        status = OK if isinstance(error, BrokenPipeError) else SOFTWARE
        if status:
            streams.error(f"Error:\n{error.strerror or error}")
    except UnicodeDecodeError:
        streams.error("Error (argument validation): arguments and input should be UTF-8")
        status = USAGE
    except KeyboardInterrupt:
        status = INTERRUPTED
    sys.exit(status)


def _prepare_streams() -> None:
    """Replace closed standard streams by /dev/null and set the encodings."""
    sys.stdin = sys.stdin or os.fdopen(os.open(os.devnull, os.O_RDONLY))
    sys.stdout = sys.stdout or os.fdopen(os.open(os.devnull, os.O_WRONLY), "w")
    sys.stderr = sys.stderr or os.fdopen(os.open(os.devnull, os.O_WRONLY), "w")
    if isinstance(sys.stdin, io.TextIOWrapper):
        # The broker expects UTF-8, independently of the terminal's encoding.
        sys.stdin.reconfigure(encoding="utf-8", errors="strict")
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # Characters outside the terminal's encoding are escaped instead of ending a listing.
            stream.reconfigure(errors="backslashreplace")


def run(argv: list[str], environment: Mapping[str, str], streams: Streams) -> int:
    """Run one command line.

    Args:
        environment: environment variables; LEVERET_URL and LEVERET_CACERT are read.

    Returns: exit status.
    """
    preliminary = scan(argv)
    if not preliminary.arguments:
        return _without_command(argv, preliminary, streams)
    command = known_commands.find(preliminary.arguments[0])
    if command is None:
        return _report_unknown(preliminary.arguments[0], streams)
    if preliminary.options.get("help"):
        return _show_help(command, streams)
    parsed = _scan_for(command, argv)
    try:
        return _run(command, parsed, environment, streams)
    except UsageFault as fault:
        streams.error(known_commands.usage_error(command, fault.text, argv, streams.err.isatty()))
        return fault.status
    except CommandFault as fault:
        return _print_fault(fault, parsed, streams)


def _scan_for(command: Command, argv: list[str]) -> ParsedOptions:
    allowed = frozenset(command.options)
    if "table-headers" in allowed and scan(argv).options.get("formatter", DEFAULT) != DEFAULT:
        # As in rabbitmqctl, only the default formatter has this option.
        allowed = allowed - {"table-headers"}
    parsed = scan(argv, allowed)
    return parsed._replace(arguments=parsed.arguments[1:])


def _run(command: Command, parsed: ParsedOptions, environment: Mapping[str, str], streams: Streams) -> int:
    options = parsed.options
    if parsed.invalid:
        lines = "\n".join(f"{each.option} : {each.value}" for each in parsed.invalid)
        raise UsageFault(f"Invalid options for this command:\n{lines}")
    name = str(options.get("formatter", DEFAULT))
    if name not in FORMATTERS:
        raise UsageFault(f"Formatter '{name}' is not supported, only {', '.join(FORMATTERS)}")
    command.check_count(parsed.arguments)
    context = _context(command, parsed, environment)
    command.check_arguments(context)
    try:
        if context.timeout == 0:
            raise RequestTimeout
        _print_banner(command, context, name, streams)
        if options.get("dry-run") and not command.supports_dry_run:
            return OK
        result = command.result(context)
        for line in FORMATTERS[name].lines(result, streams.style(parsed)):
            streams.out.write(f"{line}\n")
    except (OSError, UnicodeDecodeError, CommandFault, UsageFault):
        raise
    except Exception as error:
        raise _to_fault(error, command, context) from error
    finally:
        context.close()
    return result.status if isinstance(result, ResultRows) else OK


def _context(command: Command, parsed: ParsedOptions, environment: Mapping[str, str]) -> CommandContext:
    if command.offline:
        return CommandContext(None, None, parsed.arguments, parsed.options)
    try:
        address = find_address(parsed.options, environment)
    except ValueError as error:
        raise UsageFault(str(error)) from error
    timeout = parsed.options.get("timeout", command.timeout)
    return CommandContext(address, None if timeout is None else float(timeout), parsed.arguments, parsed.options)


def _print_banner(command: Command, context: CommandContext, name: str, streams: Streams) -> None:
    options = context.options
    if options.get("quiet") or options.get("silent") or FORMATTERS[name].for_programs:
        return
    banner = command.banner_text(context)
    if banner:
        streams.out.write(f"{escape_multiline(banner)}\n")
        streams.out.flush()


def _to_fault(error: Exception, command: Command, context: CommandContext) -> CommandFault:
    """Convert an exception to a command error; an unexpected one is an internal error (exit status 70)."""
    if isinstance(error, ApiFault):
        return to_command_fault(error)
    if isinstance(error, RequestTimeout):
        text = f"Error: operation {command.name} on node {context.address} timed out."
        return CommandFault(TEMPORARY, f"{text} Timeout value used: {context.timeout:g}")
    if isinstance(error, Unreachable):
        return CommandFault(UNAVAILABLE, known_commands.unreachable_broker(str(context.address), str(error)))
    return CommandFault(SOFTWARE, f"Error:\n{type(error).__name__}: {error}")


def _print_fault(fault: CommandFault, parsed: ParsedOptions, streams: Streams) -> int:
    if parsed.options.get("formatter") == "json" and fault.json is not None:
        streams.error(to_json(fault.json))
        return fault.json_status
    streams.error(escape_multiline(fault.text))
    return fault.status


def _without_command(argv: list[str], preliminary: ParsedOptions, streams: Streams) -> int:
    if argv == ["--version"]:
        streams.out.write(f"{VERSION}\n")
        return OK
    if preliminary.options.get("help"):
        streams.out.write(f"{known_commands.command_list(streams.out.isatty())}\n")
        return OK
    streams.error(known_commands.command_list(streams.err.isatty()))
    return USAGE


def _report_unknown(name: str, streams: Streams) -> int:
    if name in known_commands.UNSUPPORTED:
        why = f"Leveret does not support it: {known_commands.UNSUPPORTED[name]}."
        streams.error(f"\n{known_commands.unknown_command(name, None)}\n{why}")
        return USAGE
    near = known_commands.closest_name(name)
    text = f"\n{known_commands.unknown_command(name, near)}"
    streams.error(text if near else f"{text}\n{known_commands.command_list(streams.err.isatty())}")
    return USAGE


def _show_help(command: Command, streams: Streams) -> int:
    streams.out.write(f"{known_commands.command_help(command, streams.out.isatty())}\n")
    return OK
