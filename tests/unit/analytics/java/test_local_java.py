"""Options with which Java starts fast, and the cache for it: no Java is started here."""

from __future__ import annotations

import fcntl
import os
import sys
from dataclasses import replace
from pathlib import Path

import pyspark
import pytest

from leveret.analytics.java.spark_start import SparkCache, driver_settings, is_local, open_cache, unpacked_spark

OPTIONS = "spark.driver.defaultJavaOptions"
FAST = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
ARCHIVE = ("-XX:SharedArchiveFile=/c/a.jsa", "-Xlog:cds*=off")


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A user who has chosen nothing, and a Java that looks like one."""
    for name in ("SPARK_HOME", "SPARK_CONF_DIR", "PYSPARK_SUBMIT_ARGS", "JAVA_TOOL_OPTIONS", "PYSPARK_PYTHON"):
        monkeypatch.delenv(name, raising=False)
    java = tmp_path / "jdk" / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.touch()
    (tmp_path / "jdk" / "release").write_text("17.0.1")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "jdk"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def cache() -> SparkCache:
    found = open_cache()
    assert found is not None
    return found


def finish(of: SparkCache) -> None:
    with of.make() as path:
        Path(path).write_bytes(b"archive")


def test_masters() -> None:
    assert [is_local(each) for each in ("local", "local[2]", "local[*]")] == [True] * 3
    assert [is_local(each) for each in ("", "local-cluster[1,1,1024]", "spark://h:1", "yarn")] == [False] * 4


def test_nothing_is_chosen() -> None:
    assert driver_settings() == {OPTIONS: FAST}
    assert driver_settings(ARCHIVE)[OPTIONS].split() == [*FAST.split(), ARCHIVE[0], "'-Xlog:cds*=off'"]


@pytest.mark.parametrize(
    ("name", "chosen", "left"),
    [
        ("JAVA_TOOL_OPTIONS", "-XX:+UseG1GC", "-XX:TieredStopAtLevel=1 '-XX:SharedArchiveFile"),
        ("SPARK_SUBMIT_OPTS", "-XX:-TieredCompilation", "-XX:+UseSerialGC '-XX:SharedArchiveFile"),
        ("JDK_JAVA_OPTIONS", "-Xshare:off", FAST),
        ("PYSPARK_SUBMIT_ARGS", "--conf spark.driver.extraJavaOptions=-XX:+UseZGC pyspark-shell", "-XX:Tiered"),
        ("_JAVA_OPTIONS", "-Xmx3g", FAST),
    ],
)
def test_what_users_choose_is_left_alone(monkeypatch: pytest.MonkeyPatch, name: str, chosen: str, left: str) -> None:
    monkeypatch.setenv(name, chosen)
    found = driver_settings(ARCHIVE)[OPTIONS]
    assert found.replace(" -XX:Shared", " '-XX:Shared").startswith(left)
    assert ("Serial" in found, "Tiered" in found) == ("GC" not in chosen, "Tiered" not in chosen)
    assert ("Archive" in found) == ("share" not in chosen)


def test_settings_of_users(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "spark-defaults.conf").write_text(
        f"# -XX:-TieredCompilation\n{OPTIONS}   -Dmine=1 -Xmx2g\nspark.driver.extraJavaOptions=-XX:+UseParallelGC\n"
    )
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    # Java takes the last of two options.
    assert driver_settings() == {OPTIONS: "-XX:TieredStopAtLevel=1 -Dmine=1 -Xmx2g"}
    for chosen in (f"--conf {OPTIONS}=-Dmine=2", "--properties-file mine.conf"):
        monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", f"{chosen} pyspark-shell")
        assert driver_settings() == {}


def test_an_archive_is_of_its_java() -> None:
    first = cache()
    assert first.is_new
    assert first.options == ()
    finish(first)
    again = cache()
    assert not again.is_new
    made = again.archive
    assert made is not None
    assert again.options == (f"-XX:SharedArchiveFile={made}", "-Xlog:cds*=off")
    assert replace(again, making="/x").options[0] == "-XX:ArchiveClassesAtExit=/x"
    (Path(os.environ["JAVA_HOME"]) / "release").write_text("17.0.15")
    other = cache()
    assert (other.place, other.options) == (first.place, ())
    finish(other)
    assert other.archive is not None
    assert not made.exists(), "it is of another Java"
    other.archive.write_bytes(b"arch")
    assert other.options == (), "Java would crash"


def test_an_archive_is_made_once() -> None:
    found = cache()
    with (found.place / "lock").open("wb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with found.make() as path:
            assert path == "", "another process makes it"
    with found.make():
        pass
    assert found.archive is None, "Java has written none"
    assert [each.suffix for each in found.place.glob("classes-*")] == [".failed"]
    finish(found)
    assert [each.suffix for each in found.place.glob("*-*")] == [".jsa"]
    with found.make() as path:
        assert path == "", "it is there"


def test_only_what_was_unused_for_a_month_is_removed() -> None:
    found = cache()
    for name, days in (("new", 1), ("old", 40)):
        place = found.place.parent / f"spark-{name}"
        place.mkdir()
        archive = place / "classes-1.jsa"
        archive.touch()
        at = archive.stat().st_mtime - days * 86_400
        os.utime(archive, (at, at))
    finish(found)
    assert sorted(each.parent.name for each in found.place.parent.glob("*/*.jsa")) == sorted(
        ["spark-new", found.place.name]
    )


def test_a_spark_of_links(monkeypatch: pytest.MonkeyPatch) -> None:
    found = cache()
    home = unpacked_spark(found)
    assert home == str(found.home)
    assert (found.home / "jars").resolve() == Path(pyspark.__file__).parent.resolve() / "jars"
    assert not (found.home / "python").exists()
    # What a job has set before is no choice of the user.
    monkeypatch.setenv("SPARK_HOME", home or "")
    assert cache().place == found.place
    assert "SPARK_HOME" not in os.environ
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    assert unpacked_spark(found) == home
    monkeypatch.setenv("PYSPARK_PYTHON", "python3.99")
    assert unpacked_spark(found) is None
    monkeypatch.delenv("PYSPARK_PYTHON")
    monkeypatch.setenv("SPARK_HOME", "/opt/spark")
    assert unpacked_spark(found) is None
    assert cache().place != found.place


def test_it_goes_on_without_a_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert open_cache() is None
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    monkeypatch.setenv("HOME", str(tmp_path / "file"))
    assert open_cache() is None
    monkeypatch.setenv("JAVA_HOME", "/nowhere")
    assert open_cache() is None
