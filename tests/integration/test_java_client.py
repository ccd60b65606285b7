"""RabbitMQ's Java client: runs the Maven project in `java/`."""

from __future__ import annotations

import os
import subprocess
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.integration.java_tls import JavaTls
from tests.integration.java_tokens import TokenIssuer
from tests.integration.restart_control import RestartControl
from tests.support.leveret_process import LeveretProcess

_PROJECT = Path(__file__).parent / "java"
_MAVEN_SECONDS = 1800
# For a short run: what compiles fast beats what runs fast.
_JAVA_OPTIONS = "-Xmx256m -XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


@contextmanager
def _broker_options(given_url: str | None, directory: Path) -> Iterator[list[str]]:
    """Give Maven's options that name the broker; a given one cannot be restarted, and has no certificates of ours."""
    management = [f"-Dbroker.management={url}"] if (url := os.environ.get("MANAGEMENT_URL")) else []
    if given_url:
        yield [f"-Dbroker.url={given_url}", *management]
        return
    tls, alarmed = JavaTls(directory), directory / "alarmed"
    alarmed.mkdir()
    taking = directory / "tokens"
    taking.mkdir()
    with (
        LeveretProcess(directory, arguments=tls.broker_arguments()) as process,
        LeveretProcess(alarmed, settings={"vm_memory_high_watermark.absolute": 1}) as blocking,
        RestartControl(process.restart) as control,
        TokenIssuer(taking) as issuer,
        LeveretProcess(taking, config=issuer.config) as with_tokens,
    ):
        yield [
            f"-Dbroker.url={process.url}",
            f"-Dbroker.management={process.http_url}",
            f"-Dbroker.alarmed={blocking.url}",
            f"-Dbroker.control={control.address}",
            f"-Dbroker.tokens={with_tokens.url}",
            f"-Dbroker.issuer={issuer.url}",
            *tls.maven_options(),
        ]


def _tests_run(reports: Path) -> int:
    suites = [ElementTree.parse(report).getroot() for report in reports.glob("TEST-*.xml")]
    return sum(int(suite.attrib["tests"]) - int(suite.attrib["skipped"]) for suite in suites)


@pytest.mark.java
@pytest.mark.timeout(_MAVEN_SECONDS + 60)
@pytest.mark.parametrize("tests", ["-Dgroups=quick", "-DexcludedGroups=quick"], ids=["quick", "others"])
def test_java_client(given_url: str | None, tmp_path: Path, tests: str) -> None:
    build = tmp_path / "build"
    with _broker_options(given_url, tmp_path) as options:
        maven = subprocess.run(
            ["mvn", "-q", "-B", "-ntp", "test", "-f", str(_PROJECT), f"-DbuildDirectory={build}", tests, *options],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=_MAVEN_SECONDS,
            check=False,
            env={
                **os.environ,
                "MAVEN_OPTS": f"{_JAVA_OPTIONS} {os.environ.get('MAVEN_OPTS', '')}",
            },
        )
    assert maven.returncode == 0, maven.stdout.decode(errors="replace")
    assert _tests_run(build / "surefire-reports") > 0
