"""Commands about queues, where messages are: purging, deleting, moving, explaining, dry runs."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.support.leveret_process import LeveretProcess
from tests.support.leveretctl import CommandResult, Leveretctl
from tests.support.wire import Channel


def publish(channel: Channel, queue: str, count: int, **properties: Any) -> None:
    for number in range(count):
        channel.publish("", queue, b"%d" % number, properties)
    channel.sync()


def counts(ctl: Leveretctl, vhost: str) -> dict[str, int]:
    rows = ctl.output("list_queues", "-p", vhost, "-s").splitlines()
    return {name: int(count) for name, count in (row.split("\t") for row in rows)}


def test_purge_queue_leaves_what_is_out_for_delivery(ctl: Leveretctl, vhost: str, channel: Channel) -> None:
    channel.queue_declare("q")
    publish(channel, "q", 3)
    assert channel.get("q")
    ctl.output("purge_queue", "-p", vhost, "q", "-q")
    columns = ("messages_ready", "messages_unacknowledged", "messages")
    assert ctl.output("list_queues", "-p", vhost, "-s", *columns) == "0\t1\t1\n"


def test_delete_queue_on_conditions(ctl: Leveretctl, vhost: str, channel: Channel) -> None:
    channel.queue_declare("q")
    publish(channel, "q", 2)
    banner = f"Deleting queue 'q' on vhost '{vhost}' if queue is empty ...\n"
    for option in ("--if-empty", "-e"):
        assert ctl("delete_queue", "-p", vhost, "q", option) == CommandResult(
            64, banner, "Error:\nQueue is not empty\n"
        )
    channel.consume("q", "c", no_ack=True)
    banner = f"Deleting queue 'q' on vhost '{vhost}' if queue is unused ...\n"
    for option in ("--if-unused", "-u"):
        assert ctl("delete_queue", "-p", vhost, "q", option) == CommandResult(64, banner, "Error:\nQueue is in use\n")
    channel.cancel("c")
    publish(channel, "q", 1)
    expected = f"Deleting queue 'q' on vhost '{vhost}' ...\nQueue was successfully deleted with 1 ready messages\n"
    assert ctl("delete_queue", "-p", vhost, "q") == CommandResult(0, expected, "")


def test_list_queues_tells_whose_an_exclusive_queue_is(ctl: Leveretctl, vhost: str, channel: Channel) -> None:
    channel.queue_declare("mine", exclusive=True)
    channel.consume("mine", "tag", exclusive=True)
    columns = ("exclusive", "owner_pid", "exclusive_consumer_pid", "exclusive_consumer_tag")
    name = channel.connection.name.replace(" -> ", "->")
    shown = ctl.output("list_queues", "-p", vhost, "-s", *columns)
    assert shown == f"true\t<{name}>\t<{name}.{channel.number}>\ttag\n"


def test_move_messages(ctl: Leveretctl, vhost: str, channel: Channel) -> None:
    channel.queue_declare("from")
    channel.queue_declare("to")
    publish(channel, "from", 5)
    ran = ctl("move_messages", "-p", vhost, "from", "to", "--limit", "2")
    assert ran == CommandResult(
        0,
        f"Moving at most 2 messages from queue 'from' to queue 'to' in vhost '{vhost}' ...\n"
        "Moved 2 messages to queue 'to': the limit is reached\n",
        "",
    )
    assert counts(ctl, vhost) == {"from": 3, "to": 2}
    ran = ctl("move_messages", "-p", vhost, "from", "to", "-q")
    assert ran == CommandResult(0, "Moved 3 messages to queue 'to': the source has no more messages\n", "")
    bodies = [delivery.body for delivery in (channel.get("to", no_ack=True) for _ in range(5)) if delivery]
    assert bodies == [b"0", b"1", b"2", b"3", b"4"]


def test_move_messages_on_conditions(ctl: Leveretctl, vhost: str, channel: Channel) -> None:
    channel.queue_declare("from")
    channel.queue_declare("to")
    publish(channel, "from", 2, headers=[("n", "I", 1), ("s", "S", "x")])
    publish(channel, "from", 3, headers=[("n", "I", 2), ("s", "S", "x")])
    ctl.output("move_messages", "-p", vhost, "from", "to", "--filter", "header.n=3")
    assert counts(ctl, vhost) == {"from": 5, "to": 0}
    ctl.output("move_messages", "-p", vhost, "from", "to", "--filter", "header.s=x", "--filter", "header.n=2")
    assert counts(ctl, vhost) == {"from": 2, "to": 3}
    ctl.output("move_messages", "-p", vhost, "from", "to", "--filter", '{"routing_key":"f*","headers":{"n":1}}')
    assert counts(ctl, vhost) == {"from": 0, "to": 5}


def test_move_messages_by_property_body_and_age(ctl: Leveretctl, vhost: str, channel: Channel) -> None:
    channel.queue_declare("from", durable=True)
    channel.queue_declare("to")
    for number in range(3):
        channel.publish("", "from", b'{"n": %d}' % number, {"message_id": f"m{number}", "delivery_mode": 2})
    channel.sync()
    for condition, moved in (
        ("older_than=1h", 0),
        ("property.message_id=m1", 1),
        ("body.n=2", 2),
        ("newer_than=1h", 3),
    ):
        ctl.output("move_messages", "-p", vhost, "from", "to", "--filter", condition)
        assert counts(ctl, vhost) == {"from": 3 - moved, "to": moved}


def test_move_messages_into_a_full_queue(ctl: Leveretctl, vhost: str, channel: Channel) -> None:
    channel.queue_declare("from")
    channel.queue_declare("to", arguments=[("x-max-length", "I", 2)])
    publish(channel, "from", 5)
    ran = ctl("move_messages", "-p", vhost, "from", "to", "-q")
    assert ran == CommandResult(69, "", "Error:\nMoved 2 messages to queue 'to': the target is full\n")
    assert counts(ctl, vhost) == {"from": 3, "to": 2}


@pytest.mark.parametrize(("source", "target", "missing"), [("no", "to", "no"), ("to", "no", "no")])
def test_move_messages_from_or_to_nowhere(
    ctl: Leveretctl, vhost: str, channel: Channel, source: str, target: str, missing: str
) -> None:
    channel.queue_declare("to")
    ran = ctl("move_messages", "-p", vhost, source, target, "-q")
    assert ran == CommandResult(69, "", f"Error:\nno queue '{missing}' in vhost '{vhost}'\n")


@pytest.mark.parametrize(
    "option", [("--limit", "0"), ("--filter", "colour=red"), ("--filter", "red"), ("--limit", "x")]
)
def test_move_messages_misused(ctl: Leveretctl, option: tuple[str, str]) -> None:
    status, out, err = ctl("move_messages", "a", "b", *option)
    assert status in (64, 65)
    assert out == ""
    assert err.startswith("Error (argument validation): ")


def test_explain_queue(ctl: Leveretctl, vhost: str, channel: Channel) -> None:
    channel.queue_declare("q", arguments=[("x-max-length", "I", 8), ("x-overflow", "S", "reject-publish")])
    ctl.output("set_policy", "-p", vhost, "p", "^q", '{"max-length":20,"message-ttl":60000}', "--priority", "2")
    ctl.output("set_policy", "-p", vhost, "low", "q$", '{"max-length":1}')
    ctl.output("set_operator_policy", "-p", vhost, "op", "", '{"max-length":4}')
    publish(channel, "q", 3)
    assert ctl("explain_queue", "-p", vhost, "q") == CommandResult(
        0,
        f"Explaining queue 'q' in vhost '{vhost}' ...\n"
        "key\targument\tpolicy\toperator_policy\tin_force\tsource\treason\n"
        "message-ttl\t\t60000\t\t60000\tpolicy\tonly the policy sets it\n"
        "max-length\t8\t20\t4\t4\toperator policy"
        "\tthe smaller one counts: 8 in the argument, 4 in the operator policy\n"
        "overflow\treject-publish\t\t\treject-publish\targument\tonly the argument sets it\n"
        "policy: 'p', pattern '^q', priority 2\n"
        "operator policy: 'op', pattern '', priority 0\n"
        "skipped: policy 'low', 'p' has the higher priority (2 against 0)\n"
        "ready: 3 messages of 4 (75%)\n"
        "bodies: 3 bytes, no limit\n"
        "at the limit: new messages are refused (reject-publish)\n",
        "",
    )
    explained = json.loads(ctl.output("explain_queue", "-p", vhost, "q", "--formatter=json"))
    assert explained["in_force"] == {"message-ttl": 60000, "max-length": 4, "overflow": "reject-publish"}


def test_explain_queue_without_limits(ctl: Leveretctl, vhost: str, channel: Channel) -> None:
    channel.queue_declare("q")
    shown = ctl.output("explain_queue", "-p", vhost, "q", "-q")
    assert shown == ("policy: none\noperator policy: none\nready: 0 messages, no limit\nbodies: 0 bytes, no limit\n")


def test_explain_queue_that_is_not_there(ctl: Leveretctl, vhost: str) -> None:
    ran = ctl("explain_queue", "-p", vhost, "q", "-q")
    assert ran == CommandResult(69, "", f"Error:\nno queue 'q' in vhost '{vhost}'\n")


def test_set_policy_dry_run(ctl: Leveretctl, vhost: str, channel: Channel) -> None:
    for queue in ("a1", "a2", "b"):
        channel.queue_declare(queue)
    publish(channel, "a1", 5)
    ctl.output("set_policy", "-p", vhost, "rival", "^a2", '{"max-length":9}', "--priority", "5")
    arguments = ("-p", vhost, "lim", "^a", '{"max-length":3}', "--apply-to", "queues")
    ran = ctl("set_policy", *arguments, "--dry-run")
    assert ran == CommandResult(
        0,
        f'Dry run of policy "lim" for pattern "^a" to "{{"max-length":3}}" with priority "0" for vhost "{vhost}" ...\n'
        "name\ttype\tin_force\tchanges\tmessages_ready\twould_drop\trival\n"
        "a1\tclassic\ttrue\tmax-length: none -> 3\t5\t2 messages (2 bytes)\t\n"
        "a2\tclassic\tfalse\t\t0\tnothing\trival\n"
        "2 queues would match; in force on 1; would drop 2 messages (2 bytes) immediately. Nothing has been changed.\n"
        "In all 2 messages would be lost for good.\n",
        "",
    )
    assert counts(ctl, vhost) == {"a1": 5, "a2": 0, "b": 0}
    assert "lim" not in ctl.output("list_policies", "-p", vhost)
    # It says what then comes true.
    ctl.output("set_policy", *arguments)
    assert counts(ctl, vhost) == {"a1": 3, "a2": 0, "b": 0}


def test_dry_run_of_what_dead_letters_do(ctl: Leveretctl, vhost: str, channel: Channel) -> None:
    channel.queue_declare("casc.dead")
    letters = [("x-dead-letter-exchange", "S", ""), ("x-dead-letter-routing-key", "S", "casc.dead")]
    channel.queue_declare("casc.a", arguments=letters)
    publish(channel, "casc.a", 100)
    arguments = ("set_policy", "-p", vhost, "capped", r"^casc\.")
    shown = ctl.output(*arguments, '{"max-length":10}', "--dry-run", "-q")
    assert shown.splitlines()[-2:] == [
        "Of the dead letters, 90 would go to queue 'casc.dead', which then drops or refuses 80 messages, and 80 of"
        " these would be lost.",
        "In all 80 messages would be lost for good.",
    ]
    shown = ctl.output(*arguments, '{"dead-letter-exchange":"failed"}', "--dry-run", "-q")
    assert "There is no exchange 'failed' for dead letters: they would be lost." in shown
    answer = ctl.output(*arguments, '{"dead-letter-exchange":"failed"}', "-q")
    assert answer == "Policy \"capped\": dead letters are lost: exchange 'failed' does not exist\n"
    explained = ctl.output("explain_queue", "-p", vhost, "casc.dead", "-q")
    assert "dead letters: lost, because there is no exchange 'failed', which is the dead-letter-exchange" in explained
    assert "dead letters: lost" not in ctl.output("explain_queue", "-p", vhost, "casc.a", "-q"), "its argument counts"


def test_a_policy_that_another_one_precedes(ctl: Leveretctl, vhost: str, channel: Channel) -> None:
    for queue in ("work.a", "work.b", "work.c"):
        channel.queue_declare(queue)
    assert ctl.output("set_policy", "-p", vhost, "bounded", r"^work\.", '{"max-length":5}', "-q") == ""
    arguments = ("set_policy", "-p", vhost, "work \n", r"^work\.", '{"max-length":9}', "-q")
    said = "Policy \"work \n\": in force on 0 of 3 queues: 'bounded' comes first"
    assert ctl.output(*arguments) == f"{said}\n"
    assert json.loads(ctl.output(*arguments, "--formatter=json"))["message"] == said


def test_set_operator_policy_dry_run(ctl: Leveretctl, vhost: str, channel: Channel) -> None:
    channel.queue_declare("q")
    publish(channel, "q", 2)
    arguments = ("-p", vhost, "lim", "", '{"max-length":0}', "--dry-run")
    answer = json.loads(ctl.output("set_operator_policy", *arguments, "--formatter", "json"))
    assert (answer["operator"], answer["matching"], answer["would_drop"]["messages"]) == (True, 1, 2)
    assert counts(ctl, vhost) == {"q": 2}
    assert ctl.output("list_operator_policies", "-p", vhost, "-s") == "\n"


def test_dry_run_of_what_would_be_refused(ctl: Leveretctl, vhost: str) -> None:
    ran = ctl("set_policy", "-p", vhost, "lim", "", '{"max-length":-1}', "--dry-run", "-q")
    assert ran == CommandResult(69, "", "Error:\nValidation failed\n\n-1 is not a valid maximum length\n\n")


def test_dry_run_of_any_other_command_only_says_what_it_would_do(ctl: Leveretctl, vhost: str, channel: Channel) -> None:
    channel.queue_declare("q")
    publish(channel, "q", 2)
    ran = ctl("purge_queue", "-p", vhost, "q", "--dry-run")
    assert ran == CommandResult(0, f"Purging queue 'q' in vhost '{vhost}' ...\n", "")
    assert counts(ctl, vhost) == {"q": 2}


def test_list_losses(ctl: Leveretctl, vhost: str, channel: Channel) -> None:
    channel.queue_declare("bounded", arguments=[("x-max-length", "I", 1)])
    channel.queue_declare("kept")
    publish(channel, "bounded", 4)
    publish(channel, "kept", 1)
    publish(channel, "nowhere", 1)
    assert ctl("list_losses", "-p", vhost, "kind", "name", "lost", "maxlen", "unroutable") == CommandResult(
        0,
        f"Listing losses in vhost {vhost} ...\n"
        "kind\tname\tlost\tmaxlen\tunroutable\n"
        "queue\tbounded\t3\t3\t0\n"
        "exchange\t\t1\t0\t1\n",
        "",
    )
    rows = json.loads(ctl.output("list_losses", "-p", vhost, "--age", "3600", "--formatter=json"))
    assert [(row["name"], row["state"], row["lost"]) for row in rows] == [("bounded", "present", 3), ("", "present", 1)]


@pytest.mark.parametrize(
    ("arguments", "status", "text"),
    [
        (("--age", "86401"), 64, "The age must be 1 to 86400 seconds"),
        (("names",), 64, "Info key(s) names are not supported"),
        (("-p", "there-is-none"), 69, "Virtual host 'there-is-none' does not exist"),
    ],
)
def test_losses_that_cannot_be_listed(ctl: Leveretctl, arguments: tuple[str, ...], status: int, text: str) -> None:
    ran = ctl("list_losses", "-q", *arguments)
    assert (ran.status, ran.out) == (status, "")
    assert text in ran.err


def test_a_message_by_hand(ctl: Leveretctl, vhost: str) -> None:
    """From a queue that is declared to a message that is taken out."""
    at = ("-p", vhost, "-q")
    ctl.output("declare_queue", "work", *at, "--argument", "x-max-length=5", "--argument=x-overflow=reject-publish")
    assert ctl.output("list_queues", *at, "-s", "name", "durable", "arguments") == (
        'work\ttrue\t[{"x-max-length",5},{"x-overflow","reject-publish"}]\n'
    )
    ctl.output("declare_exchange", "orders", "topic", *at, "--transient")
    ctl.output("declare_exchange", "all", "fanout", *at)
    ctl.output("bind", "orders", "work", "new.*", *at)
    ctl.output("bind", "all", "orders", "x", *at, "--to-exchange", "--argument", "n=1")
    listed = ctl.output("list_bindings", *at, "-s", "source_name", "destination_name", "routing_key")
    assert {"orders\twork\tnew.*", "all\torders\tx"} <= set(listed.splitlines())

    published = ("publish", "new.one", *at, "--exchange=orders")
    given = ("--property", "message_id=7", "--property=priority=3", "--header", "n=1", "--header", "t=1a")
    assert ctl.output(*published, "first", *given) == "Message published\n"
    ctl.output("publish", "work", *at, stdin="second\n")
    (got,) = json.loads(ctl.output("get", "work", *at, "--formatter", "json"))
    assert (got["payload"], got["redelivered"], got["message_count"]) == ("first", False, 1)
    properties = {"message_id": "7", "priority": 3, "delivery_mode": 2, "headers": {"n": 1, "t": "1a"}}
    assert got["properties"] == properties
    rows = ctl.output("get", "work", *at, "-s", "--count", "9", "--ack").splitlines()
    assert [row.split("\t")[1:3] for row in rows] == [["new.one", "true"], ["work", "false"]]
    assert ctl.output("list_queues", *at, "-s") == "work\t0\n"

    ctl.output("unbind", "all", "orders", "x", *at, "--to-exchange", "--argument", "n=1")
    ctl.output("unbind", "orders", "work", "new.*", *at)
    ctl.output("delete_exchange", "all", *at)
    for command, status, said in (
        (published, 69, "the message was not routed: no queue is bound for routing key 'new.one'"),
        (("publish", "x", *at, "--exchange=none"), 69, f"no exchange 'none' in vhost '{vhost}'"),
        (("publish", "x", "y", *at, "--header=1"), 65, "--header takes <name>=<value>, not 1"),
        (("get", "none", *at), 69, f"no queue 'none' in vhost '{vhost}'"),
        (("bind", "orders", "none", *at), 69, f"no exchange 'orders' or queue 'none' in vhost '{vhost}'"),
        (("unbind", "orders", "work", *at), 69, "there is no such binding: exchange 'orders' to queue 'work'"),
        (("delete_exchange", "all", *at), 69, "Exchange not found"),
        (("declare_queue", "work", *at, "--transient"), 69, "inequivalent arg 'durable' for queue 'work'"),
        (("declare_exchange", "x", "odd", *at), 69, "unknown exchange type 'odd'"),
    ):
        ran = ctl(*command)
        assert (ran.status, ran.out) == (status, ""), ran
        assert said in ran.err


def test_names_are_completed(ctl: Leveretctl, vhost: str, leveret: LeveretProcess) -> None:
    for name in ("orders.new", "orders.old", "other"):
        ctl.output("declare_queue", name, "-p", vhost, "-q")
    url = ("autocomplete", "--for=purge_queue", "--", "--url", leveret.http_url)
    assert ctl.output(*url, "-p", vhost, "purge_queue", "orders.") == "orders.new\norders.old\n"
    assert ctl.output(*url, "purge_queue", f"--vhost={vhost[:-1]}") == f"--vhost={vhost}\n"
    assert ctl.output(*url, "purge_queue", "--vhost", vhost, "x") == ""
    nobody = ("autocomplete", "--for=purge_queue", "--", "--url", "http://127.0.0.1:1")
    assert ctl.output(*nobody, "purge_queue", "o") == ""
