"""What an audit finds, with its place."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import Any

Key = tuple[str, int]
"""A topic and a partition."""


@dataclass(frozen=True)
class Found:
    """Something wrong, or worth knowing, and where."""

    topic: str
    partition: int | None
    offset: int | None
    text: str

    def __str__(self) -> str:
        place = [self.topic, *(str(part) for part in (self.partition, self.offset) if part is not None)]
        return f"{'/'.join(place)}: {self.text}"

    @property
    def order(self) -> tuple[Any, ...]:
        """The key by which findings are sorted."""
        places = (-1 if number is None else number for number in (self.partition, self.offset))
        return (self.topic, *places, self.text)


class Findings:
    """Everything that an audit found: problems, and remarks that change no verdict."""

    def __init__(self) -> None:
        self._problems: set[Found] = set()
        self._remarks: set[Found] = set()

    def problem(self, topic: str, partition: int | None, offset: int | None, text: str) -> None:
        """Something is not as it should be."""
        self._problems.add(Found(topic, partition, offset, text))

    def remark(self, topic: str, partition: int | None, offset: int | None, text: str) -> None:
        """Nothing is wrong, but whoever reads the figures should know this."""
        self._remarks.add(Found(topic, partition, offset, text))

    @property
    def problems(self) -> list[Found]:
        """In the order of their places."""
        return sorted(self._problems, key=lambda found: found.order)

    @property
    def remarks(self) -> list[Found]:
        """In the order of their places."""
        return sorted(self._remarks, key=lambda found: found.order)

    def counts(self) -> dict[Key, int]:
        """How many problems each partition has; one of a whole topic counts for all its partitions, under -1."""
        found: dict[Key, int] = defaultdict(int)
        for problem in self._problems:
            found[problem.topic, -1 if problem.partition is None else problem.partition] += 1
        return found
