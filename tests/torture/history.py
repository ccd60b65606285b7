"""What happens to a broker, in steps: what is done to it under load, how it ends, and how it is started again."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from tests.crash.comparison import End
from tests.torture.disturbances import DISTURBANCES

#: How a broker is started: at once; after it was killed while it started; after calls failed while it started; after a
#: start on a damaged copy of its directory.
STARTS: Final = ("at-once", "killed", "failing", "damaged")
_PLAIN: Final = "none"


@dataclass(frozen=True)
class Step:
    """A round of clients, and the start after it."""

    disturbance: str
    end: End
    start: str
    seed: int

    def __str__(self) -> str:
        return f"{self.disturbance}/{self.end.value}/{self.start}/{self.seed}"


def parse_history(text: str) -> list[Step]:
    """Return the steps of a text like `none/kill/at-once/1,full-disk/power/killed/2`."""
    steps = []
    for part in text.split(","):
        words = part.strip().split("/")
        if len(words) != 4 or not _is_step(*words):
            raise ValueError(f"{part!r} is not a step, which is DISTURBANCE/END/START/NUMBER")
        steps.append(Step(words[0], End(words[1]), words[2], int(words[3])))
    return steps


def _is_step(disturbance: str, end: str, start: str, seed: str) -> bool:
    ends = {each.value for each in End}
    return disturbance in DISTURBANCES and end in ends and start in STARTS and seed.isdecimal()


def make_history(rng: random.Random, rounds: int, can_fail: bool) -> list[Step]:
    """Return steps chosen by lot."""
    names = [name for name, each in DISTURBANCES.items() if can_fail or not each.needs_disk]
    ends = [(End.KILL, 4), (End.POWER, 5 if can_fail else 0), (End.STOP, 2)]
    starts = [("at-once", 6), ("killed", 2), ("failing", 2 if can_fail else 0), ("damaged", 2)]
    return [
        Step(
            rng.choice([_PLAIN, *names]),
            rng.choices([end for end, _ in ends], [weight for _, weight in ends])[0],
            rng.choices([start for start, _ in starts], [weight for _, weight in starts])[0],
            rng.randrange(1_000_000),
        )
        for _ in range(rounds)
    ]


def shorter(history: Sequence[Step]) -> Iterator[Sequence[Step]]:
    """Return the ends of a history that failed in its last step, shortest first."""
    length = 1
    while length < len(history):
        yield history[-length:]
        length *= 2
