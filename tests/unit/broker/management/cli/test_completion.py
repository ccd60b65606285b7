"""What a word can be completed to."""

from __future__ import annotations

import shutil
import subprocess

import pytest

from leveret.broker.management.cli.completion import SCRIPTS, completions


def test_columns_and_options() -> None:
    assert completions("list_queues", "consumer") == ["consumer_capacity", "consumer_utilisation", "consumers"]
    assert completions("list_queues", "--o") == ["--offline", "--online"]
    assert completions("list_queues", "--no") == ["--no-table-headers"]
    assert "--vhost=" in completions("list_queues", "--")
    assert completions("set_policy", "--pri") == ["--priority="]
    assert completions("delete_queue", "--pri") == []


def test_values() -> None:
    assert completions("list_queues", "--formatter=p") == ["--formatter=pretty_table"]
    assert completions("set_policy", "--apply-to=q") == ["--apply-to=queues", "--apply-to=quorum_queues"]
    assert completions("set_policy", "--vhost=") == []


def test_help_takes_commands() -> None:
    assert completions("help", "list_pol") == ["list_policies"]


def test_without_a_command() -> None:
    assert completions("", "--form") == ["--formatter="]
    assert completions("nonsense", "x") == []


def test_what_does_nothing_is_not_offered() -> None:
    assert not {"--node=", "--longnames"} & set(completions("list_queues", "--"))


@pytest.mark.parametrize("shell", sorted(SCRIPTS))
def test_a_shell_that_is_there_understands_its_script(shell: str) -> None:
    program = shutil.which(shell)
    if program is None:
        # Fish has no form to parse it otherwise; bash is on every machine that runs these tests.
        assert shell != "bash"
        return
    ended = subprocess.run([program, "-n"], input=SCRIPTS[shell], capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stderr) == (0, "")
