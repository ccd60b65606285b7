"""What would be different if a RabbitMQ moved here: the report, and what of a definitions document it is about.

The definitions are imported into an empty broker, one entry after the other: what this broker accepts is not written
down a second time, it is tried. Rules say what of the rest does something else here, or nothing, and what replaces what
is refused.

Source: docs/compatibility.md and the rules that it names; https://www.rabbitmq.com/docs/whats-new for releases.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, TypeAlias

from leveret.broker.app import App, trial_broker
from leveret.broker.config.config_errors import DefinitionsError
from leveret.broker.config.options import Settings
from leveret.broker.migration_check.findings import Finding, Observed, Row, Verdict, judge_observed, to_rows
from leveret.broker.operations.broker_definitions import import_steps
from leveret.policies.policy import MIRRORING_KEYS, Policy, PolicyError, read_policy
from leveret.policies.policy_keys import ARGUMENTS, KEYS

_RELEASE: Final = re.compile(r"(\d+)\.(\d+)", re.ASCII)


def check_migration(document: Mapping[str, Any], seen: Observed) -> list[Row]:
    """Return what would be different if a RabbitMQ moved here, the worst first.

    Args:
        document: Its definitions.
        seen: What its HTTP API shows beside them.
    Raises:
        ValueError: The definitions are malformed.
        OSError: There is no room for a temporary directory.
    """
    return to_rows([*judge(rehearse(document)), *judge_observed(seen)])


def _find_release(document: Mapping[str, Any]) -> tuple[int, ...]:
    """Return the first two numbers of the release that a definitions document is from; () if it does not say."""
    found = _RELEASE.match(str(document.get("rabbitmq_version") or document.get("rabbit_version") or ""))
    return (int(found[1]), int(found[2])) if found else ()


# -- trying -----------------------------------------------------------------------------------------------

#: Sections in the order in which they depend on each other. Those with a virtual host have True.
SECTIONS: Final[Mapping[str, bool]] = {
    "vhosts": False,
    "users": False,
    "permissions": True,
    "topic_permissions": True,
    "global_parameters": False,
    "parameters": True,
    "policies": True,
    "exchanges": True,
    "queues": True,
    "bindings": True,
}
_DEFAULT_VHOST: Final = "/"


@dataclass(frozen=True, slots=True)
class Trial:
    """What became of an entry.

    Attributes:
        section: The section of the document.
        entry: The entry; its virtual host is filled in.
        refusal: Why the import of the entry is refused; empty if it is not.
        left_out: Texts about what of it is left out.
        release: The release of RabbitMQ that it comes from; empty if that is not known.
    """

    section: str
    entry: Mapping[str, Any]
    refusal: str
    left_out: list[str]
    release: tuple[int, ...]


def entries(document: Mapping[str, Any], section: str) -> Iterator[dict[str, Any]]:
    """Return the entries of a section. Those of the definitions of one virtual host have none; they get `/`.

    Raises:
        ValueError: The section is not a list of objects.
    """
    found = document.get(section) or []
    if not isinstance(found, list) or not all(isinstance(each, Mapping) for each in found):
        raise ValueError(f"the section '{section}' is not a list of objects")
    for each in found:
        yield {"vhost": _DEFAULT_VHOST, **each} if SECTIONS[section] else dict(each)


def rehearse(document: Mapping[str, Any]) -> list[Trial]:
    """Import the entries of a document, as RabbitMQ exports it, into a broker that is thrown away.

    Raises:
        ValueError: A section is not a list of objects.
        OSError: There is no room for a temporary directory.
    """
    sections = {section: list(entries(document, section)) for section in SECTIONS}
    known = {str(each.get("name")) for each in sections["vhosts"]}
    for section, has_vhost in SECTIONS.items():
        named = {each["vhost"] for each in sections[section]} if has_vhost else ()
        # The definitions of one virtual host do not have the virtual host itself.
        sections["vhosts"] += [{"name": name} for name in sorted(map(str, named)) if name not in known]
        known.update(map(str, named))
    version = {key: document[key] for key in ("rabbit_version", "rabbitmq_version") if key in document}
    with TemporaryDirectory(prefix="leveret-migration-") as folder:
        return asyncio.run(_rehearse(Settings(data_dir=Path(folder)), version, sections))


async def _rehearse(
    settings: Settings, version: Mapping[str, Any], sections: Mapping[str, list[dict[str, Any]]]
) -> list[Trial]:
    async with trial_broker(settings) as app:
        return [
            _try(app, section, {**version, section: [entry]}) for section in SECTIONS for entry in sections[section]
        ]


def _try(app: App, section: str, document: Mapping[str, Any]) -> Trial:
    left_out: list[str] = []
    refusal = ""
    try:
        for _ in import_steps(document, app.broker, app.accounts, left_out):
            pass
    except DefinitionsError as error:
        reason = error.reason if isinstance(error.reason, str) and error.reason else str(error)
        refusal = " ".join(reason.split())
    return Trial(section, document[section][0], refusal, left_out, _find_release(document))


# -- rules ------------------------------------------------------------------------------------------------

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


def judge(trials: Sequence[Trial]) -> Iterator[Finding]:
    """Yield what an import of definitions would make of each entry.

    Args:
        trials: What became of the entries when they were tried.
    """
    for trial in trials:
        yield from _judge_one(trial)
    yield from _equal_priorities(trials)


def _judge_one(trial: Trial) -> Iterator[Finding]:
    def found(rule: Rule) -> Finding:
        verdict, what, advice = rule
        return Finding(verdict, trial.section.replace("_", " "), _name(trial), what, advice)

    rules = list(_RULES[trial.section](trial)) if trial.section in _RULES else []
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


def _users(trial: Trial) -> Iterator[Rule]:
    if not trial.entry.get("password_hash") and not trial.entry.get("password"):
        yield _FINE, "has no password, so it can log in by a certificate only, as in RabbitMQ", ""


def _parameters(trial: Trial) -> Iterator[Rule]:
    if trial.left_out:
        component = str(trial.entry.get("component"))
        rule: Rule = (_UNSUPPORTED, f"component '{component}' means nothing here; left out", "docs/compatibility.md")
        yield _COMPONENTS.get(component, rule)


def _policies(trial: Trial) -> Iterator[Rule]:
    definition = trial.entry.get("definition")
    for key in definition if isinstance(definition, Mapping) else ():
        if key in _POLICY_KEYS:
            yield _POLICY_KEYS[key]
        elif key in KEYS and KEYS[key].summary.startswith(_NO_EFFECT):
            yield _FINE, f"'{key}' is accepted and does nothing", ""


def _exchanges(trial: Trial) -> Iterator[Rule]:
    kind = str(trial.entry.get("type"))
    if kind in _EXCHANGE_TYPES:
        yield _EXCHANGE_TYPES[kind]
    elif trial.refusal:
        yield _UNSUPPORTED, _refusal(trial), "docs/compatibility.md has the types of exchanges"


def _queues(trial: Trial) -> Iterator[Rule]:
    entry = trial.entry
    given = entry.get("arguments")
    arguments: Mapping[str, Any] = given if isinstance(given, Mapping) else {}
    kind = arguments.get("x-queue-type", entry.get("type", "classic"))
    if kind == "quorum":
        yield _DIFFERS, "a quorum queue has one member", _STANDBYS
        if "x-delivery-limit" not in arguments and trial.release < (4,):
            yield (
                _DIFFERS,
                "a message that has come back 21 times is dropped or dead-lettered, as since RabbitMQ 4.0",
                "set x-delivery-limit to -1, or delivery-limit by a policy: docs/compatibility.md",
            )
        if trial.release >= (4,):
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


def _bindings(trial: Trial) -> Iterator[Rule]:
    given = trial.entry.get("arguments")
    if isinstance(given, Mapping) and "x-stream-partition-order" in given:
        yield (
            _UNSUPPORTED,
            "there are no super streams; the binding itself works",
            "consume its partitions one by one: docs/streams.md",
        )
    elif trial.left_out:
        yield _FINE, "leads to or from what is not in the document; left out, as by RabbitMQ", ""


_RULES: Final[Mapping[str, Callable[[Trial], Iterator[Rule]]]] = {
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
