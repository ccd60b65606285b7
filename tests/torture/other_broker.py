"""The load of torture on another broker, such as RabbitMQ: what is left when it is killed and started again.

python -m tests.torture.other_broker --url URL --management URL --restart 'COMMAND' --seconds 600

The command kills the broker and starts it again, and ends when that is ready. Promises that were broken end nothing
here: they are counted by what was wrong. Messages that come back although their acknowledgement was answered are only
counted, as after a loss of power: other brokers write acknowledgements later.
"""

from __future__ import annotations

import argparse
import random
import re
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Final

from tests.crash.broker_load import Client, make_clients
from tests.crash.comparison import End, compare
from tests.crash.rounds import Round
from tests.support.management import Management
from tests.support.wire import ChannelClosed, Connection, ConnectionClosed, ConnectionDropped

#: Maximum number of messages in a queue at the start of a round.
_BACKLOG: Final = 400
#: What the load and the comparison raise. A KeyError: a message is delivered whose end was answered.
_WRONG: Final = (AssertionError, KeyError, ChannelClosed, ConnectionClosed, ConnectionDropped, TimeoutError)
_NUMBERS: Final = re.compile(r"\[([\d, ]+)\]")


def torture(url: str, management: str, restart: Callable[[], object], seconds: float, seed: int) -> Counter[str]:
    """Kill a broker under load again and again, twice at least."""
    rng, deadline = random.Random(seed), time.monotonic() + seconds
    counts: Counter[str] = Counter()
    clients: list[Client] = []
    while counts["rounds"] < 2 or time.monotonic() < deadline:
        # After a broken promise it is not known any more what the queues are to hold.
        clients = clients or _begin(url, rng)
        before = _counts_of(clients)
        counts["rounds"] += 1
        broken = _round(url, management, clients, restart, rng, counts)
        counts += _counts_of(clients) - before
        if broken:
            counts["rounds with broken promises"] += 1
            clients = []
        for what, number in broken:
            counts[f"broken, times: {what}"] += 1
            counts[f"broken, messages: {what}"] += number
    return counts


def _round(
    url: str,
    management: str,
    clients: Sequence[Client],
    restart: Callable[[], object],
    rng: random.Random,
    counts: Counter[str],
) -> list[tuple[str, int]]:
    """Let clients work, restart the broker, and compare; return what was wrong, and with how many messages."""
    broken: list[tuple[str, int]] = []
    try:
        for client in clients:
            client.connect(url, Management(management))
        load = Round(clients)
        load.wait(rng.randrange(5, 200))
        load.end(restart)
    except _WRONG as error:
        broken.append(_broken(error))
    for client in clients:
        try:
            counts += compare(url, [client], rng, _BACKLOG, End.POWER, are_returned=True)
        except _WRONG as error:
            broken.append(_broken(error))
    return broken


def _counts_of(clients: Sequence[Client]) -> Counter[str]:
    return sum((Counter(client.counts) for client in clients), Counter())


def _begin(url: str, rng: random.Random) -> list[Client]:
    """Return clients of a broker without their queues."""
    clients = make_clients(rng.randrange(1_000_000))
    with Connection(url, timeout=120) as connection:
        channel = connection.channel()
        for client in clients:
            for queue in (*client.kinds, client.letters.queue, f"{client.letters.queue}-marker"):
                channel.queue_delete(queue)
    return clients


def _broken(error: Exception) -> tuple[str, int]:
    """Return what was wrong with which queue, and with how many messages."""
    text = str(error)
    if isinstance(error, KeyError):
        return "a message is delivered again after its end was answered", 1
    if not isinstance(error, AssertionError):
        return f"{type(error).__name__} {text.partition(' (')[0]}", 0
    numbers = _NUMBERS.search(text)
    what = _NUMBERS.sub("", text.splitlines()[0] if text else "an assertion failed").rstrip(": ")
    # The queues of dead letters have numbers.
    return re.sub(r"-?\d+", "", what), len(numbers[1].split(",")) if numbers is not None else 0


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the load on a broker, and print what has happened; return 0 whatever that was."""
    parser = argparse.ArgumentParser(prog="tests.torture.other_broker", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--url", required=True, help="AMQP URL of the broker")
    parser.add_argument("--management", required=True, help="URL of its HTTP API")
    parser.add_argument("--restart", required=True, metavar="COMMAND", help="kills it and starts it again")
    parser.add_argument("--seconds", type=float, default=60, help="how long; default: 60")
    parser.add_argument("--seed", type=int, default=1, help="of all that is decided by lot; default: 1")
    given = parser.parse_args(arguments)

    def restart() -> None:
        subprocess.run(given.restart, shell=True, check=True, stdout=subprocess.DEVNULL)

    for name, count in sorted(torture(given.url, given.management, restart, given.seconds, given.seed).items()):
        print(f"{count:10}  {name}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
