"""The dashboard: static files that a server serves as they are; there is nothing to build."""

from __future__ import annotations

from pathlib import Path

FILES = Path(__file__).parent
"""Where the files are: `index.html` is the page, and everything that it asks for is below `/ui/`."""
