"""A YAML file of options, with the lines in which they stand."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from leveret.broker.config.errors import ConfigError
from leveret.broker.config.groups import is_group, members
from leveret.broker.config.options import OPTIONS
from leveret.broker.config.raw_setting import RawSetting


def read_file(file: Path) -> Iterator[RawSetting | ConfigError]:
    """Take the values out of a YAML file.

    Args:
        file: The file.

    Yields:
        What it gives, and what is wrong with the file itself: it cannot be read, is no YAML, or names an option twice.
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
    """What is wrong, without the lines that yaml shows beside it: passwords may stand there."""
    said = ((error.context, error.context_mark), (error.problem, error.problem_mark))
    return ", ".join(f"{text} in line {mark.line + 1}" if mark else text for text, mark in said if text)


class _Reader:
    """Reads a file node by node: YAML's own loader forgets the lines, and takes the last of two equal names."""

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
            yield ConfigError(f"{self._file}: has to be a mapping of option names to values")

    def _flatten(self, node: yaml.MappingNode, prefix: str) -> Iterator[RawSetting | ConfigError]:
        self._loader.flatten_mapping(node)
        for key, value in node.value:
            name = f"{prefix}{self._value(key)}"
            line = key.start_mark.line + 1
            origin = f"{self._file}:{line}"
            if name in OPTIONS or not is_group(name):
                yield from self._given(name, value, line)
            elif isinstance(value, yaml.MappingNode):
                yield from self._flatten(value, f"{name}.")
            elif self._value(value) is not None:
                yield ConfigError(f"{origin}: {name} is a group; give {', '.join(members(name))}")

    def _given(self, name: str, value: yaml.Node, line: int) -> Iterator[RawSetting | ConfigError]:
        origin = f"{self._file}:{line}"
        if name in self._seen:
            yield ConfigError(f"{origin}: {name} is given twice, first in line {self._seen[name]}; keep one")
            return
        self._seen[name] = line
        try:
            # An unknown name is refused with the values, where all sources are.
            yield RawSetting(name, self._value(value), origin)
        except ValueError as error:
            # A date that does not exist, for example.
            yield ConfigError(f"{origin}: {name}: is not YAML: {error}")

    def _value(self, node: yaml.Node) -> Any:
        return self._loader.construct_document(node)
