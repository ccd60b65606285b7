"""Statistics of the HTTP API: totals, rates and samples of counters and gauges, and the switches that disable them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

from aiohttp import web

from leveret.broker.core.broker import Broker
from leveret.broker.core.counters.counters import ExchangeCounters, QueueCounters
from leveret.broker.core.counters.history import STEP, LossHistory, SampledCounters
from leveret.broker.core.scheduling.slices import in_slices
from leveret.broker.core.stats.census import Census
from leveret.broker.management.http.request_bodies import SETTINGS, IntegerTooLong, parse_integer
from leveret.broker.management.http.responses import bad_request
from leveret.protocol.constants import INT64_END

#: Maximum number of samples in a request.
_SAMPLES_MAX: Final = 500
_KINDS: Final = ("lengths", "msg_rates", "data_rates", "node_stats")

#: Numbers by their name in the API: each is the sum of these positions in a row.
Numbers: TypeAlias = Mapping[str, tuple[int, ...]]


class Range(NamedTuple):
    """The samples that a request selects.

    Args:
        age: Age of the oldest sample in seconds.
        increment: Seconds between samples, 1 or more.
    """

    age: int
    increment: int


def numbers(fields: Sequence[str], *names: str, **sums: tuple[str, ...]) -> Numbers:
    """Return the positions of numbers in the rows of a kind of object.

    Args:
        names: Numbers with the name of their column.
        sums: Numbers that are sums of columns.
    """
    found = {name: (fields.index(name),) for name in names}
    return found | {name: tuple(fields.index(part) for part in parts) for name, parts in sums.items()}


class Rates:
    """Adds rates and samples to numbers.

    Args:
        request: Its query names ranges: ``lengths_age`` and ``lengths_incr``, and so on for msg_rates, data_rates and
            node_stats.
        broker: Has the time of the last sample.
    Raises:
        HTTPBadRequest: A range has too many samples, or no increment.
    """

    __slots__ = ("_now", "_ranges")

    def __init__(self, request: web.Request, broker: Broker) -> None:
        self._now = broker.last_sample or broker.timers.seconds() // STEP * STEP
        self._ranges = _read_ranges(request) if request.query_string else {}

    def add_to(
        self, document: dict[str, Any], wanted: Numbers, row: Sequence[int], followed: SampledCounters, kind: str
    ) -> dict[str, Any]:
        """Add numbers to a document, each with its ``_details``; return the document.

        Args:
            followed: Has their history.
            kind: The range in the query that applies to them, for example ``lengths``.
        """
        history = followed.history
        rates = history.rates(self._now) if history is not None else None
        if kind in self._ranges:
            return self._add_samples(document, wanted, row, followed, kind)
        for name, places in wanted.items():
            if len(places) == 1:
                place = places[0]
                document[name] = row[place]
                document[f"{name}_details"] = {"rate": 0.0 if rates is None else rates[place]}
            else:
                document[name] = sum([row[place] for place in places])
                rate = 0.0 if rates is None else sum([rates[place] for place in places])
                document[f"{name}_details"] = {"rate": rate}
        return document

    def rate(self, followed: SampledCounters, places: Sequence[int]) -> float:
        """Return the rate of a sum of numbers, per second."""
        if followed.history is None:
            return 0.0
        rates = followed.history.rates(self._now)
        return sum([rates[place] for place in places])

    def _add_samples(
        self, document: dict[str, Any], wanted: Numbers, row: Sequence[int], followed: SampledCounters, kind: str
    ) -> dict[str, Any]:
        age, increment = self._ranges[kind]
        newest = self._now // increment * increment
        times = [newest - step * increment for step in range(age // increment + 1)]
        zeros = (0,) * len(row)
        rows = followed.history.samples(age, times) if followed.history is not None else [zeros] * len(times)
        for name, places in wanted.items():
            values = [sum([each[place] for place in places]) for each in rows]
            span = times[0] - times[-1]
            document[name] = sum([row[place] for place in places])
            document[f"{name}_details"] = {
                "avg": sum(values) / len(values),
                "avg_rate": (values[0] - values[-1]) / span if span else 0.0,
                "rate": float(self.rate(followed, places)),
                "samples": [{"sample": value, "timestamp": at * 1000} for value, at in zip(values, times, strict=True)],
            }
        return document


def _read_ranges(request: web.Request) -> dict[str, Range]:
    """Return the ranges in a query. An incomplete range, or one that is not a number, is skipped."""
    ranges = {}
    for kind in _KINDS:
        texts = [request.query.get(f"{kind}_{name}") for name in ("age", "incr")]
        try:
            age, increment = (parse_integer(text or "") for text in texts)
        except IntegerTooLong:
            raise _invalid_range(*texts) from None
        except ValueError:
            continue
        if not (0 <= age <= _SAMPLES_MAX * increment and 0 < increment < INT64_END and age < INT64_END):
            raise _invalid_range(age, increment)
        ranges[kind] = Range(age, increment)
    return ranges


def _invalid_range(age: object, increment: object) -> web.HTTPException:
    return bad_request(f"Invalid range parameters: age {age}, incr {increment}")


def message_stats(
    rates: Rates, groups: Sequence[Numbers], row: Sequence[int], followed: SampledCounters
) -> dict[str, Any]:
    """Return the ``message_stats`` of an object. Groups of numbers that are all 0 are left out.

    Args:
        groups: Numbers that are shown together.
        followed: Has their history.
    """
    shown: dict[str, Any] = {}
    if not any(row):
        return shown
    for group in groups:
        if any(row[place] for places in group.values() for place in places):
            rates.add_to(shown, group, row, followed, "msg_rates")
    return shown


_LOSSES: Final = {
    QueueCounters: numbers(QueueCounters.LOSS_FIELDS, *QueueCounters.LOSS_FIELDS),
    ExchangeCounters: numbers(ExchangeCounters.LOSS_FIELDS, *ExchangeCounters.LOSS_FIELDS),
}
_NO_HISTORY: Final = LossHistory()


def loss_stats(counters: QueueCounters | ExchangeCounters, rates: Rates, retained: int = 0) -> dict[str, Any]:
    """Return the losses of one object with rates and samples, like ``message_stats``; empty without losses.

    Args:
        counters: Counters of the object.
        rates: Rates of the request. The range of message rates applies.
        retained: Number of dead letters that wait for a queue that accepts them.
    """
    if not counters.has_losses:
        return {}
    row = counters.loss_row(retained)
    if not any(row):
        return {}
    return rates.add_to({}, _LOSSES[type(counters)], row, counters.losses or _NO_HISTORY, "msg_rates")


def delivery_numbers(fields: Sequence[str]) -> Numbers:
    """Return the numbers about deliveries, common to queues, channels, virtual hosts and the broker."""
    names = ("ack", "deliver", "deliver_no_ack", "get", "get_empty", "get_no_ack", "redeliver")
    return numbers(fields, *names, deliver_get=("deliver", "deliver_no_ack", "get", "get_no_ack"))


def publish_numbers(fields: Sequence[str]) -> Numbers:
    """Return the numbers about publishes, common to channels, virtual hosts and the broker."""
    return numbers(fields, "publish", "confirm", "return_unroutable", "drop_unroutable")


def stats_are_disabled(request: web.Request) -> bool:
    """Check whether statistics are disabled, for all responses or for this one (``disable_stats=true``)."""
    settings = request.config_dict[SETTINGS]
    disabled = settings.management.disable_stats or settings.management_agent.disable_metrics_collector
    return disabled or request.query.get("disable_stats") == "true"


def totals_are_enabled(request: web.Request) -> bool:
    """Check whether queues show message counts even without statistics (``enable_queue_totals=true``)."""
    totals = request.config_dict[SETTINGS].management.enable_queue_totals
    return totals or request.query.get("enable_queue_totals") == "true"


def require_stats(request: web.Request) -> None:
    """Refuse a request for a resource that has only statistics, if they are disabled.

    Raises:
        HTTPBadRequest: Statistics are disabled.
    """
    if stats_are_disabled(request):
        raise bad_request("Stats in management UI are disabled on this node")


async def count_all(broker: Broker) -> Census:
    """Add up the counters of all objects in slices; other connections are served in between."""
    census = Census(broker)
    async for _ in in_slices(census.steps()):
        pass
    return census
