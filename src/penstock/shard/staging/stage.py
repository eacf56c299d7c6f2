"""What is known of one stage."""

from __future__ import annotations

from penstock.model.errors import StageNotFound
from penstock.shard.staging.stage_files import FIRST


class Stage:
    """What is known of one stage."""

    __slots__ = ("claimed", "end", "file", "lost", "messages", "name", "sealed", "sealing", "touched_s", "writers")

    def __init__(self, name: str, file: str, touched_s: float) -> None:
        self.name = name
        self.file = file
        self.touched_s = touched_s
        self.end = FIRST
        self.messages = 0
        self.sealing = False
        self.sealed = False
        self.claimed = False  # it is being published
        self.lost = ""  # why nothing can be done with it but to drop it
        self.writers: dict[str, int] = {}  # how many requests of each were done

    def check_kept(self) -> None:
        """Raise if what was staged is not there any more."""
        if self.lost:
            raise StageNotFound(f"the stage {self.name!r} is lost: {self.lost}; drop it, and stage under another name")
