"""What a word can be completed to."""

from __future__ import annotations

import shutil
import subprocess

import pytest

from leveret.broker.leveretctl.commands.help_commands import SCRIPTS, completions


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
    ended = subprocess.run([program, "-n", SCRIPTS[shell]], capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stderr) == (0, "")


class FakeNames:
    """Names of a broker; notes what it was asked for."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str]] = []

    def __call__(self, resource: str, vhost: str, prefix: str) -> list[str]:
        self.asked.append((resource, vhost))
        return [f"{prefix}-{resource}"]


@pytest.mark.parametrize(
    ("before", "word", "found", "asked"),
    [
        ("purge_queue", "o", ["o-queues"], ("queues", "/")),
        ("-p shop browse", "o", ["o-queues"], ("queues", "shop")),
        ("purge_queue --vhost=shop", "o", ["o-queues"], ("queues", "shop")),
        ("purge_queue --vhost", "s", ["s-vhosts"], ("vhosts", "")),
        ("purge_queue -p", "s", ["s-vhosts"], ("vhosts", "")),
        ("set_permissions", "g", ["g-users"], ("users", "/")),
        ("set_topic_permissions guest", "a", ["a-exchanges"], ("exchanges", "/")),
        ("move_messages here", "t", ["t-queues"], ("queues", "/")),
        ("clear_policy", "p", ["p-policies"], ("policies", "/")),
        ("replay log --into-queue", "x", ["x-queues"], ("queues", "/")),
        ("list_user_limits", "--user=a", ["--user=a-users"], ("users", "/")),
        ("purge_queue q", "x", [], None),
        ("set_parameter c", "n", [], None),
    ],
)
def test_names(before: str, word: str, found: list[str], asked: tuple[str, str] | None) -> None:
    names, words = FakeNames(), before.split()
    command = next(each for each in words if "_" in each or each in ("browse", "replay"))
    assert completions(command, word, words, names) == found
    assert names.asked == ([] if asked is None else [asked])


def test_values_that_the_usage_lists() -> None:
    assert completions("return_messages", "--via=") == ["--via=queue", "--via=exchange"]
    assert completions("return_messages", "f", ["return_messages", "q", "--death"]) == ["first"]
    assert completions("add_vhost", "--default-queue-type=s") == ["--default-queue-type=stream"]
