"""The package as one archive, for `spark-submit --py-files` and `spark.addArtifact`."""

from __future__ import annotations

import os
import zipfile
from collections.abc import Iterator
from pathlib import Path

import penstock
from penstock.model.errors import PenstockError

_PACKAGES = ("penstock", "pyspark_penstock")
_LONG_AGO = (1980, 1, 1, 0, 0, 0)
"""When every file was made, so that the same package is the same archive, byte for byte."""


def build_archive(path: str | os.PathLike[str]) -> Path:
    """Write an archive of the installed package; an existing one is replaced atomically."""
    place = Path(path)
    staged = place.with_name(f".{place.name}.{os.getpid()}")
    try:
        with zipfile.ZipFile(staged, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
            for name, file in _files():
                entry = zipfile.ZipInfo(name, _LONG_AGO)
                entry.external_attr = 0o644 << 16
                archive.writestr(entry, file.read_bytes(), zipfile.ZIP_DEFLATED, compresslevel=9)
        staged.replace(place)
    except OSError as error:
        error.filename, error.filename2 = str(place), None  # the name that was given
        raise
    finally:
        staged.unlink(missing_ok=True)
    return place


def _files() -> Iterator[tuple[str, Path]]:
    here = Path(penstock.__file__).parents[1]  # of both: on the path there may be archives of former sessions
    for package in _PACKAGES:
        root = here / package
        if not root.is_dir():
            raise PenstockError(f"{package} is no directory: there is none in {here}")
        found = {file.relative_to(root).as_posix(): file for file in root.rglob("*") if file.is_file()}
        for name in sorted(found):
            if "__pycache__" not in name and not name.startswith("dashboard/"):  # executors show no pages
                yield f"{package}/{name}", found[name]
