"""Makes a release, up to its upload: `make release VERSION=1.2.3`.

Everything is checked before anything is committed. If a step fails, the checkout is left as it was.
"""

from __future__ import annotations

import argparse
import datetime
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import venv
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from packaging.version import InvalidVersion, Version

#: From the project's root.
_VERSION_FILE: Final = "broker/version.py"
_CHANGELOG: Final = "CHANGELOG.md"
_UNRELEASED: Final = "## Unreleased\n"
#: Seconds that the installed broker has to say that it serves.
_PATIENCE: Final = 60


class ReleaseError(Exception):
    """The release cannot be made; the text says why, and what to do."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Make a release of the checkout in the current directory."""
    parser = argparse.ArgumentParser(prog="make release", description="Make a release, up to its upload.")
    parser.add_argument("version", help="such as 1.2.3")
    parser.add_argument("--dry-run", action="store_true", help="do it in a temporary clone, which is removed")
    parser.add_argument("--offline", action="store_true", help="take dependencies from this environment")
    options = parser.parse_args(arguments)
    try:
        if not options.dry_run:
            release(Path.cwd(), options.version, offline=options.offline)
            return 0
        with tempfile.TemporaryDirectory() as temporary:
            clone = Path(temporary, "clone")
            require_clean(Path.cwd())
            _run(Path.cwd(), "git", "clone", "--quiet", "--tags", ".", str(clone))
            release(clone, options.version, offline=options.offline)
            _say("That was a dry run: nothing of it is kept.")
    except ReleaseError as error:
        sys.stderr.write(f"release: {error}\n")
        return 1
    return 0


def release(root: Path, version: str, *, offline: bool) -> None:
    """Set the version, date the changelog, build and try the distributions, commit and tag."""
    require_clean(root)
    old = version_of(root)
    require_newer(root, old, version)
    try:
        set_version(root, old, version)
        date_changelog(root, version, datetime.date.today())
        built = build(root, version)
        try_wheel(root, built[0], version, offline=offline)
    except BaseException:
        _run(root, "git", "restore", ".")
        raise
    _run(root, "git", "commit", "--quiet", "--all", "--message", f"Release {version}")
    _run(root, "git", "tag", "--annotate", f"v{version}", "--message", f"Leveret {version}")
    _say(f"Leveret {version} is built, tried, committed and tagged. The remaining steps:")
    _say("  git push --follow-tags")
    _say("  .venv/bin/twine upload " + " ".join(str(path.relative_to(root)) for path in built))


# --- what has to hold ---------------------------------------------------------------------------------------------


def require_clean(root: Path) -> None:
    """Make sure that what is built is what is committed."""
    changed = _run(root, "git", "status", "--porcelain")
    if changed:
        raise ReleaseError(f"commit or stash what has changed first:\n{changed.rstrip()}")


def version_of(root: Path) -> str:
    """Return the version that the checkout has."""
    found = re.search(r'^VERSION = "([^"]+)"$', (root / _VERSION_FILE).read_text("utf-8"), re.MULTILINE)
    if found is None:
        raise ReleaseError(f'there is no line VERSION = "…" in {_VERSION_FILE}')
    return found[1]


def require_newer(root: Path, old: str, version: str) -> None:
    """Make sure that it is a version, that follows the last one, and was not released."""
    try:
        wanted = Version(version)
    except InvalidVersion:
        wanted = None
    if wanted is None or not re.fullmatch(r"\d+\.\d+\.\d+", version):
        raise ReleaseError(f"'{version}' is not a version; one looks like 1.2.3")
    if wanted < Version(old):
        raise ReleaseError(f"{version} is older than {old}, which is in {_VERSION_FILE}")
    if _run(root, "git", "tag", "--list", f"v{version}"):
        raise ReleaseError(f"{version} was released: there is a tag v{version}")


# --- what changes -------------------------------------------------------------------------------------------------


