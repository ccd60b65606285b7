"""Programs for the test of queues against their model: how queues are declared, and what clients then do to them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, TypeAlias

from hypothesis import strategies as st

#: Queues by the names that programs have for them. Dead letters go from `main` to the others; `copy` gets copies.
MAIN, ONE, TWO, COPY = "main", "one", "two", "copy"
NAMES = (MAIN, ONE, TWO, COPY)
#: A fanout exchange that leads to `one` and `two`, and one that leads to `main` and `copy`.
BOTH, WIDE = "both", "wide"
#: Two channels take messages of `main`, and one each those of `one` and `two`: where one channel gives messages back
#: to several queues at once, and these send dead letters to each other, either may be first.
WORKERS = 4
#: Greatest priority of a priority queue.
LEVELS = 2

LENGTHS = ("max-length", "max-length-bytes")
LETTERS = ("dead-letter-exchange", "dead-letter-routing-key")

Definition: TypeAlias = dict[str, Any]


@dataclass(frozen=True)
class Publish:
    """Messages that are published in one write; `wide` ones go to `copy` too."""

    sizes: tuple[int, ...]
    priority: int | None
    persistent: bool
    expired: bool
    wide: bool
    confirmed: bool


@dataclass(frozen=True)
class Get:
    worker: int
    queue: str
    no_ack: bool


@dataclass(frozen=True)
class Settle:
    """basic.ack, basic.nack or basic.reject; `at` says which of the outstanding messages, modulo their number."""

    worker: int
    at: int
    method: str
    requeue: bool
    multiple: bool


@dataclass(frozen=True)
class Consume:
    """basic.consume of `main` under a prefetch limit, 0 for none."""

    worker: int
    prefetch: int
    no_ack: bool
    priority: int


@dataclass(frozen=True)
class OnChannel:
    """Something that happens to a channel: ``cancel``, ``recover`` or ``close``."""

    worker: int
    what: str


@dataclass(frozen=True)
class Purge:
    queue: str


@dataclass(frozen=True)
class SetPolicy:
    """The policy of `main`, or its operator policy, is set, replaced or (if empty) removed."""

    definition: Definition
    operator: bool


Step: TypeAlias = Publish | Get | Settle | Consume | OnChannel | Purge | SetPolicy


@dataclass(frozen=True)
class Program:
    """Queues and the steps to run on them."""

    kind: str
    durable: bool
    lazy: bool
    single_active: bool
    arguments: dict[str, Definition]
    steps: list[Step] = field(default_factory=list)
    deleted: bool = False

    @property
    def has_cycles(self) -> bool:
        """Whether dead letters may come back to `main`, so that it matters which of two messages is first there."""
        given = [*self.arguments.values(), *(each.definition for each in self.steps if isinstance(each, SetPolicy))]
        keys = [each.get("dead-letter-routing-key", MAIN) for each in given if "dead-letter-exchange" in each]
        return MAIN in keys


def limits() -> dict[str, st.SearchStrategy[Any]]:
    return {
        "max-length": st.sampled_from((0, 1, 1, 2, 3, 5)),
        "max-length-bytes": st.sampled_from((0, 1, 4, 9, 12, 9000)),
    }


def overflows(kind: str) -> dict[str, st.SearchStrategy[Any]]:
    """Overflow behaviours. A quorum queue refuses slightly later than at its limit."""
    known = ("drop-head",) if kind == "quorum" else ("drop-head", "reject-publish", "reject-publish-dlx")
    return {"overflow": st.sampled_from(known)}


def letters(fanout: bool) -> st.SearchStrategy[Definition]:
    """Where dead letters of `main` go, if anywhere."""
    exchanges = ("", "", BOTH, "missing") if fanout else ("", "", "", "missing")
    to = st.fixed_dictionaries(
        {"dead-letter-exchange": st.sampled_from(exchanges)},
        optional={"dead-letter-routing-key": st.sampled_from((ONE, ONE, TWO, MAIN, "nobody"))},
    )
    return st.one_of(st.just({}), to, to, to)


@st.composite
def definitions(draw: st.DrawFn, kind: str, fanout: bool) -> Definition:
    """Arguments of `main`, or a policy."""
    return draw(st.fixed_dictionaries({}, optional=limits() | overflows(kind))) | draw(letters(fanout))


def onward(*targets: str) -> st.SearchStrategy[Definition]:
    """Arguments of a queue of dead letters; its own go to one of the targets."""
    optional = limits() | overflows("classic")
    to = {"dead-letter-exchange": st.just(""), "dead-letter-routing-key": st.sampled_from(targets)}
    plain = st.fixed_dictionaries({}, optional=optional)
    return st.one_of(plain, st.fixed_dictionaries(to, optional=optional)) if targets else plain


workers = st.integers(0, WORKERS - 1)
main_workers = st.integers(0, 1)


def publishes(kind: str) -> st.SearchStrategy[Publish]:
    """Messages for `main`. Those that have expired when they come may stay where it is not a plain classic queue."""
    return st.builds(
        Publish,
        st.lists(st.sampled_from((0, 1, 1, 3, 4, 10, 5000)), min_size=1, max_size=5).map(tuple),
        st.sampled_from((None, None, 0, 1, 2, 9)),
        st.booleans(),
        st.sampled_from((False,) * 7 + (True,)) if kind == "classic" else st.just(False),
        st.sampled_from((False, False, False, True)),
        st.sampled_from((True, True, True, False)),
    )


taken = st.sampled_from(((0, MAIN), (0, MAIN), (1, MAIN), (2, ONE), (3, TWO)))
gets = st.builds(lambda of, no_ack: Get(of[0], of[1], no_ack), taken, st.sampled_from((False, False, True)))
settlements = st.builds(
    Settle, workers, st.integers(0, 7), st.sampled_from(("ack", "nack", "nack", "reject")), st.booleans(), st.booleans()
)
consumers = st.builds(
    Consume,
    main_workers,
    st.sampled_from((1, 1, 2, 3, 0)),
    st.sampled_from((False, False, False, True)),
    st.integers(0, 1),
)
ends = st.builds(OnChannel, st.sampled_from((0, 0, 1, 1, 2, 3)), st.sampled_from(("cancel", "recover", "close")))
purges = st.builds(Purge, st.sampled_from((MAIN, MAIN, ONE)))


def policy_changes(kind: str, fanout: bool) -> st.SearchStrategy[SetPolicy]:
    """Policies and operator policies that are set, and removed."""
    if kind == "quorum":
        return st.builds(SetPolicy, letters(fanout), st.just(False))
    operators = st.fixed_dictionaries({}, optional=limits())
    return st.one_of(
        st.builds(SetPolicy, definitions(kind, fanout), st.just(False)), st.builds(SetPolicy, operators, st.just(True))
    )


@st.composite
def programs(draw: st.DrawFn, kind: str) -> Program:
    """A program for a `main` of this kind.

    Dead letters reach each queue on one way only: where there are two, either may be first.
    """
    fanout = draw(st.booleans())
    arguments = {
        MAIN: draw(definitions(kind, fanout)),
        ONE: draw(onward() if fanout else onward(TWO, MAIN, ONE)),
        TWO: draw(onward() if fanout else onward(MAIN, TWO)),
        COPY: draw(onward()),
    }
    if kind == "quorum":
        # Letters that leave it at once go the last one first. With a delivery limit, what is returned comes first;
        # beyond it RabbitMQ would give a consumer more than its prefetch limit.
        dropped = draw(st.sampled_from((LENGTHS, LETTERS)))
        arguments[MAIN] = {key: value for key, value in arguments[MAIN].items() if key not in dropped}
        if draw(st.booleans()):
            arguments[MAIN]["delivery-limit"] = 100
    if kind == "priority":
        arguments[MAIN]["max-priority"] = LEVELS
    takings = st.one_of(gets, gets, settlements, settlements, settlements, consumers, ends)
    changes = st.one_of(publishes(kind), policy_changes(kind, fanout), purges)
    if kind == "quorum" and arguments[MAIN].keys() & set(LENGTHS):
        changes = publishes(kind)
    rounds = st.tuples(publishes(kind), st.lists(takings | takings | changes, min_size=2, max_size=6))
    return Program(
        kind,
        kind == "quorum" or draw(st.booleans()),
        draw(st.booleans()),
        draw(st.sampled_from((False, False, True))),
        arguments,
        [step for first, rest in draw(st.lists(rounds, min_size=2, max_size=7)) for step in (first, *rest)],
        draw(st.booleans()),
    )
