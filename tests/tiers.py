"""Two tiers of tests: `make test` runs the first one, `make test-all` both.

What is slow by nature is in the second tier: browsers, Spark, faults at random, other programs and their environments.
Of each of these some tests are in the first tier, so that what breaks all of them is seen within minutes. What needs a
program that this machine lacks is left out, which the run says at its end.
"""

from __future__ import annotations

import subprocess
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple

#: Tests of the second tier, by how their ids begin.
SECOND: Final = (
    "tests/bench/",
    "tests/crash/",
    "tests/docker/",
    "tests/integration/auth_http/test_auth_http.py::test_others_go_on_while_the_server_is_slow",
    "tests/integration/embedding/test_fixtures.py::test_a_suite[xdist]",
    "tests/integration/management/test_any_",
    "tests/integration/management/test_rabbitmqadmin.py",
    "tests/integration/management/test_slow_logins.py",
    "tests/integration/management/test_stalled_clients.py",
    "tests/integration/test_archiving.py",
    "tests/integration/test_backup.py::test_a_backup_that_is_killed_leaves_nothing_that_counts",
    "tests/integration/test_backup.py::test_any_moment_between_two_backups_is_restored[1]",
    "tests/integration/test_backup_cluster.py::test_takers_and_leaders_die_in_the_midst_of_backups",
    "tests/integration/test_documentation",
    "tests/integration/test_embedded.py::test_fixtures_as_documented",
    "tests/integration/test_iceberg_catalog.py",
    "tests/integration/test_iceberg_in_spark.py",
    "tests/integration/test_java_client.py",
    "tests/integration/test_lakehouse.py::test_what_the_compose_file_starts",
    "tests/integration/test_oauth2_attacks.py::test_a_provider_that_fails[",
    "tests/integration/test_oauth2_attacks.py::test_forged_keys",
    "tests/integration/test_paging.py",
    "tests/integration/test_public_definitions.py",
    "tests/integration/test_shovels.py::test_nothing_is_lost_when_a_broker_is_killed[",
    "tests/mutants/",
    "tests/packaging/",
    "tests/spark/",
    "tests/torture/",
    "tests/ui/",
)
#: Those among them that are in the first tier all the same.
FIRST: Final = (
    "tests/crash/test_failed_sync.py",
    "tests/crash/test_lost_files.py",
    "tests/crash/test_scenarios.py::test_in_a_process[queues-",
    "tests/crash/test_scenarios.py::test_on_a_simulated_disk[queues-",
    "tests/crash/test_scenarios.py::test_what_is_there_again",
    "tests/crash/test_torn_write.py",
    "tests/integration/test_documentation.py",
    "tests/integration/test_java_client.py::test_java_client[quick]",
    "tests/integration/test_oauth2_attacks.py::test_a_provider_that_fails[answer0]",
    "tests/integration/test_shovels.py::test_nothing_is_lost_when_a_broker_is_killed[source-in]",
    "tests/packaging/test_package.py",
    "tests/spark/test_cluster.py::test_workers_know_nothing_of_the_project",
    "tests/spark/test_data_source.py::test_columns_and_a_limit_are_passed_on",
    "tests/spark/test_data_source.py::test_conditions_can_decide_what_is_read",
    "tests/spark/test_data_source.py::test_events",
    "tests/spark/test_data_source.py::test_messages",
    "tests/spark/test_data_source.py::test_wrong_columns_are_refused",
    "tests/spark/test_jobs.py::test_what_waits",
    "tests/spark/test_sink.py::test_rows_that_are_not_taken",
    "tests/spark/test_streaming.py",
    "tests/torture/test_torture.py::test_a_minute",
    "tests/ui/test_admin.py::test_a_virtual_host_is_added_changed_and_deleted",
    "tests/ui/test_admin.py::test_adding_a_user",
    "tests/ui/test_admin.py::test_limits_are_set_and_cleared[Users",
    "tests/ui/test_channels.py::test_what_a_channel_is",
    "tests/ui/test_connections.py::test_who_is_connected",
    "tests/ui/test_delayed_messages.py::test_looking_cancelling_and_delivering",
    "tests/ui/test_exchange.py::test_binding_and_unbinding",
    "tests/ui/test_jobs.py::test_progress_is_shown_and_a_job_is_cancelled",
    "tests/ui/test_losses.py::test_who_lost_most_stands_first_with_reasons_and_links",
    "tests/ui/test_overview.py::test_numbers_and_charts_are_those_of_the_broker",
    "tests/ui/test_policies.py::test_operator_policies_offer_their_own_keys",
    "tests/ui/test_policies.py::test_what_would_be_dropped_is_shown_before_it_is_saved",
    "tests/ui/test_queue.py::test_every_setting_has_its_value_its_source_and_the_reason",
    "tests/ui/test_queue_messages.py::test_taking_messages_away_is_asked_first",
    "tests/ui/test_queues.py::test_adding_a_queue",
    "tests/ui/test_session.py::test_logging_in_and_out",
    "tests/ui/test_stream.py::test_a_stream",
)
#: Tests of modules that are never compiled, which .ci/run therefore runs once: with `make coverage`.
INTERPRETED: Final = (
    "tests/integration/leveretctl/",
    "tests/unit/broker/auth/",
    "tests/unit/broker/config/",
    "tests/unit/broker/management/",
)
#: Folders whose tests take longest begin first: at the end one process would still work on them, the others be done.
#: Packaging is first, since tests with Spark set variables for the rest of their process.
_BEGIN: Final = ("tests/packaging/", "tests/spark/", "tests/ui/", "tests/crash/", "tests/unit/analytics/archive/")


class Need(NamedTuple):
    """A program that tests need.

    Attributes:
        marker: The marker of these tests.
        tests: What they are, for people.
        program: Its name for `tests/system-needs.sh`.
    """

    marker: str
    tests: str
    program: str


NEEDS: Final = (
    Need("spark", "Spark", "jdk"),
    Need("java", "the Java client", "java"),
    Need("ui", "the web pages", "chromium"),
    Need("etcd", "replication", "etcd"),
    Need("ldap", "LDAP", "slapd"),
    Need("helm", "the Helm chart", "helm"),
    Need("go", "the Go client and compose files", "go"),
)
_SCRIPT: Final = str(Path(__file__).with_name("system-needs.sh"))


def is_slow(nodeid: str) -> bool:
    """Return whether a test is in the second tier."""
    return nodeid.startswith(SECOND) and not nodeid.startswith(FIRST)


def rank(nodeid: str) -> int:
    """Return the place of a test's folder in the order; tests of one place stay in their order."""
    return next((place for place, folder in enumerate(_BEGIN) if nodeid.startswith(folder)), len(_BEGIN))


@cache
def lacking() -> tuple[Need, ...]:
    """Return what this machine lacks."""
    return tuple(need for need in NEEDS if subprocess.run(["sh", _SCRIPT, "has", need.program], check=False).returncode)


def left_out() -> str:
    """Return a sentence on what is left out and how to have it; empty if nothing is."""
    if not lacking():
        return ""
    tests = ", ".join(need.tests for need in lacking())
    command = ["sh", _SCRIPT, "how", *(need.program for need in lacking())]
    how = subprocess.check_output(command, text=True).strip()
    return f"Left out: the tests of {tests}. They run after: {how}"
