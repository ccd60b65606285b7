"""Random programs of several clients on bounded queues, compared step by step with a plain model of the rules.

MODEL_EXAMPLES=1000 runs this many programs for each kind of queue, and shrinks one that fails.
"""

from __future__ import annotations

import os
from typing import Final

import pytest
from hypothesis import HealthCheck, Phase, given, settings

from tests.conformance.operator_policies import PolicySet
from tests.conformance.queue_client import QueueClient
from tests.conformance.queue_programs import Program, programs
from tests.support.examples import examples
from tests.support.management import Management
from tests.support.wire import Connection

_ASKED_FOR: Final = os.environ.get("MODEL_EXAMPLES")
EXAMPLES: Final = int(_ASKED_FOR or examples(50))
# Each try to make a failing program smaller may wait for something that does not come.
PHASES: Final = [Phase.generate, Phase.shrink] if _ASKED_FOR else [Phase.generate]


@pytest.mark.parametrize("kind", ["classic", "priority", "quorum"])
@pytest.mark.timeout(120 + 10 * EXAMPLES)
def test_queues_do_as_the_rules_say(kind: str, broker_url: str, management: Management, own_vhost: str) -> None:
    @settings(max_examples=EXAMPLES, phases=PHASES, suppress_health_check=list(HealthCheck))
    @given(program=programs(kind))
    def run(program: Program) -> None:
        with (
            PolicySet(management, own_vhost) as policies,
            Connection(broker_url, vhost=own_vhost, timeout=120) as connection,
        ):
            QueueClient(connection, policies, program).run()

    run()
