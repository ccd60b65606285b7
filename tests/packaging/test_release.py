"""`make release`, in checkouts of its own."""

from __future__ import annotations

import datetime
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from leveret.broker.version import VERSION
from tests.packaging import release
from tests.packaging.distributions import ROOT

_AUTHOR = {
    f"GIT_{who}_{what}": value
    for who in ("AUTHOR", "COMMITTER")
    for what, value in (("NAME", "Somebody"), ("EMAIL", "somebody@example.org"))
}


def git(place: Path, *arguments: str) -> str:
    command = ["git", *arguments]
    environment = {**os.environ, **_AUTHOR}
    done = subprocess.run(command, cwd=place, env=environment, capture_output=True, text=True, timeout=300, check=True)
    return done.stdout


@pytest.fixture
def repository(checkout: Path, tmp_path: Path) -> Path:
    """A checkout with everything committed, and something to release."""
    made = tmp_path / "repository"
    shutil.copytree(checkout, made, symlinks=True)
    changelog = made / "CHANGELOG.md"
    text = changelog.read_text("utf-8")
    changelog.write_text(text.replace("## Unreleased\n", "## Unreleased\n\n### Fixed\n- A thing.\n", 1), "utf-8")
    git(made, "init", "--quiet")
    git(made, "add", "--all")
    git(made, "commit", "--quiet", "--message", "All of it")
    return made


def make_release(place: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "tests.packaging.release", *arguments, "--offline"],
        cwd=place,
        env={**os.environ, **_AUTHOR},
        capture_output=True,
        text=True,
        timeout=800,
        check=False,
    )


def test_a_release(repository: Path) -> None:
    before = git(repository, "rev-parse", "HEAD")
    dry = make_release(repository, "91.2.3", "--dry-run")
    assert (dry.returncode, dry.stderr) == (0, "")
    assert dry.stdout.endswith("That was a dry run: nothing of it is kept.\n")
    assert (git(repository, "rev-parse", "HEAD"), git(repository, "tag"), git(repository, "status", "--short")) == (
        before,
        "",
        "",
    )

    done = make_release(repository, "91.2.3")
    assert (done.returncode, done.stderr) == (0, "")
    assert git(repository, "tag") == "v91.2.3\n"
    assert git(repository, "log", "--format=%s", f"{before.strip()}..HEAD") == "Release 91.2.3\n"
    assert git(repository, "status", "--short") == ""
    assert release.version_of(repository) == "91.2.3"
    assert f"## Unreleased\n\n## 91.2.3 - {datetime.date.today():%Y-%m}" in (repository / "CHANGELOG.md").read_text()
    built = ["dist/leveret-91.2.3-py3-none-any.whl", "dist/leveret-91.2.3.tar.gz"]
    assert sorted(str(path.relative_to(repository)) for path in (repository / "dist").iterdir()) == built
    assert done.stdout.endswith(f"  git push --follow-tags\n  .venv/bin/twine upload {' '.join(built)}\n")
    for page in ("README.md", "docs/analytics.md"):
        text = (repository / page).read_text("utf-8")
        assert "91.2.3" in text
        assert f"leveret-{VERSION}" not in text

    again = make_release(repository, "91.2.3")
    assert (again.returncode, again.stderr) == (1, "release: 91.2.3 was released: there is a tag v91.2.3\n")


def test_nothing_to_release(repository: Path) -> None:
    changelog = repository / "CHANGELOG.md"
    changelog.write_text("# Changelog\n\n## Unreleased\n\n## 0.0.1 - 2026-01-01\n- A thing.\n")
    git(repository, "commit", "--quiet", "--all", "--message", "Nothing new")
    done = make_release(repository, "91.2.3")
    assert (done.returncode, done.stderr) == (1, "release: CHANGELOG.md lists nothing under ## Unreleased\n")
    assert git(repository, "status", "--short") == ""
    assert release.version_of(repository) == VERSION


@pytest.mark.parametrize(
    ("version", "text"),
    [
        ("1.2", "'1.2' is not a version; one looks like 1.2.3"),
        ("next", "'next' is not a version; one looks like 1.2.3"),
        ("1.2.3rc1", "'1.2.3rc1' is not a version; one looks like 1.2.3"),
        ("0.0.1", f"0.0.1 is older than {VERSION}, which is in broker/version.py"),
    ],
)
def test_versions_that_cannot_be_next(version: str, text: str) -> None:
    with pytest.raises(release.ReleaseError) as raised:
        release.require_newer(ROOT, VERSION, version)
    assert str(raised.value) == text


def test_make_says_what_it_needs() -> None:
    done = subprocess.run(
        ["make", "--dry-run", "release"], cwd=ROOT, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode != 0
    assert "say which: make release VERSION=1.2.3" in done.stderr
