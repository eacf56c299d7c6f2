"""Single messages that were sent to the wrong place, for their topic is spread, or not any more.

All of them wait until everything of their topic is answered; then they are gathered once more, in their order, by what
is known now. So those of a key stay in theirs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

from penstock.model.message import Message
from penstock.model.placement import whole_name

if TYPE_CHECKING:
    from penstock.client.gathered import Told

Entry = tuple[Message, "Told"]
_TRIES = 10  # of a topic that is made anew again and again


class Regrouping:
    """The messages of each topic that wait for that."""

    def __init__(self, add: Callable[[str, Message, Told], None]) -> None:
        self._add = add
        self._under_way: Counter[str] = Counter()  # requests, by topic
        self._refused: dict[str, list[Entry]] = {}
        self._later: dict[str, list[Entry]] = {}
        self._times: Counter[str] = Counter()

    def sent(self, name: str) -> None:
        """A request for a topic, or a slice of it, is under way."""
        self._under_way[whole_name(name)] += 1

    def answered(self, name: str, *, is_done: bool) -> None:
        """It was answered."""
        topic = whole_name(name)
        self._under_way[topic] -= 1
        if is_done:
            self._times.pop(topic, None)
        if not self._under_way[topic]:
            del self._under_way[topic]
            self._go_on(topic)

    def takes(self, topic: str, message: Message, report: Told) -> bool:
        """Whether a new message has to wait behind others of its topic."""
        if topic not in self._refused:
            return False
        self._later[topic].append((message, report))
        return True

    def refused(self, name: str, messages: Iterable[Entry], later: Callable[[str], Iterable[Entry]]) -> bool:
        """Messages are to be gathered again, before those that wait to be sent; False after too many times."""
        topic = whole_name(name)
        if topic not in self._refused:
            self._times[topic] += 1
            if self._times[topic] > _TRIES:
                return False
            self._refused[topic], self._later[topic] = [], list(later(topic))
        self._refused[topic] += messages
        if not self._under_way[topic]:
            self._go_on(topic)
        return True

    def _go_on(self, topic: str) -> None:
        if topic in self._refused:
            entries = self._refused.pop(topic) + self._later.pop(topic)
            for message, report in entries:
                self._add(topic, message, report)

    def reports(self) -> Iterator[Told]:
        """Who waits."""
        for waiting in (self._refused, self._later):
            for entries in waiting.values():
                yield from (report for _, report in entries)
