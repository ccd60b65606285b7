"""A client that guesses passwords has to wait; other clients are not delayed."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import pika
import pika.exceptions
import pytest

from tests.conformance.http_api import HttpApi
from tests.conformance.timing import in_time
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
    assert process.log_text().count("HTTP access denied: user 'guest' - invalid credentials") == 8

    def is_quick() -> bool:
        assert own.ask("GET", "whoami").status == 200
        return took(lambda: guesser.ask("GET", "whoami")) < 2.0

    assert in_time(is_quick), "a right one has made good for them"


def refused_by_amqp(process: LeveretProcess, password: str = "wrong") -> None:
    """Have a login over AMQP refused."""
    parameters = pika.URLParameters(process.url.replace("guest:guest@", f"guest:{password}@"))
    with pytest.raises(pika.exceptions.AMQPError):
        pika.BlockingConnection(parameters)


def test_all_protocols_count(leveret_process: Callable[..., LeveretProcess]) -> None:
    process = leveret_process()
    for _ in range(5):
        refused_by_amqp(process)
    guesser = HttpApi(Management(process.http_url.replace("guest:guest@", "guest:wrong@")))
    assert took(lambda: guesser.ask("GET", "whoami")) >= 1.0
    assert took(lambda: refused_by_amqp(process)) >= 2.0


def test_neither_other_headers_nor_other_users_make_good_for_them(
    leveret_process: Callable[..., LeveretProcess],
) -> None:
    process = leveret_process()
    guesser = HttpApi(Management(process.http_url.replace("guest:guest@", "guest:wrong@")))
    own = HttpApi(Management(process.http_url))
    own.check("PUT", "users/mine", {"password": "mine", "tags": "management"}, 201)
    own.check("DELETE", "users/mine", None, 204)
    for _ in range(6):
        guesser.ask("GET", "whoami")
        for login in ("garbage", "Basic !", "Bearer x", "Basic bm9ib2R5Og=="):
            own.ask("GET", "auth", user="", headers={"Authorization": login})
    assert took(lambda: guesser.ask("GET", "whoami")) >= 1.0


def test_many_connections_take_no_less_time(leveret_process: Callable[..., LeveretProcess]) -> None:
    process = leveret_process()
    started, answered = time.monotonic(), list[float]()

    def guess() -> None:
        guesser = HttpApi(Management(process.http_url.replace("guest:guest@", "guest:wrong@")))
        assert guesser.ask("GET", "whoami").status == 401
        answered.append(time.monotonic() - started)

    guessing = [threading.Thread(target=guess) for _ in range(8)]
    for each in guessing:
        each.start()
    for each in guessing:
        each.join()
    # 0.25 + 0.5 + 1 + 2 + 3 s.
    assert max(answered) >= 6.0


def test_a_right_password_does_not_wait(leveret_process: Callable[..., LeveretProcess]) -> None:
    process = leveret_process()
    guessing = [threading.Thread(target=refused_by_amqp, args=(process,)) for _ in range(12)]
    for each in guessing:
        each.start()
    HttpApi(Management(process.http_url)).get("whoami")
    pika.BlockingConnection(pika.URLParameters(process.url)).close()
    assert any(each.is_alive() for each in guessing), "it has overtaken wrong ones"
    for each in guessing:
        each.join()
