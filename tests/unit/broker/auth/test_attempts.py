from __future__ import annotations

from itertools import pairwise

import pytest

from broker.auth.accounts import Accounts
from broker.auth.attempts import AMQP, HTTP, AuthAttempts, LoginThrottle


class TestAttempts:
    def test_they_are_counted_by_protocol_and_outcome(self) -> None:
        attempts = AuthAttempts()
        for protocol, succeeded in ((AMQP, True), (HTTP, False), (HTTP, True), (HTTP, True)):
            attempts.count(protocol, succeeded)
        counted = {name: (each.total, each.succeeded, each.failed) for name, each in attempts.by_protocol.items()}
        assert counted == {"amqp091": (1, 1, 0), "http": (3, 2, 1)}
        attempts.reset()
        assert not attempts.by_protocol

    def test_accounts_count_every_login(self) -> None:
        accounts = Accounts(["local"])
        accounts.add_user("local", "right")
        accounts.authenticate("local", b"right", True)
        accounts.authenticate("local", b"right", False)
        accounts.authenticate("local", b"wrong", True, HTTP)
        accounts.authenticate("nobody", b"right", True, HTTP)
        counted = {name: (each.succeeded, each.failed) for name, each in accounts.attempts.by_protocol.items()}
        assert counted == {"amqp091": (1, 1), "http": (0, 2)}


class TestThrottle:
    def test_the_first_failures_cost_nothing_and_then_each_one_more(self) -> None:
        throttle = LoginThrottle()
        delays = [throttle.failed("a", 100.0) for _ in range(20)]
        assert delays[:3] == [0.0, 0.0, 0.0]
        assert 0 < delays[3] < 1
        assert all(later == min(2 * earlier, 3.0) for earlier, later in pairwise(delays[3:]))
        assert delays[-1] == 3.0

    def test_sources_do_not_disturb_each_other(self) -> None:
        throttle = LoginThrottle()
        for _ in range(10):
            throttle.failed("a", 100.0)
        assert throttle.failed("b", 100.0) == 0.0

    def test_a_login_that_is_let_in_forgives_all(self) -> None:
        throttle = LoginThrottle()
        for _ in range(10):
            throttle.failed("a", 100.0)
        throttle.succeeded("a")
        throttle.succeeded("never seen")
        assert throttle.failed("a", 100.0) == 0.0

    @pytest.mark.parametrize(("later", "forgiven"), [(59.0, False), (61.0, True)])
    def test_so_does_a_minute(self, later: float, forgiven: bool) -> None:
        throttle = LoginThrottle()
        for _ in range(10):
            throttle.failed("a", 100.0)
        assert (throttle.failed("a", 100.0 + later) == 0.0) is forgiven

    def test_who_failed_longest_ago_is_forgotten_when_there_are_too_many(self) -> None:
        throttle = LoginThrottle()
        for _ in range(10):
            throttle.failed("old", 100.0)
        for number in range(4095):
            throttle.failed(f"{number}", 100.0)
        assert throttle.failed("old", 100.0) > 0, "it failed again just now"
        for number in range(4096, 8192):
            throttle.failed(f"{number}", 100.0)
        assert throttle.failed("old", 100.0) == 0.0