def set_version(root: Path, old: str, version: str) -> None:
    """Write the version where the program has it, and where documents show it."""
    file = root / _VERSION_FILE
    file.write_text(file.read_text("utf-8").replace(f'VERSION = "{old}"', f'VERSION = "{version}"'), "utf-8")
    for page in [root / "README.md", *(root / "docs").glob("*.md")]:
        text = page.read_text("utf-8")
        shown = re.sub(rf"\bleveret([ -]){re.escape(old)}(?![.\d]*\d)", rf"leveret\g<1>{version}", text)
        minor, old_minor = (".".join(each.split(".")[:2]) for each in (version, old))
        shown = re.sub(rf"\bversion {re.escape(old_minor)}(?![.\d]*\d)", f"version {minor}", shown)
        if shown != text:
            page.write_text(shown, "utf-8")


def date_changelog(root: Path, version: str, day: datetime.date) -> None:
    """Give what is unreleased the version and the date, below a new section for what comes."""
    file = root / _CHANGELOG
    text = file.read_text("utf-8")
    before, found, after = text.partition(_UNRELEASED)
    section = re.split(r"^## ", after, maxsplit=1, flags=re.MULTILINE)[0]
    if not found or not re.search(r"^- \S", section, re.MULTILINE):
        raise ReleaseError(f"{_CHANGELOG} lists nothing under {_UNRELEASED.strip()}")
    file.write_text(f"{before}{_UNRELEASED}\n## {version} - {day.isoformat()}\n{after}", "utf-8")


# --- what is built ------------------------------------------------------------------------------------------------


def build(root: Path, version: str) -> tuple[Path, Path]:
    """Build the wheel, from the source distribution, and check both."""
    dist = root / "dist"
    shutil.rmtree(dist, ignore_errors=True)
    _say("building")
    # A compiled wheel of this machine would suit no other: who has a compiler can compile the source distribution.
    _run(root, "env", "LEVERET_COMPILE=0", sys.executable, "-m", "build", "--no-isolation", "--outdir", str(dist), ".")
    built = dist / f"leveret-{version}-py3-none-any.whl", dist / f"leveret-{version}.tar.gz"
    _run(root, sys.executable, "-m", "twine", "check", "--strict", *map(str, built))
    return built


def try_wheel(root: Path, wheel: Path, version: str, *, offline: bool) -> None:
    """Install the wheel into a new environment, and run its programs there."""
    with tempfile.TemporaryDirectory() as temporary:
        place = Path(temporary)
        _say("trying the wheel in a new environment")
        venv.create(place / "venv", with_pip=True)
        install = [str(place / "venv/bin/python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        if offline:
            (packages,) = place.glob("venv/lib/python*/site-packages")
            (packages / "dependencies.pth").write_text(f"{sysconfig.get_path('purelib')}\n")
            install.append("--no-deps")
        _run(root, *install, "--constraint", "constraints.txt", str(wheel))
        programs = {
            "leveret": ("leveret", "--version"),
            "python -m leveret": ("python", "-m", "leveret", "--version"),
            "leveretctl": ("leveretctl", "version"),
        }
        for name, (program, *words) in programs.items():
            printed = _run(place, str(place / "venv/bin" / program), *words)
            if version not in printed.split():
                raise ReleaseError(f"{name} says that it is version {printed.strip()}, not {version}")
        _serve(place)


def _serve(place: Path) -> None:
    """Start the installed broker, and stop it once it serves."""
    ports = ["--port", "0", "--management-port", "0", "--prometheus-port", "0", "--host", "127.0.0.1"]
    command = [str(place / "venv/bin/leveret"), *ports, "--data-dir", str(place / "data"), "--log-level", "warning"]
    with subprocess.Popen(
        # Without --foreground, timeout sends a signal to its process group, too, so that the broker gets two.
        ["timeout", "--foreground", str(_PATIENCE), *command],
        cwd=place,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        process.terminate()
    if " ready " not in line:
        raise ReleaseError("the installed broker does not start")


def _run(place: Path, *command: str) -> str:
    """Run a command; return what it prints."""
    done = subprocess.run(command, cwd=place, capture_output=True, text=True, check=False)
    if done.returncode:
        raise ReleaseError(f"{' '.join(command)} failed:\n{(done.stdout + done.stderr).rstrip()}")
    return done.stdout


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
