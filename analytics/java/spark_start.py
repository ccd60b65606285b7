"""Starts Spark for the jobs, fast on one machine: with an archive of its classes, and Python modules with byte code.

Both are in the user's cache directory, and save half of the time of a job. The first job makes a directory for its
Spark, which tells the next one that the cache is kept. When that has ended, a process in the background makes the
archive, once: it runs small jobs, and Java writes down which classes they have loaded. The archive is called by what it
was made of. Another Spark or another Java makes another one, and removes it.
"""

from __future__ import annotations

import fcntl
import io
import logging
import os
import re
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

import pyspark
from py4j.protocol import Py4JError
from pyspark import SparkContext
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from leveret.analytics.errors import AnalyticsError

#: Options, each with what a user may have chosen instead. Jobs are short: what compiles fast beats what runs fast, and
#: threads of a garbage collector only take turns.
_FAST: Final = (
    ("-XX:TieredStopAtLevel=1", re.compile(r"Tiered|-Xint|-Xcomp|JVMCI")),
    ("-XX:+UseSerialGC", re.compile(r"GC\b")),
)
#: For the process that finds the command line of Java.
_FAST_LAUNCHER: Final = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
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
    """Return the settings of a session whose Java process is not running yet. What users have chosen is left alone."""
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


#: Java says nothing about an archive that it cannot use, and goes on without.
_QUIET: Final = "-Xlog:cds*=off"
_KEPT_SECONDS: Final = 30 * 86_400


@dataclass(frozen=True, slots=True)
class SparkCache:
    """What is kept for one installation of Spark.

    Attributes:
        place: The directory.
        key: What its archive is made of.
        is_new: Whether no job has used the directory before.
        making: Where Java writes an archive; "" to use the one that is there.
    """

    place: Path
    key: str
    is_new: bool
    making: str = ""

    @property
    def home(self) -> Path:
        """Where its Spark of links is."""
        return self.place / "home"

    @property
    def archive(self) -> Path | None:
        """The archive; None if there is none, or not all of it: Java would crash."""
        for path in self.place.glob(f"classes-{self.key}-*.jsa"):
            if path.stem.rpartition("-")[2] == str(path.stat().st_size):
                return path
        return None

    @property
    def options(self) -> tuple[str, ...]:
        """Options of Java that use the archive, or make one; empty if there is none."""
        if self.making:
            return f"-XX:ArchiveClassesAtExit={self.making}", _QUIET
        try:
            archive = self.archive
            if archive is None:
                return ()
            # When it was used last.
            os.utime(archive)
        except OSError:
            return ()
        return f"-XX:SharedArchiveFile={archive}", _QUIET

    def make_later(self) -> None:
        """Make the archive in the background, if there is none and jobs before have used the directory."""
        if not (self.is_new or self.archive is not None or self._failed.exists() or _has_settings()):
            command = [sys.executable, "-m", "leveret.analytics.java.archive_maker"]
            nothing = subprocess.DEVNULL
            try:
                subprocess.Popen(command, stdin=nothing, stdout=nothing, stderr=nothing, start_new_session=True)
            except OSError:
                # Then the next job.
                return

    @contextmanager
    def make(self) -> Iterator[str]:
        """Let Java write a new archive, which replaces others if it is there at the end; one process at a time.

        Yields:
            The path to write to; "" if there is an archive, or another process makes one.
        """
        with open(self.place / "lock", "wb") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                yield ""
                return
            if self.archive is not None:
                yield ""
                return
            unfinished = self.place / "unfinished.jsa"
            unfinished.unlink(missing_ok=True)
            self._failed.touch()
            yield str(unfinished)
            if unfinished.exists():
                with open(unfinished, "rb") as file:
                    size = os.fstat(file.fileno()).st_size
                    os.fsync(file.fileno())
                archive = unfinished.rename(self.place / f"classes-{self.key}-{size}.jsa")
                self._failed.unlink()
                self._remove_others(archive)

    @property
    def _failed(self) -> Path:
        """Says that an archive could not be made, so that not every job tries it."""
        return self.place / f"classes-{self.key}.failed"

    def _remove_others(self, archive: Path) -> None:
        """Remove archives of other versions, and those of other installations that were not used for a month."""
        for path in self.place.parent.glob("*/classes-*"):
            is_old = path.stat().st_mtime < time.time() - _KEPT_SECONDS
            if path != archive and (path.parent == self.place or is_old):
                path.unlink(missing_ok=True)


def open_cache() -> SparkCache | None:
    """Return the cache of the installed Spark, and make its directory; None without Java, or if it cannot be made."""
    java, cache = find_java(), _user_cache()
    if java is None or cache is None:
        return None
    package = os.path.dirname(pyspark.__file__)
    spark = os.environ.get("SPARK_HOME", "")
    if Path(spark).parent.parent == cache / "leveret":
        # Set by a job before.
        del os.environ["SPARK_HOME"]
        spark = ""
    place = cache / "leveret" / f"spark-{_checksum(package, spark)}"
    try:
        is_new = not place.exists()
        place.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not os.access(place, os.W_OK):
            return None
        key = _checksum(pyspark.__version__, *_versions(Path(java).resolve()))
        return SparkCache(place, key, is_new)
    except OSError:
        return None


