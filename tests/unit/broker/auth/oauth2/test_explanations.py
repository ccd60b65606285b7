from __future__ import annotations

from typing import cast

import pytest

from leveret.broker.auth.backend_interface import Question
from leveret.broker.auth.oauth2.backend import OAuth2Backend, TokenRights
from leveret.broker.auth.oauth2.tokens import Scopes

RIGHTS = TokenRights(cast(OAuth2Backend, None), "u", Scopes(["write:/*", "write:v/x/a.*", "read:v/q"]))


@pytest.mark.parametrize(
    ("question", "is_allowed", "reason"),
    [
        (Question("vhost", "v"), True, "a scope of the token is for it"),
        (Question("vhost", "w"), False, "no scope of the token is for it"),
        (Question("queue", "v", "read", "q"), True, "the token has the scope read:v/q"),
        (Question("queue", "v", "write", "q"), False, "no scope of the token allows it"),
        (Question("topic", "v", "write", "x", "a.b"), True, "the token has the scope write:v/x/a.*"),
        (Question("topic", "v", "write", "x", "b"), False, "no scope of the token allows the routing key 'b'"),
        (Question("topic", "v", "read", "q", "b"), False, "no scope of the token allows the routing key 'b'"),
    ],
)
async def test_which_scope_decides(question: Question, is_allowed: bool, reason: str) -> None:
    explained = await RIGHTS.explain(question)
    assert (explained.is_allowed, explained.backend, explained.reason) == (is_allowed, "oauth2", reason)
