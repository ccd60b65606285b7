"""Rules 3.1.2 to 3.1.16: policies on the command line."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest

from tests.conformance.conftest import Broker
from tests.support.leveretctl import CommandResult, Leveretctl

# Word in the names of the commands, the same in banners when it is set and when it is cleared.
POLICY = ("policy", "policy", "policy")
OPERATOR_POLICY = ("operator_policy", "operator policy override", "operator policy")
KINDS = [POLICY, OPERATOR_POLICY]
Kind = tuple[str, str, str]

kinds = pytest.mark.parametrize("kind", KINDS, ids=["policy", "operator"])


@pytest.fixture(scope="module")
def ctl(broker: Broker) -> Leveretctl:
    return Leveretctl(broker.http_url)


@pytest.fixture
def own_vhost(ctl: Leveretctl) -> Iterator[str]:
    name = f"conformance-{uuid.uuid4().hex[:12]}"
    ctl.output("add_vhost", name)
    yield name
    ctl.output("delete_vhost", name)


def setting(kind: Kind, vhost: str, name: str, pattern: str, definition: str, priority: int = 0) -> str:
    return (
        f'Setting {kind[1]} "{name}" for pattern "{pattern}" to "{definition}" with priority "{priority}"'
        f' for vhost "{vhost}" ...\n'
    )


@kinds
@pytest.mark.parametrize(
    "options",
    [
        ("--priority", "7", "--apply-to", "queues"),
        ("--apply-to=queues", "--priority=7"),
        ("--priority", "-7", "--apply-to", "queues"),
    ],
)
def test_3_1_2_options_stand_anywhere(ctl: Leveretctl, own_vhost: str, kind: Kind, options: tuple[str, ...]) -> None:
    priority = -7 if "-7" in options else 7
    arguments = (f"set_{kind[0]}", "p1", "^a", '{"max-length":10}')
    for split in (0, 1, 2, 4):
        given = (*arguments[:split], *options, "-p", own_vhost, *arguments[split:])
        assert ctl(*given) == CommandResult(0, setting(kind, own_vhost, "p1", "^a", '{"max-length":10}', priority), "")
    listed = ctl.output(f"list_{kind[0].replace('policy', 'policies')}", "--vhost", own_vhost, "--silent")
    assert listed == f'{own_vhost}\tp1\t^a\tqueues\t{{"max-length":10}}\t{priority}\n'


@kinds
@pytest.mark.parametrize("option", ["-q", "--quiet", "-s", "--silent"])
def test_3_1_2_quiet(ctl: Leveretctl, own_vhost: str, kind: Kind, option: str) -> None:
    assert ctl(f"set_{kind[0]}", option, "-p", own_vhost, "p1", "^a", '{"max-length":10}') == CommandResult(0, "", "")


@kinds
def test_3_1_3_clear(ctl: Leveretctl, own_vhost: str, kind: Kind) -> None:
    ctl.output(f"set_{kind[0]}", "-p", own_vhost, "p1", "^a", '{"max-length":10}')
    banner = f'Clearing {kind[2]} "p1" on vhost "{own_vhost}" ...\n'
    assert ctl(f"clear_{kind[0]}", "-p", own_vhost, "p1") == CommandResult(0, banner, "")
    gone = CommandResult(69, banner, "Error:\nParameter does not exist\n")
    assert ctl(f"clear_{kind[0]}", "-p", own_vhost, "p1") == gone


@kinds
def test_3_1_3_clear_in_an_unknown_vhost(ctl: Leveretctl, kind: Kind) -> None:
    banner = f'Clearing {kind[2]} "p1" on vhost "no-such" ...\n'
    ran = ctl(f"clear_{kind[0]}", "-p", "no-such", "p1")
    assert ran == CommandResult(69, banner, "Error:\nParameter does not exist\n")


@kinds
@pytest.mark.parametrize(
    ("definition", "reason"),
    [
        ('{"max-length":-1}', "-1 is not a valid maximum length"),
        ('{"max-length":"x"}', '"x" is not a valid maximum length'),
        ('{"nope":1}', '[{"nope",1}] are not recognised policy settings'),
        ("{}", "no policy provided"),
    ],
)
def test_3_1_4_validation_fails(ctl: Leveretctl, own_vhost: str, kind: Kind, definition: str, reason: str) -> None:
    ran = ctl(f"set_{kind[0]}", "-p", own_vhost, "bad", "q", definition)
    banner = setting(kind, own_vhost, "bad", "q", definition)
    assert ran == CommandResult(69, banner, f"Error:\nValidation failed\n\n{reason}\n\n")


@kinds
def test_3_1_4_an_option_or_the_number_of_arguments_is_wrong(ctl: Leveretctl, kind: Kind) -> None:
    name = f"set_{kind[0]}"
    for arguments, complaint in (
        (("bad",), "not enough arguments."),
        (("a", "b", "c", "d"), "too many arguments."),
        (("a", "b", "{}", "--nope"), "Invalid options for this command:\n--nope : "),
        (("a", "b", "{}", "-x"), "Invalid options for this command:\n-x : "),
        (("a", "b", "{}", "--if-empty"), "Invalid options for this command:\n--if-empty : "),
        (("a", "b", "{}", "-p"), "Invalid options for this command:\n-p : "),
    ):
        status, out, err = ctl(name, *arguments)
        assert (status, out) == (64, "")
        given = " ".join((name, *arguments))
        assert err.startswith(f"Error (argument validation): {complaint}\nArguments given:\n\t{given}\n\nUsage\n\n")
        assert err.endswith(" <name> <pattern> <definition>\n")


@kinds
def test_3_1_4_unknown_vhost(ctl: Leveretctl, kind: Kind) -> None:
    ran = ctl(f"set_{kind[0]}", "-p", "no-such", "bad", "q", '{"max-length":1}')
    banner = setting(kind, "no-such", "bad", "q", '{"max-length":1}')
    assert ran == CommandResult(65, banner, "Virtual host 'no-such' does not exist\n")


@kinds
def test_3_1_7_no_json(ctl: Leveretctl, own_vhost: str, kind: Kind) -> None:
    ran = ctl(f"set_{kind[0]}", "-p", own_vhost, "bad", "q", "notjson")
    banner = setting(kind, own_vhost, "bad", "q", "notjson")
    assert ran == CommandResult(69, banner, "Error:\nJSON decoding error: Expecting value at character 1\n")


@kinds
@pytest.mark.parametrize("definition", ["[1]", "5", '"x"', "null"])
def test_3_1_7_json_that_is_no_object(ctl: Leveretctl, own_vhost: str, kind: Kind, definition: str) -> None:
    ran = ctl(f"set_{kind[0]}", "-p", own_vhost, "bad", "q", definition)
    reason = f"policy definition should be a JSON object, actually was {definition}"
    assert (ran.status, ran.err) == (69, f"Error:\nValidation failed\n\n{reason}\n\n")


@kinds
@pytest.mark.parametrize("priority", ["x", "1.5", ""])
def test_3_1_14_priority_has_to_be_whole(ctl: Leveretctl, own_vhost: str, kind: Kind, priority: str) -> None:
    status, out, err = ctl(f"set_{kind[0]}", "-p", own_vhost, "p", "q", "{}", "--priority", priority)
    assert (status, out) == (64, "")
    assert err.startswith(f"Error (argument validation): Invalid options for this command:\n--priority : {priority}\n")


def test_3_1_16_policies_are_no_parameters(ctl: Leveretctl, own_vhost: str) -> None:
    ran = ctl("set_parameter", "-p", own_vhost, "policy", "p", "{}")
    banner = f'Setting runtime parameter "p" for component "policy" to "{{}}" in vhost "{own_vhost}" ...\n'
    assert ran == CommandResult(69, banner, "Error:\npolicies may not be set using this method\n")


def test_3_1_16_operator_policies_are_parameters(ctl: Leveretctl, own_vhost: str) -> None:
    value = '{"apply-to":"queues","definition":{"max-length":7},"pattern":"x","priority":3}'
    ctl.output("set_parameter", "-p", own_vhost, "operator_policy", "op", value)
    assert ctl.output("list_operator_policies", "-p", own_vhost, "-s") == (
        f'{own_vhost}\top\tx\tqueues\t{{"max-length":7}}\t3\n'
    )
    assert ctl.output("list_parameters", "-p", own_vhost, "-s") == f"operator_policy\top\t{value}\n"
    ctl.output("clear_parameter", "-p", own_vhost, "operator_policy", "op")
    assert ctl.output("list_parameters", "-p", own_vhost, "-s") == "\n"
