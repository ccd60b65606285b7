"""The one place that names the version; packaging reads it from here."""

from __future__ import annotations

VERSION = "0.1.0"
