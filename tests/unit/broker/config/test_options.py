from __future__ import annotations

import dataclasses
import operator
from pathlib import Path
from typing import Any

import pytest

from leveret.broker.config.declaration import Option, build, declared, group, option
from leveret.broker.config.kinds import integer, text
from leveret.broker.config.options import OPTIONS, Settings


@dataclasses.dataclass(frozen=True, slots=True)
class Inner:
    depth: int = option(integer(0, 9), 1, "How deep.")


@dataclasses.dataclass(frozen=True, slots=True)
class Outer:
    name: str = option(text(), "n", "What it is called.", flag="--name")
    inner: Inner = group(Inner)


def test_names_are_paths_of_fields() -> None:
    assert list(declared(Outer)) == ["name", "inner.depth"]


def test_build_fills_groups_and_defaults() -> None:
    assert build(Outer, {"inner.depth": 7}) == Outer(name="n", inner=Inner(depth=7))


@pytest.mark.parametrize("name", OPTIONS)
def test_a_default_is_an_allowed_value(name: str) -> None:
    default: Any = OPTIONS[name].default
    given = list(default) if isinstance(default, tuple) else default
    if default is not None and not isinstance(default, int | float | tuple | dict):
        given = str(default)
    assert OPTIONS[name].kind.read(given) == default
    assert operator.attrgetter(name)(Settings()) == default


@pytest.mark.parametrize("row", OPTIONS.values(), ids=OPTIONS)
def test_every_option_says_what_it_does(row: Option) -> None:
    assert row.help.endswith(".")
    assert row.kind.allowed


def test_every_option_has_its_own_variable_and_flag() -> None:
    variables = [row.environment for row in OPTIONS.values()]
    flags = [row.flag for row in OPTIONS.values() if row.flag]
    assert len(set(variables)) == len(variables)
    assert len(set(flags)) == len(flags)


def test_the_documented_defaults() -> None:
    settings = Settings()
    assert (settings.port, settings.management_port, settings.prometheus_port) == (5672, 15672, 15692)
    assert settings.data_dir == Path("leveret-data")
    assert (settings.heartbeat, settings.frame_max, settings.channel_max) == (60, 131072, 2047)
    assert settings.loopback_users == (settings.default_user,)
    assert settings.vm_memory_high_watermark.relative == 0.4
    assert str(settings.compat.advertise) == "RabbitMQ 3.10.8"
