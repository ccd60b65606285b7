"""Reads options from a YAML file, with their line numbers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from leveret.broker.config.config_errors import ConfigError
from leveret.broker.config.declaration import RawSetting
from leveret.broker.config.options import OPTIONS, is_group, members


def read_file(file: Path) -> Iterator[RawSetting | ConfigError]:
    """Read the settings of a YAML file.

    Yields:
        Settings, and errors of the file: it cannot be read, is not YAML, or contains an option twice.
    """
    try:
        content = file.read_bytes()
        yield from _Reader(file, content).options()
    except OSError as error:
        yield ConfigError(f"{file}: cannot be read: {error.strerror}")
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f"{file}:{mark.line + 1}" if mark is not None else str(file)
        yield ConfigError(f"{where}: is not YAML: {_reason(error)}")
    except RecursionError:
        yield ConfigError(f"{file}: is nested too deeply")
    except (yaml.YAMLError, ValueError) as error:
        yield ConfigError(f"{file}: is not YAML: {' '.join(str(error).split())}")


def _reason(error: yaml.MarkedYAMLError) -> str:
    """Return the error text without the lines that PyYAML quotes: they may contain passwords."""
    parts = ((error.context, error.context_mark), (error.problem, error.problem_mark))
    return ", ".join(f"{text} in line {mark.line + 1}" if mark else text for text, mark in parts if text)


class _Reader:
    """Reads a file node by node: PyYAML's loader drops line numbers, and accepts duplicate names."""

    def __init__(self, file: Path, content: bytes) -> None:
        self._file = file
        self._loader = yaml.SafeLoader(content)
        self._seen: dict[str, int] = {}

    def options(self) -> Iterator[RawSetting | ConfigError]:
        root = self._loader.get_single_node()
        if root is None or root.tag == "tag:yaml.org,2002:null":
            return
        if isinstance(root, yaml.MappingNode):
            yield from self._flatten(root, "")
        else:
            yield ConfigError(f"{self._file}: must be a mapping of option names to values")

    def _flatten(self, node: yaml.MappingNode, prefix: str) -> Iterator[RawSetting | ConfigError]:
        self._loader.flatten_mapping(node)
        for key, value in node.value:
            name = f"{prefix}{self._value(key)}"
            line = key.start_mark.line + 1
            origin = f"{self._file}:{line}"
            if name in OPTIONS or not is_group(name):
                yield from self._read_setting(name, value, line)
            elif isinstance(value, yaml.MappingNode):
                yield from self._flatten(value, f"{name}.")
            elif self._value(value) is not None:
                yield ConfigError(f"{origin}: {name} is a group; give {', '.join(members(name))}")

    def _read_setting(self, name: str, value: yaml.Node, line: int) -> Iterator[RawSetting | ConfigError]:
        origin = f"{self._file}:{line}"
        if name in self._seen:
            yield ConfigError(f"{origin}: {name} is given twice, first in line {self._seen[name]}; keep one")
            return
        self._seen[name] = line
        try:
            # Unknown names are refused later, for all sources in one place.
            yield RawSetting(name, self._value(value), origin)
        except ValueError as error:
            # For example, a date that does not exist.
            yield ConfigError(f"{origin}: {name}: is not YAML: {error}")

    def _value(self, node: yaml.Node) -> Any:
        return self._loader.construct_document(node)
