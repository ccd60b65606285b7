"""The image that stands in for a registry's: a small Debian (or Ubuntu) with Python, made from the packages of this
machine's own distribution, with what pip needs here to find packages.
"""

from __future__ import annotations

import ast
import hashlib
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

from tests.docker.daemon import CACHE, CannotStartError, Docker

IMAGE: Final = "leveret-stand-in-base"

_PACKAGES: Final = ("python3", "python3-venv", "ca-certificates")
_UNNEEDED: Final = ("usr/share/doc", "usr/share/man", "usr/share/locale", "var/lib/apt/lists", "var/cache/apt")
_BUILD_SECONDS: Final = 900.0
#: What of this machine's configuration of pip makes sense in a container.
_PIP_SETTINGS: Final = (
    "index-url", "extra-index-url", "trusted-host", "proxy", "timeout", "default-timeout", "retries",
)  # fmt: skip
_CERTIFICATES: Final = "/etc/ssl/certs/ca-certificates.crt"


def make(docker: Docker) -> str:
    """Make the image, out of the cache if it is there; return its name."""
    system = _system()
    with tempfile.TemporaryDirectory(prefix="leveret-base-") as name:
        context = Path(name)
        # A hard link or a copy: Docker sees nothing outside of the folder.
        tarball = system.name
        try:
            os.link(system, context / tarball)
        except OSError:
            shutil.copyfile(system, context / tarball)
        _write_settings(context / "etc")
        (context / "Dockerfile").write_text(f'FROM scratch\nADD {tarball} /\nCOPY etc /etc\nCMD ["sh"]\n')
        docker("build", "--tag", IMAGE, name, seconds=_BUILD_SECONDS)
    return IMAGE


def _system() -> Path:
    """The system as an archive."""
    release = platform.freedesktop_os_release().get("VERSION_CODENAME", "")
    key = hashlib.sha256(repr((release, _PACKAGES, _UNNEEDED, platform.machine())).encode()).hexdigest()[:12]
    archive = CACHE / f"base-{release}-{key}.tar"
    if archive.exists():
        return archive
    debootstrap = shutil.which("debootstrap")
    if debootstrap is None:
        raise CannotStartError("debootstrap not found; `sh tests/system-needs.sh docker` installs it")
    mirror, components = _source(release)
    CACHE.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="base-", dir=CACHE) as root:
        command = [debootstrap, "--variant=minbase", f"--include={','.join(_PACKAGES)}"]
        _run([*command, f"--components={','.join(components)}", release, root, mirror])
        for folder in _UNNEEDED:
            shutil.rmtree(f"{root}/{folder}", ignore_errors=True)
            Path(root, folder).mkdir()
        unfinished = archive.with_suffix(".part")
        # Docker makes /dev and the others itself, and device files cannot be unpacked everywhere.
        _run(
            ["tar", "-C", root, "--exclude=./dev/*", "--exclude=./proc/*", "--exclude=./sys/*", "-cf", unfinished, "."]
        )
        unfinished.rename(archive)
    return archive


def _source(release: str) -> tuple[str, list[str]]:
    """Where this machine has its packages from, and which parts of it it uses."""
    form = "$(REPO_URI) $(RELEASE) $(COMPONENT)"
    try:
        listed = subprocess.run(
            ["apt-get", "indextargets", "--format", form, "Created-By: Packages"],
            capture_output=True,
            text=True,
            check=True,
        ).stdout
    except (OSError, subprocess.CalledProcessError) as error:
        raise CannotStartError(f"the base image is made of Debian's packages, and apt-get fails: {error}") from error
    rows = [row.split() for row in listed.splitlines()]
    found = {
        component: mirror for mirror, suite, component in (row for row in rows if len(row) == 3) if suite == release
    }
    if not found:
        raise CannotStartError(f"apt has no package source for {release!r} to make a base image of")
    # Others may come from elsewhere; Debian and Ubuntu have theirs in one place.
    mirror = next(iter(found.values()))
    return mirror, [component for component, of in found.items() if of == mirror]


def _run(command: list[str | Path]) -> None:
    done = subprocess.run(
        command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=_BUILD_SECONDS, check=False
    )
    if done.returncode:
        said = (done.stdout + done.stderr).strip().splitlines()[-5:]
        raise CannotStartError(f"{command[0]} failed with status {done.returncode}: {' / '.join(said)}")


def _write_settings(etc: Path) -> None:
    """Write pip's configuration and the certificates that this machine trusts."""
    settings = _pip_settings()
    lines = ["[global]", *(f"{name} = {settings[name]}" for name in _PIP_SETTINGS if name in settings)]
    certificates = Path(settings.get("cert") or os.environ.get("SSL_CERT_FILE") or _CERTIFICATES)
    if certificates.is_file():
        inside = etc / Path(_CERTIFICATES).relative_to("/etc")
        inside.parent.mkdir(parents=True)
        shutil.copyfile(certificates, inside)
        lines.append(f"cert = {_CERTIFICATES}")
    etc.mkdir(exist_ok=True)
    (etc / "pip.conf").write_text("\n".join([*lines, ""]))


def _pip_settings() -> dict[str, str]:
    """pip's settings in force, by name: those of the environment come before those of files."""
    listed = subprocess.run(
        [sys.executable, "-m", "pip", "config", "list"], capture_output=True, text=True, check=True
    ).stdout
    pairs = [line.partition("=") for line in listed.splitlines()]
    pairs.sort(key=lambda pair: pair[0].startswith(":env:"))
    return {name.rpartition(".")[2]: " ".join(str(ast.literal_eval(value)).split()) for name, _, value in pairs}
