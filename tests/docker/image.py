"""Builds the image under test."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from leveret.broker.version import VERSION
from tests.docker.daemon import Docker
from tests.docker.stand_in import make as make_stand_in

ROOT: Final = Path(__file__).parents[2]

_SECONDS: Final = 900.0
_PROXIES: Final = ("http_proxy", "https_proxy", "no_proxy", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY")


def build(docker: Docker, target: str = "broker") -> str:
    """Build an image; return its name.

    The base is the image that BASE in the environment names, else the stand-in.
    """
    image = f"leveret-{target}-under-test"
    base = os.environ.get("BASE") or make_stand_in(docker)
    arguments = {"BASE": base, "VERSION": VERSION}
    arguments |= {name: os.environ[name] for name in _PROXIES if name in os.environ}
    options = [word for name, value in arguments.items() for word in ("--build-arg", f"{name}={value}")]
    command = ("--network", "host", "--target", target, "--tag", image, "--file", str(ROOT / "docker/Dockerfile"))
    docker("build", *command, *options, str(ROOT), seconds=_SECONDS)
    return image


def size(docker: Docker, image: str) -> int:
    """Return an image's size in bytes, its base included."""
    return int(docker("image", "inspect", "--format", "{{.Size}}", image))
