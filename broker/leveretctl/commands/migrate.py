"""The command migrate: brings a virtual host over from a RabbitMQ, by a shovel for each queue.

All that it has done so far is in the two brokers: definitions, and shovels whose names begin with `migrate.`. So it may
be ended at any time, and goes on when it is run again.
"""

from __future__ import annotations

import hashlib
import re
import time
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple
from urllib.parse import quote, urlsplit

from leveret.broker.leveretctl.api import Api
from leveret.broker.leveretctl.command import CommandContext, Outcome, Result, ResultRows, command
from leveret.broker.leveretctl.command_errors import (
    INTERRUPTED,
    ApiFault,
    CommandFault,
    NoAnswer,
    UsageFault,
    failed,
    no_such_vhost,
)
from leveret.broker.leveretctl.command_line import HEADERS, VHOST, option, parse_address
from leveret.broker.leveretctl.commands.check_migration import PATIENCE, read_definitions
from leveret.broker.leveretctl.printing import ProgressLine

_PREFIX: Final = "migrate."
#: Bytes of the name of a shovel.
_NAME_MAX: Final = 255
_SHOVEL: Final = "shovel"
#: Seconds between two looks at the brokers.
_PAUSE: Final = 1.0
#: Seconds for which a queue has to be empty: RabbitMQ's counts are up to 5 s old.
_SETTLED: Final = 11.0
#: Exit status if something is left at the other broker, or missing here.
_INCOMPLETE: Final = 1
_SECTIONS: Final[Mapping[str, tuple[str, ...]]] = {
    "users": ("name",),
    "vhosts": ("name",),
    "permissions": ("user", "vhost"),
    "topic_permissions": ("user", "vhost", "exchange"),
    "parameters": ("vhost", "component", "name"),
    "policies": ("vhost", "name"),
    "exchanges": ("vhost", "name"),
    "queues": ("vhost", "name"),
    "bindings": ("vhost", "source", "destination", "destination_type", "routing_key", "arguments"),
}
_QUEUE_FIELDS: Final = "name,type,messages,consumers,exclusive,durable,arguments"


class _QueueState(NamedTuple):
    """A queue as one of the brokers shows it."""

    kind: str
    messages: int
    consumers: int


class _Moving(NamedTuple):
    """Where messages come from and go to.

    Args:
        other: The API of the other broker.
        here: The API of this broker, which runs the shovels.
        uri: The other broker for the shovels.
        is_back: Whether messages go back to the other broker.
        pattern: Which queues are moved.
    """

    other: Api
    here: Api
    vhost: str
    uri: str
    is_back: bool
    pattern: re.Pattern[str]

    @property
    def source(self) -> Api:
        """The broker that messages come from."""
        return self.here if self.is_back else self.other

    @property
    def target(self) -> Api:
        """The broker that messages go to."""
        return self.other if self.is_back else self.here

    def queues(self, api: Api) -> dict[str, _QueueState]:
        """Return the queues that are moved, by name; not those of single connections, and streams only to here."""
        found = {}
        for each in api.get("queues", self.vhost, columns=_QUEUE_FIELDS):
            arguments = each.get("arguments") or {}
            kind = each.get("type") or arguments.get("x-queue-type", "classic")
            is_moved = not each.get("exclusive") and not (self.is_back and kind == "stream")
            if is_moved and self.pattern.search(each["name"]):
                found[each["name"]] = _QueueState(kind, each.get("messages") or 0, each.get("consumers") or 0)
        return found

    def shovels(self) -> dict[str, Any]:
        """Return the values of the shovels that this command has made, by name."""
        found = self.here.get("parameters", _SHOVEL, self.vhost)
        return {each["name"]: each["value"] for each in found if each["name"].startswith(_PREFIX)}

    def states(self) -> dict[str, dict[str, Any]]:
        """Return what is known of these shovels, by name."""
        found = self.here.get("shovels", self.vhost)
        return {each["name"]: each for each in found if each["name"].startswith(_PREFIX)}

    def shovel(self, queue: str, state: _QueueState) -> dict[str, Any]:
        """Return the value of the parameter for a queue."""
        local = f"amqp:///{quote(self.vhost, safe='')}"
        remote = f"{self.uri}/{quote(self.vhost, safe='')}"
        source, target = (local, remote) if self.is_back else (remote, local)
        value: dict[str, Any] = {
            "src-protocol": "amqp091",
            "src-uri": source,
            "src-queue": queue,
            "src-predeclared": True,
            "dest-protocol": "amqp091",
            "dest-uri": target,
            "dest-queue": queue,
            "dest-predeclared": True,
            "ack-mode": "on-confirm",
            "reconnect-delay": 1,
        }
        if state.kind == "stream":
            value["src-consumer-args"] = {"x-stream-offset": "continue"}
        return value


