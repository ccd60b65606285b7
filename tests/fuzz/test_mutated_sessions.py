"""Sessions with mistakes in any place: the broker must stay up, answer legally, and keep nothing of them.

Cases follow from a seed. A failure prints what it takes to see it again: `FUZZ_SEED=… FUZZ_CASES=…` and the name
of the test. Many more cases: `FUZZ_CASES=10000 pytest tests/fuzz`.
"""

from __future__ import annotations

import re
import time
import urllib.request
from collections import Counter
from random import Random

import pytest

from tests.fuzz.mutations import mutate
from tests.fuzz.sessions import SESSIONS, SPARED
from tests.fuzz.victim import IllegalAnswer, Victim
from tests.support.leveret_process import LeveretProcess
from tests.support.wire import ChannelClosed, Connection

#: How long a new client may take for the simplest things, in seconds.
ALIVE_WITHIN = 60.0
#: How long the broker may take to forget the last victim, in seconds.
FORGOTTEN_WITHIN = 120.0


def gauges(leveret: LeveretProcess) -> dict[str, int]:
    """The broker's metrics."""
    with urllib.request.urlopen(f"{leveret.prometheus_url}/metrics", timeout=120) as response:
        text = response.read().decode()
    return {name: int(value) for name, value in re.findall(r"^rabbitmq_(\w+) (\d+)\.0$", text, re.MULTILINE)}


def expect_alive(leveret: LeveretProcess) -> None:
    """A new client can declare, publish and get."""
    started = time.monotonic()
    with Connection(leveret.url, timeout=ALIVE_WITHIN) as connection:
        channel = connection.channel()
        queue = channel.queue_declare("", exclusive=True).queue
        channel.publish("", queue, b"alive")
        message = channel.get(queue, no_ack=True)
        assert message is not None
        assert message.body == b"alive"
    took = time.monotonic() - started
    assert took < ALIVE_WITHIN, f"a new client took {took:.1f} s"


def expect_forgotten(leveret: LeveretProcess, names: list[str]) -> None:
    """Nothing is left of the victims but what they made to stay."""
    deadline = time.monotonic() + FORGOTTEN_WITHIN
    while True:
        found = gauges(leveret)
        left = {name: found[name] for name in ("connections", "channels", "consumers", "queue_messages_unacked")}
        if not any(left.values()):
            break
        assert time.monotonic() < deadline, f"left over after {FORGOTTEN_WITHIN} s: {left}"
        time.sleep(0.02)
    with Connection(leveret.url) as connection:
        for name in names:
            channel = connection.channel()
            try:
                # A mutation may have made it a shared queue, which may stay.
                channel.queue_declare(name, passive=True)
                channel.close()
            except ChannelClosed as closed:
                if closed.code != 404:
                    raise


def expect_clean_log(written: str) -> None:
    """Nothing in the log that the broker did not foresee."""
    for sign in ("Traceback", "internal error", "never retrieved", "Exception in"):
        assert sign not in written, written[max(0, written.index(sign) - 500) :][:3000]


def replies_of(leveret: LeveretProcess, kind: str) -> list[int]:
    """Run a session as it is; how many frames have come after each step."""
    victim = Victim(leveret.url)
    counts = []
    for step in SESSIONS[kind](f"fuzz.{kind}.valid"):
        victim.send(b"".join(step))
        victim.wait(1 << 30, 0.15)
        counts.append(len(victim.frames))
    assert victim.closed is None
    assert victim.channels_closed == []
    assert not victim.dropped
    victim.abort()
    return counts


def run_case(leveret: LeveretProcess, kind: str, name: str, expected: list[int], random: Random) -> tuple[str, str]:
    """Run one mutated session; what was done to it, and how it ended."""
    steps = list(SESSIONS[kind](name))
    done = "; ".join(mutate(steps, SPARED[kind], random))
    victim = Victim(leveret.url)
    try:
        for step, count in zip(steps, expected, strict=True):
            victim.send(b"".join(step))
            victim.wait(count)
            if victim.dropped or victim.closed:
                break
        victim.settle()
    except (AssertionError, KeyError, ValueError) as error:
        raise IllegalAnswer(f"{done}: {error}") from error
    finally:
        victim.abort()
    if victim.closed is not None:
        return done, f"connection {victim.closed.reply_code}"
    if victim.dropped:
        return done, "dropped"
    return done, f"channel {victim.channels_closed[0].reply_code}" if victim.channels_closed else "went on"


@pytest.mark.parametrize("kind", SESSIONS)
def test_mutated_sessions(leveret: LeveretProcess, kind: str, fuzz_cases: int, fuzz_seed: str) -> None:
    expected = replies_of(leveret, kind)
    log_start = len(leveret.log_text())
    endings: Counter[str] = Counter()
    names = []
    for case in range(-(-fuzz_cases // len(SESSIONS))):
        names.append(f"fuzz.{kind}.{case}")
        done = "nothing yet"
        try:
            done, ending = run_case(leveret, kind, names[-1], expected, Random(f"{fuzz_seed}/{kind}/{case}"))
            endings[ending] += 1
            expect_alive(leveret)
        except Exception as error:
            error.add_note(f"FUZZ_SEED={fuzz_seed} FUZZ_CASES={fuzz_cases}, kind {kind}, case {case}: {done}")
            error.add_note(leveret.log_text()[-2000:])
            raise
    expect_forgotten(leveret, names)
    expect_clean_log(leveret.log_text()[log_start:])
    # Else the mutations are too weak, or too strong, to show anything.
    assert len(endings) > 1 or fuzz_cases < 100, endings
