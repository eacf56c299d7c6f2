# Made from client/administration.py by tools/faces.py: change that, and run `make faces`.
"""Dead letters and replays through a client, in plain calls: functions that choose messages run here.

What they chose is named to the server.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

from penstock.client.replaying import Replaying
from penstock.client.sync_log_reading import ClientReading
from penstock.model.letters import ByName, DeadLetter, LetterChoice, RedriveReport
from penstock.model.message import MessageId, StoredMessage
from penstock.model.options import check_limit, check_rate
from penstock.model.pace import Pace, paced
from penstock.model.units import Time

_LETTERS_AT_ONCE = 1000
_REDRIVEN_AT_ONCE = 5000


class ClientAdministration(ClientReading):
    """The operations of `penstock.Broker` that are given functions, asked of a server."""

    def dead_letters(
        self, topic: str, *, filter: LetterChoice | None = None, limit: int | None = None
    ) -> list[DeadLetter]:
        """The dead letters of a topic, oldest first."""
        check_limit(limit)
        found: list[DeadLetter] = []
        for letters in self.letter_pages(topic, limit if filter is None else None):
            found += letters if filter is None else [letter for letter in letters if filter(letter)]
            if limit is not None and len(found) >= limit:
                break
        return found[:limit]

    def letter_pages(self, topic: str, limit: int | None) -> Iterator[list[DeadLetter]]:
        """The dead letters of a topic, some at a time."""
        after: MessageId | None = None
        while True:
            at_once = _LETTERS_AT_ONCE if limit is None else min(limit, _LETTERS_AT_ONCE)
            letters = self.call("dead_letters", list[DeadLetter], topic=topic, after=after, limit=at_once)
            yield letters
            limit = None if limit is None else limit - len(letters)
            if not letters or limit == 0:
                return
            after = letters[-1].id

    def redrive(
        self,
        topic: str,
        *,
        filter: LetterChoice | None = None,
        to: str | None = None,
        rate: float | None = None,
        dry_run: bool = False,
        progress: Callable[[int], object] | None = None,
    ) -> RedriveReport:
        """Send dead letters back, step by step: it may take as long as the rate asks for, and can be ended before."""
        check_rate(rate)
        if dry_run:
            ids = self._chosen(topic, filter)
            return self.call("redrive", RedriveReport, topic=topic, ids=ids, to=to, dry_run=True)
        report = RedriveReport()
        for step in self.redrive_steps(topic, self._ids(topic, filter), to, rate):
            report.add(step)
            if progress is not None:
                progress(step.selected)
        return report

    def redrive_steps(self, topic: str, ids: list[str], to: str | None, rate: float | None) -> Iterator[RedriveReport]:
        """Send back the dead letters that are named, so many at a time; what each step did."""
        pace = Pace(rate)
        at_once = pace.at_once(_REDRIVEN_AT_ONCE)
        # One step at least: the server says what is wrong with `to`.
        steps = [ids[start : start + at_once] for start in range(0, max(1, len(ids)), at_once)]
        for sleep_s, some in paced(steps, pace, time.monotonic):
            time.sleep(sleep_s)
            step = self.call("redrive", RedriveReport, topic=topic, ids=some, to=to)
            step.skipped += len(some) - step.selected  # they were gone before the server looked
            step.selected = len(some)
            yield step

    def purge_dead_letters(self, topic: str, *, filter: LetterChoice | None = None) -> int:
        """Let dead letters go for good."""
        return self.purge_chosen(topic, self._chosen(topic, filter))

    def purge_chosen(self, topic: str, ids: list[str] | None) -> int:
        """Let dead letters go: all of them, or those that are named."""
        return self.call("purge_dead_letters", int, topic=topic, ids=ids)

    def _chosen(self, topic: str, filter: LetterChoice | None) -> list[str] | None:
        return None if filter is None else self._ids(topic, filter)

    def _ids(self, topic: str, filter: LetterChoice | None) -> list[str]:
        if isinstance(filter, ByName):
            return sorted(map(str, filter.ids))
        pages = self.letter_pages(topic, None)
        return [str(letter.id) for letters in pages for letter in letters if filter is None or filter(letter)]

    def replay(
        self,
        topic: str,
        to: str | Callable[[StoredMessage], object],
        *,
        from_time: Time | None = None,
        to_time: Time | None = None,
        from_offset: int | None = None,
        to_offset: int | None = None,
        partition: int | None = None,
        filter: Callable[[StoredMessage], bool] | None = None,
        rate: float | None = None,
    ) -> int:
        """A window of the past once more; a function is called here."""
        replaying = Replaying(topic, to, from_time, to_time, from_offset, to_offset, partition, filter, rate)
        if replaying.reads:
            if partition is not None:
                replaying.check_partition(self.partitions(topic))
            for page in self.pages(replaying.request, partition):
                for message in replaying.chosen(page):
                    if ahead_s := replaying.ahead_s():
                        time.sleep(ahead_s)
                    replaying.take(message)
        if replaying.to_group is None:
            return replaying.count
        return self.call("replay", int, **replaying.to_group, only=replaying.only)
