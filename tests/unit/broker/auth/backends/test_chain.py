from __future__ import annotations

import asyncio
from collections.abc import Mapping

import pytest

from leveret.broker.auth.accounts import Accounts, User
from leveret.broker.auth.attempts import AMQP
from leveret.broker.auth.backend_interface import Backend, Login, Refused
from leveret.broker.auth.backends.chain import AuthBackends
from tests.support.stub_backend import StubBackend


@pytest.fixture
def accounts() -> Accounts:
    made = Accounts(("guest",))
    made.add_user("guest", "guest", ("administrator",))
    made.add_user("alice", "internal", ("management",))
    made.set_user_limits("alice", 3, None)
    return made


@pytest.fixture
async def stub() -> StubBackend:
    return StubBackend(asyncio.get_running_loop(), {"alice": b"stub", "bob": b"stub"}, tags=("monitoring",))


def login_of(name: str, secret: bytes | None, from_loopback: bool = True) -> Login:
    return Login(name, secret, "127.0.0.1", from_loopback, AMQP)


async def log_in(backends: AuthBackends, name: str, secret: bytes | None, from_loopback: bool = True) -> User:
    return await backends.login(login_of(name, secret, from_loopback))


class TestInternalAlone:
    def test_a_user_is_known_at_once(self, accounts: Accounts) -> None:
        attempt = AuthBackends(accounts).attempt(login_of("alice", b"internal", False))
        assert attempt.user() is accounts.users["alice"]

    @pytest.mark.parametrize(
        ("name", "secret", "from_loopback", "reason"),
        [
            ("alice", b"wrong", True, "user 'alice' - invalid credentials"),
            ("nobody\n", b"", True, r"user 'nobody\n' - invalid credentials"),
            ("guest", b"guest", False, "user 'guest' can only connect via localhost"),
            ("guest", b"wrong", False, "user 'guest' - invalid credentials"),
            ("x" * 1000, None, True, f"user '{'x' * 255}...' - invalid credentials"),
        ],
    )
    def test_who_is_refused_and_why(
        self, accounts: Accounts, name: str, secret: bytes | None, from_loopback: bool, reason: str
    ) -> None:
        with pytest.raises(Refused) as refused:
            AuthBackends(accounts).login_at_once(login_of(name, secret, from_loopback))
        assert str(refused.value) == reason
        assert accounts.attempts.by_protocol[AMQP].failed == 1


def chain(accounts: Accounts, stub: StubBackend, *names: str, ttl: float = 0.0) -> AuthBackends:
    others: Mapping[str, Backend] = {"stub": stub}
    return AuthBackends(accounts, names, others, ttl)


class TestOrder:
    async def test_the_first_that_knows_a_login_authorizes_it(self, accounts: Accounts, stub: StubBackend) -> None:
        backends = chain(accounts, stub, "internal", "stub")
        internal, other = await log_in(backends, "alice", b"internal"), await log_in(backends, "alice", b"stub")
        assert (internal.backend, internal.tags, internal.rights) == ("internal", ("management",), None)
        assert (other.backend, other.tags) == ("stub", ("monitoring",))
        assert other.rights is not None
        # The limits of a user apply to its name.
        assert other.limits.max_connections == 3
        assert (await log_in(backends, "bob", b"stub")).limits.max_connections is None

    async def test_the_last_reason_is_reported(self, accounts: Accounts, stub: StubBackend) -> None:
        with pytest.raises(Refused, match=r"^Denied by the stub$"):
            await log_in(chain(accounts, stub, "internal", "stub"), "bob", b"wrong")
        with pytest.raises(Refused, match=r"^user 'bob' - invalid credentials$"):
            await log_in(chain(accounts, stub, "stub", "internal"), "bob", b"wrong")
        assert accounts.attempts.by_protocol[AMQP].failed == 2

    async def test_a_backend_that_cannot_tell_is_passed_over(
        self, accounts: Accounts, stub: StubBackend, caplog: pytest.LogCaptureFixture
    ) -> None:
        stub.is_away = True
        text = "rabbit_auth_backend_stub failed authenticating alice: timeout"
        user = await log_in(chain(accounts, stub, "stub", "internal"), "alice", b"internal")
        assert user.backend == "internal"
        assert caplog.messages == [text]
        with pytest.raises(Refused) as refused:
            await log_in(chain(accounts, stub, "stub"), "alice", b"stub")
        assert str(refused.value) == text

    async def test_what_fails_in_an_unforeseen_way_is_refused(self, accounts: Accounts, stub: StubBackend) -> None:
        stub.users = None  # type: ignore[assignment]
        with pytest.raises(Refused, match=r"^internal error$"):
            await log_in(chain(accounts, stub, "stub"), "alice", b"stub")

    async def test_loopback_users_are_so_by_name(self, accounts: Accounts, stub: StubBackend) -> None:
        stub.users["guest"] = b"other"
        backends = chain(accounts, stub, "stub", "internal")
        assert (await log_in(backends, "guest", b"other")).backend == "stub"
        with pytest.raises(Refused, match=r"^user 'guest' can only connect via localhost$") as refused:
            await log_in(backends, "guest", b"other", from_loopback=False)
        assert refused.value.is_remote


class TestPairs:
    async def test_one_authenticates_and_the_other_authorizes(self, accounts: Accounts, stub: StubBackend) -> None:
        user = await log_in(chain(accounts, stub, "stub+internal"), "alice", b"stub")
        assert (user.tags, user.rights, user.backend) == (("monitoring", "management"), None, "stub+internal")
        user = await log_in(chain(accounts, stub, "internal+stub"), "alice", b"internal")
        assert user.tags == ("management", "monitoring")
        assert user.rights is not None

    async def test_both_have_to_know_the_user(self, accounts: Accounts, stub: StubBackend) -> None:
        with pytest.raises(Refused, match=r"^user 'bob' - invalid credentials$"):
            await log_in(chain(accounts, stub, "stub+internal"), "bob", b"stub")
        with pytest.raises(Refused, match=r"^Unknown to the stub$"):
            await log_in(chain(accounts, stub, "internal+stub"), "guest", b"guest")


class TestCache:
    async def test_a_login_is_known_for_a_while(self, accounts: Accounts, stub: StubBackend) -> None:
        backends = chain(accounts, stub, "stub", ttl=60.0)
        for _ in range(3):
            await log_in(backends, "alice", b"stub")
        assert len(stub.asked) == 1

    async def test_until_permissions_change(self, accounts: Accounts, stub: StubBackend) -> None:
        backends = chain(accounts, stub, "stub", ttl=60.0)
        await log_in(backends, "alice", b"stub")
        accounts.set_permissions("alice", "/", "", "", "")
        await log_in(backends, "alice", b"stub")
        assert len(stub.asked) == 2

    async def test_other_secrets_and_refusals_are_asked_each_time(self, accounts: Accounts, stub: StubBackend) -> None:
        backends = chain(accounts, stub, "stub", ttl=60.0)
        await log_in(backends, "alice", b"stub")
        for _ in range(2):
            with pytest.raises(Refused):
                await log_in(backends, "alice", b"wrong")
        assert len(stub.asked) == 3

    async def test_a_login_that_ends_by_itself_is_asked_each_time(self, accounts: Accounts, stub: StubBackend) -> None:
        backends, stub.expires_at = chain(accounts, stub, "stub", ttl=60.0), 1e12
        assert [(await log_in(backends, "alice", b"stub")).expires_at for _ in range(2)] == [1e12, 1e12]
        assert len(stub.asked) == 2