def unpacked_spark(cache: SparkCache) -> str | None:
    """Return the path of a Spark without `pyspark.zip`, of links to the installed one; None if it is not to be used.

    That file has no byte code, so that each Python process of Spark compiles all that it imports. Without it they
    import the installed package.
    """
    if "SPARK_HOME" in os.environ or os.environ.get("PYSPARK_PYTHON", sys.executable) != sys.executable:
        return None
    home = cache.home
    try:
        home.mkdir(exist_ok=True)
        for name in ("bin", "conf", "jars", "sbin"):
            link, target = home / name, Path(pyspark.__file__).parent / name
            if target.exists() and not link.exists():
                # Made under another name: another job may be about to make it, too.
                made = home / f"{name}.{os.getpid()}"
                made.symlink_to(target)
                made.rename(link)
    except OSError:
        return None
    return str(home)


def _user_cache() -> Path | None:
    """Return the user's cache directory; None if there is none."""
    chosen = os.environ.get("XDG_CACHE_HOME", "")
    path = Path(chosen if os.path.isabs(chosen) else os.path.expanduser("~/.cache"))
    return path if path.is_absolute() else None


def _versions(java: Path) -> Iterator[str]:
    """Yield what changes with the version of Java, without starting it."""
    for path in (java, java.parents[1] / "release", java.parents[1] / "lib" / "modules"):
        if path.exists():
            status = path.stat()
            yield f"{path} {status.st_size} {status.st_mtime_ns}"


def _has_settings() -> bool:
    """Return whether Spark has a directory of settings: Java cannot archive classes if such is in its class path."""
    settings = settings_directory()
    return settings.is_dir() and any(settings.iterdir())


def _checksum(*texts: str) -> str:
    return sha256("\0".join(texts).encode()).hexdigest()[:16]


class JavaStderr(io.TextIOBase):
    """Replacement for sys.stderr that writes to Java's System.err."""

    def __init__(self, jvm: Any) -> None:
        super().__init__()
        self._stream = jvm.java.lang.System.err

    def write(self, text: str) -> int:
        """Write a text to Java's stderr; to Python's stderr if the JVM has ended."""
        try:
            self._stream.print(text)
            self._stream.flush()
        except (Py4JError, OSError):
            assert sys.__stderr__ is not None
            sys.__stderr__.write(text)
        return len(text)


#: Suffixes of files from which workers can import packages: PySpark's list, and wheels, which are zip files too.
_PACKED: Final = (*SparkContext.PACKAGE_EXTENSIONS, ".whl")


def start_spark(
    master: str, py_files: str | None = None, archives: str | None = None, cache: SparkCache | None = None
) -> SparkSession:
    """Start a session, with Java if none is running.

    Args:
        master: The master; "" for that of spark-submit.
        archives: Environments for the workers, as for spark-submit.
        cache: What makes a local Spark start fast; None to start it without.
    Raises:
        AnalyticsError: It does not start; the text has the reason.
    """
    logging.getLogger("py4j").setLevel(logging.ERROR)
    # The error is reported in one line by main(), so PySpark must not log it as well.
    logging.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL)
    # Local workers use the Python of this process.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    if master.startswith("local-cluster"):
        os.environ.setdefault("SPARK_HOME", os.path.dirname(pyspark.__file__))
    if master.startswith("local"):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    SparkContext.PACKAGE_EXTENSIONS = _PACKED
    builder = SparkSession.builder.appName("leveret-analytics")
    if master:
        builder = builder.master(master)
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "ERROR",
        "spark.sql.session.timeZone": "UTC",
        # Not INT96, which has no statistics, and is read as a time without a zone.
        "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
        "spark.sql.shuffle.partitions": "4" if master.startswith("local") else "64",
        "spark.sql.adaptive.enabled": "true",
    }
    if master.startswith("local"):
        settings |= {"spark.driver.bindAddress": "127.0.0.1", "spark.driver.host": "127.0.0.1"}
    if is_local(master):
        settings |= _prepare_java(cache)
    if archives:
        settings["spark.archives"] = archives
    for name, value in settings.items():
        builder = builder.config(name, value)
    try:
        spark = builder.getOrCreate()
        for path in filter(None, (py_files or "").split(",")):
            spark.sparkContext.addPyFile(path)
        return spark
    except Py4JError as error:
        # If the master does not answer, Spark logs the reason and stops the context.
        if "stopped SparkContext" in str(error):
            raise AnalyticsError(f"Spark does not start: no master answers at {master}") from error
        raise AnalyticsError(f"Spark does not start: {' '.join(str(error).splitlines()[:2])}") from error
    except (PySparkException, OSError, RuntimeError) as error:
        raise AnalyticsError(f"Spark does not start: {str(error).splitlines()[0]}") from error


def _prepare_java(cache: SparkCache | None) -> dict[str, str]:
    """Prepare the environment for a local Spark, unless Java is running; return the settings of the session."""
    if SparkContext._gateway is not None or "PYSPARK_GATEWAY_PORT" in os.environ:
        return {}
    os.environ.setdefault("SPARK_LAUNCHER_OPTS", _FAST_LAUNCHER)
    if cache is None:
        return driver_settings()
    home = unpacked_spark(cache)
    if home is not None:
        os.environ["SPARK_HOME"] = home
    return driver_settings(cache.options)
