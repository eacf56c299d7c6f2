"""HTTP load with wrk, from Debian's package of that name: every error counts, and so does what was really published."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

_SCRIPT = """
wrk.method = "POST"
wrk.headers["Content-Type"] = "application/json"
local file = io.open("{body}", "rb")
wrk.body = file:read("*a")
file:close()
"""


@dataclass(frozen=True, slots=True)
class Load:
    """What came of it."""

    requests: int
    seconds: float

    @property
    def requests_per_s(self) -> float:
        """The rate."""
        return self.requests / self.seconds


def post(url: str, body: object, *, connections: int, seconds: float) -> Load:
    """Send a body again and again over connections that are kept; raises if one request fails."""
    wrk = shutil.which("wrk")
    if wrk is None:
        raise RuntimeError("wrk is not installed: it is in Debian's package wrk (`make bench` installs it)")
    with tempfile.TemporaryDirectory() as directory:
        data, script = Path(directory, "body"), Path(directory, "post.lua")
        data.write_text(json.dumps(body))
        script.write_text(_SCRIPT.format(body=data))
        command = [wrk, "-t1", f"-c{connections}", f"-d{max(1, round(seconds))}s", "-s", str(script), url]
        told = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    if "Non-2xx" in told or "Socket errors" in told:
        raise RuntimeError(f"requests failed:\n{told}")
    found = re.search(r"(\d+) requests in ([\d.]+)(m?s|m)", told)
    if found is None:
        raise RuntimeError(f"wrk said something else:\n{told}")
    return Load(int(found[1]), float(found[2]) * {"ms": 0.001, "s": 1.0, "m": 60.0}[found[3]])