def _check(context: CommandContext) -> None:
    if not context.text("from"):
        raise UsageFault("--from is missing: amqp://user:password@host:port of the other broker")
    parts = urlsplit(context.text("from"))
    if parts.scheme not in ("amqp", "amqps") or not parts.hostname or parts.path.strip("/"):
        raise UsageFault("--from takes amqp://user:password@host:port without a virtual host, which --vhost names")
    try:
        re.compile(context.text("queues"))
    except re.error as error:
        raise UsageFault(f"--queues is not a valid regular expression: {error}") from error


@command(
    (
        option("from", "the other broker, as amqp://user:password@host:port", line="--from <place>"),
        option("from-http", "its HTTP API; by default port 15672 of the same host, with the same user"),
        VHOST,
        option("queues", "only queues in whose names this regular expression is found"),
        option("back", "move messages from here to the other broker instead"),
        option(
            "cut-over",
            "wait until the queues are empty and have no consumers there, then remove the shovels and compare",
        ),
        option("dry-run", "show what would be declared and moved, and change nothing"),
        HEADERS,
    ),
    name="migrate",
    summary="Brings a virtual host over from a RabbitMQ, definitions and messages;"
    " goes on where it was if it is run again",
    banner='Migrating vhost "{context.vhost}" ...',
    check=_check,
    timeout=None,
)
def _migrate(context: CommandContext) -> Result:
    other = Api(_other_address(context), PATIENCE)
    uri = context.text("from").rstrip("/")
    pattern = re.compile(context.text("queues"))
    moving = _Moving(other, context.api, context.vhost, uri, context.flag("back"), pattern)
    try:
        return _move(context, moving)
    except KeyboardInterrupt:
        text = "\nthe shovels go on without this command; run it again to see how far they are"
        raise CommandFault(INTERRUPTED, text, json={"result": "running"}) from None
    finally:
        other.close()


def _move(context: CommandContext, moving: _Moving) -> Result:
    document = read_definitions(moving.other, "; --from-http names its HTTP API")
    if all(each["name"] != moving.vhost for each in document["vhosts"]):
        raise no_such_vhost(moving.vhost)
    missing, rows = _compare(document, moving.here.get("definitions"), moving.vhost)
    if context.flag("dry-run"):
        return ResultRows(("kind", "name", "action"), [*rows, *_planned_moves(moving)])
    if not moving.is_back:
        _declare(moving, missing)
    queues = _start(moving)
    ended = _watch(context, moving, queues)
    if not context.flag("cut-over"):
        text = "the queues are empty there; the shovels go on until the command is run with --cut-over"
        return Outcome(text, {"result": "running", "queues": len(queues)})
    return _report(moving, ended)


def _other_address(context: CommandContext) -> Any:
    given = context.text("from-http")
    if not given:
        parts = urlsplit(context.text("from"))
        login, at, _ = parts.netloc.rpartition("@")
        host = f"[{parts.hostname}]" if ":" in str(parts.hostname) else parts.hostname
        given = f"http://{login}{at}{host}:15672"
    try:
        return parse_address(given)._replace(ca_file=context.text("cacert"))
    except ValueError as error:
        raise UsageFault(f"--from-http: {error}") from error


# -- definitions ---------------------------------------------------------------------------------------------


def _compare(
    document: Mapping[str, Any], ours: Mapping[str, Any], vhost: str
) -> tuple[dict[str, Any], list[dict[str, str]]]:
    """Return the definitions of a virtual host that are missing here, and a row for each object of it.

    What this broker would refuse, or does not have, is not among the missing.
    """
    from leveret.broker.migration_check.findings import Verdict
    from leveret.broker.migration_check.migration_report import judge, rehearse

    wanted = _of_vhost(document, vhost)
    missing: dict[str, Any] = {key: document[key] for key in ("rabbit_version", "rabbitmq_version") if key in document}
    rows = []
    there = {(section, _key(section, each)): each for section in _SECTIONS for each in ours.get(section, ())}
    for trial in rehearse(wanted):
        existing = there.get((trial.section, _key(trial.section, trial.entry)))
        findings = judge([trial]) if trial.refusal or trial.left_out else ()
        refusals = [finding.what for finding in findings if finding.verdict is Verdict.UNSUPPORTED]
        action = "declare"
        if existing is not None:
            is_equal = all(existing.get(name) == value for name, value in trial.entry.items())
            action = "is there" if is_equal else "is there and differs; it stays as it is"
        elif refusals:
            action = f"is left out: {refusals[-1]}"
        else:
            missing.setdefault(trial.section, []).append(trial.entry)
        rows.append(
            {"kind": trial.section.replace("_", " "), "name": _shown(trial.section, trial.entry), "action": action}
        )
    return missing, rows


