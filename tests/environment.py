"""What the tests take from the environment of their caller: where programs are, and what the run is to do."""

from __future__ import annotations

import pwd
from collections.abc import MutableMapping
from os import getuid
from typing import Final

#: Variables that brokers, clients, Spark, pytest, git and other programs of the tests would follow, by how they begin.
_FORGOTTEN: Final = (
    *("LEVERET_", "RABBITMQ_", "LAVINMQ", "BENCH_PEER", "AMQP", "CLOUDAMQP", "CELERY_", "KOMBU_", "DRAMATIQ_"),
    *("ETCD_", "ETCDCTL_", "KUBERNETES_", "KC_", "LDAP", "PYICEBERG_", "HYPOTHESIS_"),
    *("SPARK_", "PYSPARK_", "FSSPEC_", "AWS_", "XDG_CACHE_", "XDG_CONFIG_", "JUPYTER_", "IPYTHON"),
    *("PYTHON", "PYTEST_ADDOPTS", "PYTEST_PLUGINS", "MYPY", "RUFF_", "MAKEFLAGS", "MAKELEVEL", "MFLAGS"),
    *("GIT_DIR", "GIT_INDEX", "GIT_WORK", "GIT_CONFIG", "GIT_AUTHOR", "GIT_COMMITTER", "GIT_OBJECT", "SOURCE_DATE"),
    *("LC_", "LANGUAGE", "COLUMNS", "LINES", "NO_COLOR", "FORCE_COLOR", "CLICOLOR", "PY_COLORS", "PAGER"),
    *("NOTIFY_SOCKET", "LISTEN_FDS", "LISTEN_PID", "WATCHDOG_", "INVOCATION_ID", "JOURNAL_STREAM"),
)
#: Those among them that say how this run is made.
_KEPT: Final = frozenset(("LEVERET_COMPILE", "PYTHONHOME", "PYTHONHASHSEED", "PYTHONPYCACHEPREFIX", "PYTHONMALLOC"))
#: IPv6 as urllib spells it, too.
_LOOPBACK: Final = ("127.0.0.1", "localhost", "::1", "[::1]")


def clean(variables: MutableMapping[str, str]) -> None:
    """Remove what would change what tests see, and set what programs expect.

    What installs programs may need the caller's proxy; what talks to a broker on this machine must not.

    Args:
        variables: The environment.
    """
    for name in [name for name in variables if name.startswith(_FORGOTTEN) and name not in _KEPT]:
        del variables[name]
    variables.update(LANG="C.UTF-8", TZ="UTC")
    user = pwd.getpwuid(getuid())
    for name, value in (("HOME", user.pw_dir), ("USER", user.pw_name), ("LOGNAME", user.pw_name)):
        variables.setdefault(name, value)
    direct = variables.get("no_proxy") or variables.get("NO_PROXY") or ""
    hosts = dict.fromkeys([*filter(None, direct.split(",")), *_LOOPBACK])
    variables["no_proxy"] = variables["NO_PROXY"] = ",".join(hosts)
