from __future__ import annotations

from pathlib import Path

import pytest

from leveret.broker.auth.accounts import Accounts
from leveret.broker.auth.passwords import PasswordRules, RefusedPassword, new_password, read_refused
from leveret.policies.patterns import Pattern


@pytest.mark.parametrize("password", ["ééé", "abcdef", b"\xff" * 6])
def test_lengths_are_of_bytes(password: str | bytes) -> None:
    PasswordRules(min_length=6).check(password)
    with pytest.raises(RefusedPassword, match="minimum required password length is 7"):
        PasswordRules(min_length=7).check(password)


def test_patterns_match_anywhere() -> None:
    rules = PasswordRules(pattern=Pattern("[A-Z]"))
    rules.check("lowerUpper")
    for refused in ("lower", ""):
        with pytest.raises(RefusedPassword, match="does not match the validator regular expression"):
            rules.check(refused)


def test_refused_passwords_are_lines_of_a_file_in_any_case(tmp_path: Path) -> None:
    file = tmp_path / "refused.txt"
    file.write_bytes(b"Summer2024\r\n\n pass word\n\xff\xfe\nlast")
    rules = PasswordRules(refused=read_refused(file))
    for refused in ("SUMMER2024", " pass word", b"\xff\xfe", "Last"):
        with pytest.raises(RefusedPassword, match="in the list of refused passwords"):
            rules.check(refused)
    for good in ("summer2024!", "pass word", ""):
        rules.check(good)


def test_generated_passwords_are_as_long_as_they_must_be() -> None:
    assert len(new_password()) == 32
    assert len({new_password() for _ in range(100)}) == 100
    PasswordRules(min_length=100).check(new_password(PasswordRules(min_length=100)))


def test_passwords_of_new_users_are_checked() -> None:
    accounts = Accounts()
    accounts.add_user("ann", "short")
    accounts.password_rules = PasswordRules(min_length=6)
    with pytest.raises(RefusedPassword):
        accounts.add_user("bob", "other")
    assert accounts.verify("ann", b"short") is not None
