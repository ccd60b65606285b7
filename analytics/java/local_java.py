"""Options with which Java starts fast for the jobs on this machine; see also class_archive.py."""

from __future__ import annotations

import os
import re
import shlex
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import pyspark

#: Options, each with what a user may have chosen instead. Jobs are short: what compiles fast beats what runs fast, and
#: threads of a garbage collector only take turns.
_FAST: Final = (
    ("-XX:TieredStopAtLevel=1", re.compile(r"Tiered|-Xint|-Xcomp|JVMCI")),
    ("-XX:+UseSerialGC", re.compile(r"GC\b")),
)
#: For the process that finds the command line of Java.
FAST_LAUNCHER: Final = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
_ARCHIVE_CHOSEN: Final = re.compile(r"-Xshare|SharedArchive|ArchiveClasses|-Xlog|SharedClass")
_SUBMIT: Final = "PYSPARK_SUBMIT_ARGS"
_OF_USERS: Final = ("JAVA_TOOL_OPTIONS", "_JAVA_OPTIONS", "JDK_JAVA_OPTIONS", "SPARK_SUBMIT_OPTS", _SUBMIT)
_DEFAULTS: Final = "spark.driver.defaultJavaOptions"
_SETTING: Final = re.compile(r"^\s*(spark\.driver\.(?:default|extra)JavaOptions)[\s=:]+(.*?)\s*$", re.MULTILINE)


def is_local(master: str) -> bool:
    """Return whether a master runs everything in the process of the driver."""
    return master == "local" or master.startswith("local[")


def find_java() -> str | None:
    """Return the path of the Java that Spark runs; None if there is none."""
    home = os.environ.get("JAVA_HOME")
    java = f"{home}/bin/java" if home else shutil.which("java")
    return java if java is not None and os.path.exists(java) else None


def settings_directory() -> Path:
    """Return the directory of Spark's settings, which need not exist."""
    home = os.environ.get("SPARK_HOME") or os.path.dirname(pyspark.__file__)
    return Path(os.environ.get("SPARK_CONF_DIR") or f"{home}/conf")


def driver_settings(archive: Sequence[str] = ()) -> dict[str, str]:
    """Return the settings of a session whose Java process is not running yet. What users have chosen is left alone.

    Args:
        archive: Options that name an archive of classes.
    """
    settings = _user_settings()
    chosen = " ".join([*(os.environ.get(name, "") for name in _OF_USERS), *settings.values()])
    options = [option for option, instead in _FAST if not instead.search(chosen)]
    if archive and not _ARCHIVE_CHOSEN.search(chosen):
        options += archive
    submit = os.environ.get(_SUBMIT, "")
    if not options or _DEFAULTS in submit or "--properties-file" in submit:
        # A setting of ours would replace that of the user.
        return {}
    # Of two options of a kind Java takes the last.
    return {_DEFAULTS: " ".join([shlex.join(options), settings.get(_DEFAULTS, "")]).strip()}


def _user_settings() -> dict[str, str]:
    """Return the options for Java in the user's spark-defaults.conf."""
    try:
        return dict(_SETTING.findall((settings_directory() / "spark-defaults.conf").read_text(encoding="utf-8")))
    except (OSError, ValueError):
        return {}
