"""Makes the archive with the code of an earlier version: what its client and its server need, as it was.

    python -m tests.compatibility.make_package 9259d9f tests/compatibility/v0_1_0.package.tar.xz

Like the directories, it is made once for each version and never again.
"""

from __future__ import annotations

import io
import lzma
import subprocess
import sys
import tarfile
from pathlib import Path

_ROOT = Path(__file__).parents[2]
_PARTS = [
    *("__init__.py", "lazy.py", "version.py", "dashboard/__init__.py"),
    *("aio", "broker", "client", "delivery", "journal", "model", "protocol", "segments", "server", "storage"),
]
"""Of `src/penstock`: no command line, no Spark, no pages."""


def files_of(commit: str) -> dict[str, bytes]:
    """The files of a commit that are wanted, by their names below `src`; raises CalledProcessError if it is unknown."""
    paths = [f"penstock/{part}" for part in _PARTS]
    command = ["git", "archive", "--format=tar", f"{commit}:src", *paths]
    packed = subprocess.run(command, cwd=_ROOT, capture_output=True, check=True).stdout
    return unpacked(packed)


def unpacked(packed: bytes) -> dict[str, bytes]:
    """The files of an archive."""
    found = {}
    with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        for member in archive.getmembers():
            if (file := archive.extractfile(member)) is not None:
                found[member.name] = file.read()
    return found


def make(commit: str, target: Path) -> None:
    """Write the archive."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        for name, content in sorted(files_of(commit).items()):
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    target.write_bytes(lzma.compress(packed.getvalue(), preset=9 | lzma.PRESET_EXTREME))


if __name__ == "__main__":
    make(sys.argv[1], Path(sys.argv[2]))
