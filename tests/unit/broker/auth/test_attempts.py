from __future__ import annotations

from contextlib import suppress
from itertools import pairwise

import pytest

from leveret.broker.auth.accounts import Accounts
from leveret.broker.auth.attempts import AMQP, HTTP, AuthAttempts, LoginThrottle
from leveret.broker.auth.backend_interface import Login, Refused
from leveret.broker.auth.backends.chain import AuthBackends


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
        backends = AuthBackends(accounts)
        for name, secret, from_loopback, protocol in (
            ("local", b"right", True, AMQP),
            ("local", b"right", False, AMQP),
            ("local", b"wrong", True, HTTP),
            ("nobody", b"right", True, HTTP),
            ("local", b"right", True, None),
        ):
            with suppress(Refused):
                backends.login_at_once(Login(name, secret, "127.0.0.1", from_loopback, protocol))
        counted = {name: (each.succeeded, each.failed) for name, each in accounts.attempts.by_protocol.items()}
        assert counted == {"amqp091": (1, 1), "http": (0, 2)}


class TestThrottle:
    def test_the_first_failures_cost_nothing_and_then_each_one_more(self) -> None:
        throttle, now = LoginThrottle(), 100.0
        delays = []
        for _ in range(20):
            delays.append(throttle.failed("a", "guest", now))
            now += delays[-1]
        assert delays[:3] == [0.0, 0.0, 0.0]
        assert 0 < delays[3] < 1
        assert delays[4:] == pytest.approx([min(2 * earlier, 3.0) for earlier in delays[3:-1]])
        assert delays[-1] == pytest.approx(3.0)

    def test_answers_leave_one_after_the_other_however_many_connections_there_are(self) -> None:
        throttle = LoginThrottle()
        answered = [throttle.failed("a", "guest", 100.0) for _ in range(20)]
        assert all(later - earlier == 3.0 for earlier, later in pairwise(answered[8:]))

    def test_nobody_waits_for_ever(self) -> None:
        throttle = LoginThrottle()
        assert max(throttle.failed("a", "guest", 100.0) for _ in range(10_000)) == 600.0

    @pytest.mark.parametrize(("address", "username"), [("b", "guest"), ("a", "other")])
    def test_users_and_addresses_do_not_disturb_each_other(self, address: str, username: str) -> None:
        throttle = LoginThrottle()
        for _ in range(10):
            throttle.failed("a", "guest", 100.0)
        throttle.succeeded(address, username)
        assert throttle.failed(address, username, 100.0) == 0.0
        assert throttle.failed("a", "guest", 100.0) > 0.0

    def test_an_address_is_the_same_inside_ipv6(self) -> None:
        throttle = LoginThrottle()
        for _ in range(10):
            throttle.failed("127.0.0.1", "guest", 100.0)
        assert throttle.failed("::ffff:127.0.0.1", "guest", 100.0) > 0.0

    def test_a_login_that_is_let_in_forgives_all(self) -> None:
        throttle = LoginThrottle()
        for _ in range(10):
            throttle.failed("a", "guest", 100.0)
        throttle.succeeded("a", "guest")
        throttle.succeeded("never seen", "guest")
        assert throttle.failed("a", "guest", 100.0) == 0.0

    @pytest.mark.parametrize(("later", "forgiven"), [(59.0, False), (61.0, True)])
    def test_so_does_a_minute(self, later: float, forgiven: bool) -> None:
        throttle = LoginThrottle()
        for _ in range(10):
            throttle.failed("a", "guest", 100.0)
        assert (throttle.failed("a", "guest", 100.0 + later) == 0.0) is forgiven

    def test_who_failed_longest_ago_is_forgotten_when_there_are_too_many(self) -> None:
        throttle = LoginThrottle()
        for _ in range(10):
            throttle.failed("old", "guest", 100.0)
        for number in range(4095):
            throttle.failed(f"{number}", "guest", 100.0)
        assert throttle.failed("old", "guest", 100.0) > 0, "it failed again just now"
        for number in range(4096, 8192):
            throttle.failed(f"{number}", "guest", 100.0)
        assert throttle.failed("old", "guest", 100.0) == 0.0