def _of_vhost(document: Mapping[str, Any], vhost: str) -> dict[str, Any]:
    """Return the definitions of one virtual host, and of the users who may use it."""
    found = {
        section: [each for each in document.get(section) or () if each.get("vhost") == vhost]
        for section, keys in _SECTIONS.items()
        if "vhost" in keys
    }
    found["parameters"] = [each for each in found["parameters"] if not each.get("name", "").startswith(_PREFIX)]
    found["vhosts"] = [each for each in document["vhosts"] if each["name"] == vhost]
    names = {each["user"] for each in found["permissions"]}
    found["users"] = [each for each in document["users"] if each["name"] in names]
    versions = {key: document[key] for key in ("rabbit_version", "rabbitmq_version") if key in document}
    return {**versions, **found}


def _key(section: str, entry: Mapping[str, Any]) -> tuple[str, ...]:
    return tuple(str(entry.get(name, "")) for name in _SECTIONS[section])


def _shown(section: str, entry: Mapping[str, Any]) -> str:
    if section == "bindings":
        return f"{entry['source']} -> {entry['destination']} ({entry.get('routing_key', '')})"
    return str(entry.get("name", entry.get("user", "")))


def _declare(moving: _Moving, missing: Mapping[str, Any]) -> None:
    if any(isinstance(each, list) for each in missing.values()):
        try:
            moving.here.post("definitions", body=missing)
        except ApiFault as fault:
            raise failed(f"the definitions are refused: {fault.reason}") from fault


# -- messages ------------------------------------------------------------------------------------------------


def _shovel_name(queue: str) -> str:
    name = _PREFIX + queue
    return name if len(name.encode()) <= _NAME_MAX else _PREFIX + hashlib.sha256(queue.encode()).hexdigest()


def _planned_moves(moving: _Moving) -> Iterator[dict[str, str]]:
    for name, state in moving.queues(moving.source).items():
        yield {"kind": "messages", "name": name, "action": f"move {state.messages}"}


def _start(moving: _Moving) -> dict[str, _QueueState]:
    """Make the shovels that are missing, and end those of the other direction; return the queues that have one."""
    queues = moving.queues(moving.source)
    made = moving.shovels()
    for name, value in [*made.items()]:
        if value["src-uri"].startswith("amqp:///") != moving.is_back:
            _remove(moving, name)
            del made[name]
    # What could not be declared is in the report.
    received = moving.queues(moving.target)
    moved = {name: state for name, state in queues.items() if name in received}
    for name, state in moved.items():
        if _shovel_name(name) not in made:
            _make(moving, name, state)
    return moved


def _make(moving: _Moving, queue: str, state: _QueueState) -> None:
    value = moving.shovel(queue, state)
    try:
        moving.here.put("parameters", _SHOVEL, moving.vhost, _shovel_name(queue), body={"value": value})
    except ApiFault as fault:
        raise failed(f"the shovel for queue '{queue}' is refused: {fault.reason}") from fault


class _Seen(NamedTuple):
    """Queues of the source (there) and of the target (here) by name, and the shovels, at one moment."""

    there: dict[str, _QueueState]
    here: dict[str, _QueueState]
    states: dict[str, dict[str, Any]]

    def is_running(self, name: str) -> bool:
        """Return whether the shovel for a queue is connected."""
        return self.states.get(_shovel_name(name), {}).get("state") == "running"

    def left(self, names: Mapping[str, _QueueState]) -> int:
        """Return the number of messages that have not come yet."""
        return sum(self.left_of(name) for name in names)

    def left_of(self, name: str) -> int:
        """Return the number of messages of a queue that have not come yet; those of a stream stay where they are."""
        there = self.there.get(name)
        if there is None:
            return 0
        if there.kind == "stream":
            here = self.here.get(name)
            return max(0, there.messages - (here.messages if here else 0))
        return there.messages

    def has_others(self, name: str) -> bool:
        """Return whether a queue has another consumer than the shovel."""
        return name in self.there and self.there[name].consumers > self.is_running(name)


