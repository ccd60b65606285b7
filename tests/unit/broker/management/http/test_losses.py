"""Start of counting of losses."""

from __future__ import annotations

import json
from base64 import b64encode

from aiohttp.test_utils import make_mocked_request

from leveret.broker.auth.backends.chain import AuthBackends
from leveret.broker.config.options import Settings
from leveret.broker.core.node import Node
from leveret.broker.management.http.access import Access
from leveret.broker.management.http.controller import RequestContext
from leveret.broker.management.http.controllers.losses import Losses
from leveret.broker.operations.jobs.runner import Jobs
from leveret.broker.shovels.shovels import Shovels
from leveret.storage.clock import Clock
from tests.support.memory_broker import MemoryBroker

_AUTHORIZATION = "Basic " + b64encode(b"ann:secret").decode("ascii")


async def test_totals_have_the_start_of_counting() -> None:
    made = MemoryBroker()
    made.accounts.add_user("ann", "secret", ("administrator",))
    # Counting may have started before this run of the broker.
    made.broker.losses_since = 1_700_000_000
    access = Access(AuthBackends(made.accounts), made.broker)
    jobs = Jobs(made.broker, made.accounts)
    shovels = Shovels(made.broker, AuthBackends(made.accounts), 0, {})
    context = RequestContext(made.broker, made.accounts, Node(Clock()), Settings(), access, lambda: None, jobs, shovels)
    controller = Losses(context)
    request = make_mocked_request("GET", "/api/losses?page=1", headers={"authorization": _AUTHORIZATION})
    answer = await controller.list(request)
    assert isinstance(answer.body, bytes)
    assert json.loads(answer.body)["totals"]["since"] == 1_700_000_000_000
