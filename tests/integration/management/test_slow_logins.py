"""Whoever keeps guessing passwords has to wait; everybody else does not notice."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from tests.conformance.http_api import HttpApi
from tests.support.leveret_process import LeveretProcess
from tests.support.management import Management


def took(call: Callable[[], object]) -> float:
    started = time.monotonic()
    call()
    return time.monotonic() - started


def test_answers_to_wrong_passwords_take_longer_and_longer(leveret_process: Callable[..., LeveretProcess]) -> None:
    process = leveret_process()
    guesser = HttpApi(Management(process.http_url.replace("guest:guest@", "guest:wrong@")))
    for _ in range(5):
        assert guesser.ask("GET", "whoami").status == 401
    # 0.25 s and 0.5 s have been spent.
    guessing = threading.Thread(target=lambda: guesser.ask("GET", "whoami"))
    guessing.start()
    own = HttpApi(Management(process.http_url))
    assert own.ask("GET", "whoami", user="").status == 401, "a browser asks without a password first"
    assert took(lambda: guesser.ask("GET", "whoami")) >= 1.0
    guessing.join()
    attempts = own.get(f"auth/attempts/{own.get('overview')['node']}")
    counted = {each["protocol"]: (each["auth_attempts_failed"], each["auth_attempts_succeeded"]) for each in attempts}
    assert counted["http"][0] == 7
    assert guesser.ask("GET", "whoami").status == 401
    assert took(lambda: guesser.ask("GET", "whoami")) < 2.0, "a right one has made good for them"