def _look(moving: _Moving) -> _Seen | None:
    """Return how far it is; None while one of the brokers does not answer."""
    try:
        return _Seen(moving.queues(moving.source), moving.queues(moving.target), moving.states())
    except (ApiFault, NoAnswer):
        moving.other.close()
        moving.here.close()
        return None


def _watch(context: CommandContext, moving: _Moving, queues: dict[str, _QueueState]) -> dict[str, _QueueState]:
    """Wait until all messages have come; with --cut-over, also until nobody consumes there, and remove the shovels.

    Returns:
        The queues at the target in the end.
    Raises:
        CommandFault: A shovel does not run, or a broker does not answer, for a minute (exit status 69).
    """
    cuts_over = context.flag("cut-over")
    first = 0
    began = well_at = time.monotonic()
    empty_since: float | None = None
    with ProgressLine("Migrating", 0, silent=context.silent) as progress:
        while True:
            seen = _look(moving)
            now = time.monotonic()
            down = _down(moving, queues, seen)
            well_at = well_at if down else now
            if now - well_at > PATIENCE:
                raise failed(f"{down}; the shovels go on, run the command again")
            if seen is not None:
                left = seen.left(queues)
                first = max(first, left)
                busy = [name for name in queues if cuts_over and seen.has_others(name)]
                progress.total = first
                progress.update(first - left, down or _note(left, first, now - began, busy))
                if cuts_over and not (left or busy or seen.states):
                    # Another run of the command has cut over.
                    return seen.here
                empty_since = (empty_since or now) if not (left or busy or down) else None
                if empty_since is not None and now - empty_since >= _SETTLED:
                    if cuts_over:
                        _end(moving, queues)
                    return seen.here
            time.sleep(_PAUSE)


def _down(moving: _Moving, queues: Mapping[str, _QueueState], seen: _Seen | None) -> str:
    """Return what does not work; empty if all does."""
    if seen is None:
        return "one of the brokers does not answer"
    for name in queues:
        state = seen.states.get(_shovel_name(name))
        if name not in seen.there:
            continue
        if name not in seen.here:
            return f"queue '{name}' is not at the target any more, as a transient one after a restart"
        if state is None:
            return f"the shovel for queue '{name}' is gone: another run of the command has removed it"
        if state["state"] != "running":
            return f"the shovel for queue '{name}' does not run: {state.get('reason', 'not connected')}"
    return ""


def _note(left: int, first: int, seconds: float, busy: list[str]) -> str:
    rate = (first - left) / seconds if seconds > 0 else 0
    texts = [f"{left / rate:.0f} s left"] if left and rate else []
    if busy:
        texts.append(f"consumers there: {', '.join(busy[:3])}{' …' if len(busy) > 3 else ''}")
    return ", ".join(texts)


def _end(moving: _Moving, queues: Mapping[str, _QueueState]) -> None:
    for name in moving.shovels().keys() & set(map(_shovel_name, queues)):
        _remove(moving, name)


def _remove(moving: _Moving, shovel: str) -> None:
    """Remove a shovel, if another run of the command has not done it meanwhile."""
    try:
        moving.here.delete("parameters", _SHOVEL, moving.vhost, shovel)
    except ApiFault as fault:
        if fault.status != 404:
            raise


def _report(moving: _Moving, ended: Mapping[str, _QueueState]) -> Result:
    """Compare both brokers once more: what came after the shovels were removed is still there."""
    time.sleep(_SETTLED / 2)
    seen = _Seen(moving.queues(moving.source), moving.queues(moving.target), {})
    rows = []
    for name in sorted(seen.there.keys() | seen.here.keys()):
        left = seen.left_of(name)
        result = "moved" if not left else "has messages left"
        if name not in seen.here:
            result = "is missing"
        kind = (seen.there.get(name) or seen.here[name]).kind
        received = ended[name].messages if name in ended else 0
        rows.append({"name": name, "type": kind, "left": left, "received": received, "result": result})
    is_whole = all(row["result"] == "moved" for row in rows)
    footer = "all queues are moved" if is_whole else "not all is moved: run the command again"
    columns = ("name", "type", "left", "received", "result")
    return ResultRows(columns, rows, footer=footer, status=0 if is_whole else _INCOMPLETE)
