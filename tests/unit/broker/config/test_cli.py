from __future__ import annotations

from pathlib import Path

import pytest

from leveret import compilation
from leveret.broker.config.cli import parse, read_or_exit
from leveret.broker.config.config_errors import ConfigError, UsageError
from leveret.broker.config.options import OPTIONS, Settings
from leveret.broker.version import VERSION


def test_all_flags() -> None:
    ports = "--port 0 --management-port 1 --prometheus-port=2"
    argv = f"--host 127.0.0.1 {ports} --data-dir /srv/data --log-level debug"
    assert parse(argv.split(), {}) == Settings(
        host=("127.0.0.1",), port=0, management_port=1, prometheus_port=2, data_dir=Path("/srv/data"), log_level="debug"
    )


def test_a_file_by_flag_comes_before_one_by_variable(tmp_path: Path) -> None:
    by_flag, by_variable = tmp_path / "flag.yaml", tmp_path / "variable.yaml"
    by_flag.write_text("port: 1")
    by_variable.write_text("port: 2")
    environ = {"LEVERET_CONFIG_FILE": str(by_variable)}
    assert parse(["--config", str(by_flag)], environ).port == 1
    assert parse([], environ).port == 2


def test_set_takes_any_option() -> None:
    settings = parse(["--set", "default_pass=a=b", "--set", "tcp_listen_options.backlog=9"], {})
    assert settings.default_pass == "a=b"
    assert settings.tcp_listen_options.backlog == 9


def test_the_last_one_wins_whichever_way_it_is_given() -> None:
    assert parse(["--port", "1", "--set", "port=2"], {}).port == 2
    assert parse(["--set", "port=2", "--port", "1"], {}).port == 1


@pytest.mark.parametrize(
    ("argv", "text"),
    [
        (["--prot", "1"], "unknown argument '--prot'; did you mean --port?"),
        (["--por", "1"], "unknown argument '--por'; did you mean --port?"),
        (["--bogus=1"], "unknown argument '--bogus=1'; see leveret --help"),
        (["chek-config"], "unknown argument 'chek-config'; did you mean check-config?"),
        (["--port", "1", "check-config"], "unknown argument 'check-config'; it has to come first"),
        (["config-reference", "--port", "1"], "unknown argument 'config-reference'; it stands alone"),
        (["start"], "unknown argument 'start'; see leveret --help"),
        (["--port"], "argument --port: expected one argument; see leveret --help"),
        (["--port", "x"], "--port: port: 'x' is not allowed; give a whole number 0..65535"),
        (["--set", "port"], "--set port: write it as --set key=value"),
        (["--set", "prot=1"], "--set: unknown option 'prot'; did you mean 'port'?"),
        (
            ["--set", "compat=1"],
            "--set: unknown option 'compat'; it is a group, give compat.advertise, compat.quorum_queues",
        ),
    ],
)
def test_bad_usage(argv: list[str], text: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(UsageError) as caught:
        parse(argv, {})
    assert str(caught.value) == text
    with pytest.raises(SystemExit) as left:
        read_or_exit(argv, {})
    assert left.value.code == 2
    assert capsys.readouterr() == ("", f"leveret: {text}\n")


def test_a_bad_file_exits_with_1(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "leveret.yaml"
    file.write_text("prot: 1")
    with pytest.raises(ConfigError):
        parse(["--config", str(file)], {})
    with pytest.raises(SystemExit) as left:
        read_or_exit(["--config", str(file)], {})
    assert left.value.code == 1
    assert capsys.readouterr().err == f"leveret: {file}:1: unknown option 'prot'; did you mean 'port'?\n"


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        parse(["--version"], {})
    assert left.value.code == 0
    assert capsys.readouterr().out == f"leveret {VERSION} ({compilation.describe()})\n"


def test_help_names_every_flag(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        parse(["--help"], {})
    assert left.value.code == 0
    text = capsys.readouterr().out
    for flag in ["--config", "--set", "--version", *(row.flag for row in OPTIONS.values())]:
        assert flag in text
    assert "Default: 0.0.0.0." in text
    assert "Default: None" not in text
