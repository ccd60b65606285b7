"""What of a definitions document does something else here, or nothing, and what replaces what is refused.

Source: docs/compatibility.md and the rules that it names; https://www.rabbitmq.com/docs/whats-new for releases.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import combinations
from typing import Any, Final, TypeAlias

from leveret.broker.migration_check.findings import Finding, Verdict
from leveret.broker.migration_check.rehearsal import Trial
from leveret.policies.policy import MIRRORING_KEYS, Policy, PolicyError, read_policy
from leveret.policies.policy_keys import ARGUMENTS, KEYS

_UNSUPPORTED: Final = Verdict.UNSUPPORTED
_DIFFERS: Final = Verdict.DIFFERS
_FINE: Final = Verdict.FINE

#: Verdict, what it does here, advice.
Rule: TypeAlias = tuple[Verdict, str, str]

_SAME: Final = "as in RabbitMQ"
_SHOVEL: Final = "a shovel does the same: docs/shovels.md"
_STANDBYS: Final = "standbys have a copy of the whole broker: docs/replication.md"
#: How a setting begins in policies/policy_keys.py that is accepted and does nothing.
_NO_EFFECT: Final = "Accepted for compatibility"

#: Types of exchanges that do something else here, and what replaces those that are not there.
_EXCHANGE_TYPES: Final[Mapping[str, Rule]] = {
    "x-consistent-hash": (
        _DIFFERS,
        "spreads messages by the same weights, but by another hash: a routing key may go to another queue",
        "empty the queues before producers move, where the order of a key matters: docs/compatibility.md",
    ),
    "x-delayed-message": (
        _DIFFERS,
        "delayed messages are confirmed when they are on disk, and count as routed; those that wait in RabbitMQ stay"
        " there, as it cannot list them",
        "let them become due before the old broker is stopped: docs/delayed-messages.md",
    ),
    "x-message-deduplication": (
        _DIFFERS,
        "a duplicate is confirmed, and goes to no alternate exchange; what RabbitMQ remembers is not moved",
        "docs/deduplication.md",
    ),
    "x-jms-topic": (_UNSUPPORTED, "there is no exchange type of JMS", "use a topic or headers exchange"),
    "x-super-stream": (_UNSUPPORTED, "there are no super streams", "its partitions are streams that work one by one"),
    "x-federation-upstream": (_UNSUPPORTED, "there is no federation", _SHOVEL),
}

#: Arguments of queues that RabbitMQ 3.10 ignores, and that mean something here.
_MEANINGFUL: Final[Mapping[str, str]] = {
    "x-redelivery-limit": "docs/redelivery.md",
    "x-delayed-retry-type": "docs/redelivery.md#delays",
    "x-delayed-retry-steps": "docs/redelivery.md#delays",
    "x-length-counts": "docs/bounded-queues.md#count-what-consumers-hold",
    "x-consumer-timeout": "docs/operations.md#consumers-that-do-not-acknowledge",
}

_NOT_MIRRORED: Final[Rule] = (
    _DIFFERS,
    "queues are not mirrored inside a broker; the policy is kept and does nothing",
    _STANDBYS,
)
_NOT_FEDERATED: Final[Rule] = (_UNSUPPORTED, "there is no federation; left out", _SHOVEL)

_POLICY_KEYS: Final[Mapping[str, Rule]] = {
    **dict.fromkeys(MIRRORING_KEYS, _NOT_MIRRORED),
    **dict.fromkeys(
        ("federation-upstream", "federation-upstream-pattern", "federation-upstream-set"),
        (_UNSUPPORTED, "there is no federation; the key is left out", _SHOVEL),
    ),
    "shards-per-node": (
        _UNSUPPORTED,
        "an exchange of type x-modulus-hash has no queues of its own; the key is left out",
        "bind as many queues as there are shards",
    ),
    "routing-key": (_FINE, "belongs to sharding; the key is left out", ""),
    "target-group-size": (_FINE, "there is one member; the key is left out", ""),
    "stream-filter-size-bytes": (_FINE, "filters have no size here; the key is left out", ""),
}

#: Runtime parameters by component.
_COMPONENTS: Final[Mapping[str, Rule]] = {
    "federation-upstream": _NOT_FEDERATED,
    "federation-upstream-set": _NOT_FEDERATED,
}


def judge(trials: Sequence[Trial], release: tuple[int, ...]) -> Iterator[Finding]:
    """Yield what an import of definitions would make of each entry.

    Args:
        trials: What became of the entries when they were tried.
        release: The release of RabbitMQ that they come from; empty if it is not known.
    """
    for trial in trials:
        yield from _judge_one(trial, release)
    yield from _equal_priorities(trials)


def _judge_one(trial: Trial, release: tuple[int, ...]) -> Iterator[Finding]:
    def found(rule: Rule) -> Finding:
        verdict, what, advice = rule
        return Finding(verdict, trial.section.replace("_", " "), _name(trial), what, advice)

    rules = list(_RULES[trial.section](trial, release)) if trial.section in _RULES else []
    if trial.refusal and not any(verdict is _UNSUPPORTED for verdict, _, _ in rules):
        rules = [(_UNSUPPORTED, _refusal(trial), "")]
    elif trial.left_out and not rules:
        rules = [(_UNSUPPORTED, "is left out", "docs/compatibility.md")]
    yield from map(found, rules or [(_FINE, _SAME, "")])


def _refusal(trial: Trial) -> str:
    """Return why an entry is refused, without its name, so that entries with one fault are one row."""
    named = f" for queue '{trial.entry.get('name')}' in vhost '{trial.entry.get('vhost')}'"
    return f"is refused: {trial.refusal.replace(named, '')}"


def _name(trial: Trial) -> str:
    entry = trial.entry
    if trial.section == "bindings":
        name = f"{entry.get('source')} -> {entry.get('destination')}"
    else:
        name = str(entry.get("name", entry.get("user", "")))
    if trial.section == "parameters":
        name = f"{entry.get('component')} {name}"
    vhost = entry.get("vhost", "/")
    return name if vhost == "/" else f"{vhost}: {name}"


def _users(trial: Trial, release: tuple[int, ...]) -> Iterator[Rule]:
    del release
    if not trial.entry.get("password_hash") and not trial.entry.get("password"):
        yield _FINE, "has no password, so it can log in by a certificate only, as in RabbitMQ", ""


def _parameters(trial: Trial, release: tuple[int, ...]) -> Iterator[Rule]:
    del release
    if trial.left_out:
        component = str(trial.entry.get("component"))
        rule: Rule = (_UNSUPPORTED, f"component '{component}' means nothing here; left out", "docs/compatibility.md")
        yield _COMPONENTS.get(component, rule)


def _policies(trial: Trial, release: tuple[int, ...]) -> Iterator[Rule]:
    del release
    definition = trial.entry.get("definition")
    for key in definition if isinstance(definition, Mapping) else ():
        if key in _POLICY_KEYS:
            yield _POLICY_KEYS[key]
        elif key in KEYS and KEYS[key].summary.startswith(_NO_EFFECT):
            yield _FINE, f"'{key}' is accepted and does nothing", ""


def _exchanges(trial: Trial, release: tuple[int, ...]) -> Iterator[Rule]:
    del release
    kind = str(trial.entry.get("type"))
    if kind in _EXCHANGE_TYPES:
        yield _EXCHANGE_TYPES[kind]
    elif trial.refusal:
        yield _UNSUPPORTED, _refusal(trial), "docs/compatibility.md has the types of exchanges"


def _queues(trial: Trial, release: tuple[int, ...]) -> Iterator[Rule]:
    entry = trial.entry
    given = entry.get("arguments")
    arguments: Mapping[str, Any] = given if isinstance(given, Mapping) else {}
    kind = arguments.get("x-queue-type", entry.get("type", "classic"))
    if kind == "quorum":
        yield _DIFFERS, "a quorum queue has one member", _STANDBYS
        if "x-delivery-limit" not in arguments and release < (4,):
            yield (
                _DIFFERS,
                "a message that has come back 21 times is dropped or dead-lettered, as since RabbitMQ 4.0",
                "set x-delivery-limit to -1, or delivery-limit by a policy: docs/compatibility.md",
            )
        if release >= (4,):
            yield (
                _DIFFERS,
                "a quorum queue has no priorities, as in RabbitMQ 3, unless an option asks for those of 4.3",
                "set compat.quorum_queues to 4.3 before the queue is declared: docs/moving-in.md",
            )
    elif kind == "stream":
        yield _DIFFERS, "a stream has one member, and no stream protocol; AMQP 0-9-1 works", "docs/streams.md"
    elif entry.get("durable") is False:
        yield _FINE, "is transient and not exclusive: as in RabbitMQ 3, while 4.3 refuses it", ""
    for name in arguments:
        if name in _MEANINGFUL:
            yield _DIFFERS, f"'{name}' has a meaning here, which RabbitMQ 3.10 ignores", _MEANINGFUL[name]
        elif name in ARGUMENTS and ARGUMENTS[name].summary.startswith(_NO_EFFECT):
            yield _FINE, f"'{name}' is accepted and does nothing", ""


def _bindings(trial: Trial, release: tuple[int, ...]) -> Iterator[Rule]:
    del release
    given = trial.entry.get("arguments")
    if isinstance(given, Mapping) and "x-stream-partition-order" in given:
        yield (
            _UNSUPPORTED,
            "there are no super streams; the binding itself works",
            "consume its partitions one by one: docs/streams.md",
        )
    elif trial.left_out:
        yield _FINE, "leads to or from what is not in the document; left out, as by RabbitMQ", ""


_RULES: Final[Mapping[str, Callable[[Trial, tuple[int, ...]], Iterator[Rule]]]] = {
    "users": _users,
    "parameters": _parameters,
    "policies": _policies,
    "exchanges": _exchanges,
    "queues": _queues,
    "bindings": _bindings,
}


def _equal_priorities(trials: Sequence[Trial]) -> Iterator[Finding]:
    """Yield queues and exchanges that two policies of one priority match, where chance decides in RabbitMQ."""
    policies: dict[str, list[Policy]] = {}
    for trial in trials:
        if trial.section == "policies" and not trial.refusal:
            try:
                policy = read_policy(str(trial.entry.get("name")), trial.entry, False)
            except PolicyError:
                # Only without the keys that are left out.
                continue
            policies.setdefault(trial.entry["vhost"], []).append(policy)
    for trial in trials:
        if trial.section not in ("queues", "exchanges"):
            continue
        kind = _resource(trial)
        matching = [each for each in policies.get(trial.entry["vhost"], ()) if each.matches(trial.entry["name"], kind)]
        highest = max((each.priority for each in matching), default=0)
        for first, second in combinations(sorted(each.name for each in matching if each.priority == highest), 2):
            what = f"the policies '{first}' and '{second}' of equal priority match: '{first}' counts, by its name"
            yield Finding(_DIFFERS, trial.section, _name(trial), what, "in RabbitMQ chance decides: set priorities")


def _resource(trial: Trial) -> Any:
    if trial.section == "exchanges":
        return "exchange"
    given = trial.entry.get("arguments")
    kind = given.get("x-queue-type") if isinstance(given, Mapping) else None
    return kind if kind in ("quorum", "stream") else "classic"
