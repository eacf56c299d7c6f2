"""One group of one topic: hands out leases and takes back what consumers say; returns the events to be logged.

Commands change only what is volatile (leases, cursors); the durable state changes when the events they return are
committed and applied. Between the two a message is *held*: nobody gets it, and a refused commit gives it back.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from math import floor

from penstock.delivery.backoff import retry_delay_us
from penstock.delivery.claims import Claims
from penstock.delivery.lanes import lane_policy
from penstock.delivery.lease_book import LeaseBook
from penstock.delivery.leases import Lease, Leases
from penstock.delivery.offsets import Offsets, offsets_of, written
from penstock.delivery.outcomes import Dying, Logged, Moment, Outcome, Pick
from penstock.model.config import TopicConfig
from penstock.model.events import Event, EventKind
from penstock.model.group_settings import GroupSettings

_NEAR = 20_000
_UNSEEN = "the lease ran out before anybody saw it"
_ENDS_A_LEASE = (EventKind.ACKED, EventKind.DEAD, EventKind.LAPSED, EventKind.SKIPPED, EventKind.RELEASED)


class Group:
    """The consumers of one topic that share its messages."""

    def __init__(
        self,
        name: str,
        config: TopicConfig,
        claims: list[Claims],
        book: LeaseBook,
        dead_letters_allowed: bool = True,
    ) -> None:
        self.name = name
        self.config = config
        self.claims = claims
        self.leases = Leases(book)
        self._book = book
        self._dead_letters_allowed = dead_letters_allowed  # whether failing too often leads to the dead letters
        self._policy = lane_policy(config)
        self._awake = set(range(len(claims)))  # partitions in which something may be ready
        self._turn = 0
        self.held_up = False  # whether its rate kept it from getting more
        self.allowed_from_s: float | None = None  # when a group with a rate may get its next message

    @property
    def settings(self) -> GroupSettings:
        """Its settings, as they were committed last."""
        return self.claims[0].progress.settings

    def configure(self, config: TopicConfig) -> None:
        """The topic's options have changed: leases stay as they were granted, everything that follows is by these."""
        if (config.lanes, config.lane_weights) != (self.config.lanes, self.config.lane_weights):
            self._policy = lane_policy(config)
        self.config = config

    # Handing out.

    def fetch(
        self,
        now: Moment,
        consumer: str,
        max_messages: int,
        visibility_s: float | None = None,
        partitions: Collection[int] | None = None,
    ) -> tuple[list[Pick], list[Logged]]:
        """Lease the best messages that are ready, at most so many, from all partitions or from some."""
        settings = self.settings
        room = self._room(settings, max_messages, now)
        if room <= 0:
            return [], []
        if visibility_s is None:
            visibility_s = settings.visibility_timeout or self.config.visibility_timeout
        leases: dict[int, Lease] = {}
        picks: list[Pick] = []
        for partition, lane, offsets in self._choose(room, partitions):
            lease = leases.get(partition)
            if lease is None:
                lease = Lease(self._book.new_id(), partition, consumer, now.monotonic_s + visibility_s, offsets)
                leases[partition] = lease
            else:
                lease.messages = lease.messages | offsets
            picks.append(Pick(lease, lane, offsets))
        events: list[Logged] = []
        self._book.pass_time(now.monotonic_s)
        for partition, lease in leases.items():
            lease.messages = Offsets(lease.messages)
            lease.visibility_s = visibility_s
            self.leases.grant(lease)
            events += self._delivered(partition, lease, now.wall_us)
        if settings.rate and self.allowed_from_s is not None:
            self.allowed_from_s += sum(len(pick.offsets) for pick in picks) / settings.rate
        return picks, events

    def _room(self, settings: GroupSettings, wanted: int, now: Moment) -> int:
        wanted = settings.room(wanted, self.leases.total)
        if settings.rate is not None:
            if self.allowed_from_s is None or self.allowed_from_s < now.monotonic_s - 1:
                self.allowed_from_s = now.monotonic_s  # what was not used is not saved up
            allowed = floor((now.monotonic_s - self.allowed_from_s) * settings.rate) + 1
            self.held_up = allowed <= 0
            wanted = min(wanted, allowed)
        return wanted

    def _choose(self, room: int, partitions: Collection[int] | None) -> Iterable[tuple[int, int, Offsets]]:
        """Lane by lane over all partitions, in turn among those that have the same lane."""
        by_lane: dict[int, list[int]] = {}
        for partition in self._in_turn(partitions):
            lanes = self.claims[partition].lanes()
            if not lanes:
                self._awake.discard(partition)
            for lane in lanes:
                by_lane.setdefault(lane, []).append(partition)
        if not by_lane:
            return
        for lane, quota in self._policy.shares(sorted(by_lane), room):
            having = by_lane[lane]
            wanted = min(quota, room)
            while having and wanted:
                share = -(-wanted // len(having))
                for partition in having[:]:
                    asked = min(share, wanted)
                    offsets = self.claims[partition].take(lane, asked)
                    if len(offsets) < asked:
                        having.remove(partition)
                    if offsets:
                        self._turn = partition + 1
                        wanted -= len(offsets)
                        room -= len(offsets)
                        yield partition, lane, offsets
                    if not wanted:
                        break

    def _in_turn(self, partitions: Collection[int] | None) -> list[int]:
        if len(self.claims) == 1:
            return [0] if self._awake and (partitions is None or 0 in partitions) else []
        awake = self._awake if partitions is None else self._awake & set(partitions)
        return sorted(awake, key=lambda partition: (partition < self._turn, partition))

    def _delivered(self, partition: int, lease: Lease, now_us: int) -> Iterable[Logged]:
        progress = self.claims[partition].progress
        fresh = lease.messages
        if progress.touched and (again := fresh & progress.touched):
            fresh = fresh - again
            by_attempt: dict[int, list[int]] = {}
            for offset in again:
                deliveries, failures = progress.counts_of(offset)
                lease.again[offset] = (deliveries + 1, failures)
                by_attempt.setdefault(deliveries + 1, []).append(offset)
            for attempt, offsets in by_attempt.items():
                yield partition, self._event(EventKind.DELIVERED, Offsets(offsets), now_us, lease.consumer, attempt)
        if fresh:
            yield partition, self._event(EventKind.DELIVERED, fresh, now_us, lease.consumer, 1)

    def find_lease(self, lease_id: int, partition: int, consumer: str, offsets: Offsets) -> Lease | None:
        """A lease by its id that lives or ended: of one that is forgotten, the progress tells what was acked."""
        lease = self.leases.find(lease_id)
        if lease is None and 0 <= partition < len(self.claims):
            progress = self.claims[partition].progress
            done = offsets - progress.undone(offsets) - progress.dead
            lease = self.leases.forgotten(lease_id, partition, consumer, offsets, done)
        return lease if lease is not None and lease.partition == partition else None

    # Taking back; every one of these first ends the leases whose time is over (`tick`).

    def ack(self, now: Moment, lease: Lease, offsets: Offsets, outcome: Outcome) -> None:
        """They are done. Acking again what this lease acked is harmless."""
        held = self.leases.take(lease, offsets, acked=True)
        if held:
            outcome.events.append((lease.partition, self._event(EventKind.ACKED, held, now.wall_us, lease.consumer)))
        if len(held) < len(offsets):
            again = lease.acked & offsets if lease.acked is not None else held
            outcome.refused |= offsets - held - again

    def ack_run(self, now: Moment, lease: Lease, first: int, count: int) -> Event | None:
        """As `ack` for all that a lease holds, or for one message; None, and nothing done, if they are neither."""
        held = self.leases.take_run(lease, first, count)
        return Event(EventKind.ACKED, now.wall_us, first, count, self.name, lease.consumer) if held else None

    def extend(self, now: Moment, lease: Lease, offsets: Offsets, seconds: float, outcome: Outcome) -> None:
        """They are wanted for longer: until so many seconds from now, if that is later than before."""
        held = self.leases.extend(lease, offsets, now.monotonic_s + seconds)
        if held:
            event = self._event(EventKind.EXTENDED, held, now.wall_us, lease.consumer, detail=f"{seconds:g} s from now")
            outcome.events.append((lease.partition, event))
        outcome.refused |= offsets - held

    def release(self, now: Moment, lease: Lease, offsets: Offsets, outcome: Outcome, reason: str | None = None) -> None:
        """They are given back, through no fault of theirs."""
        held = self.leases.take(lease, offsets)
        if held:
            event = self._event(EventKind.RELEASED, held, now.wall_us, lease.consumer, detail=reason)
            outcome.events.append((lease.partition, event))
        outcome.refused |= offsets - held

    def fail(
        self, now: Moment, lease: Lease, offsets: Offsets, reason: str, delay_s: float | None, outcome: Outcome
    ) -> None:
        """They could not be processed: another try later, or the dead letters."""
        held = self.leases.take(lease, offsets)
        outcome.refused |= offsets - held
        self._failed(EventKind.FAILED, now.wall_us, lease, held, reason, delay_s, outcome)

    def kill(self, lease: Lease, offsets: Offsets, reason: str, outcome: Outcome) -> None:
        """They can never be processed: the dead letters now."""
        held = self.leases.take(lease, offsets)
        outcome.refused |= offsets - held
        if held:
            era = self.claims[lease.partition].era
            outcome.dying.append(Dying(lease.partition, held, None, lease.consumer, reason, era))

    def tick(self, now: Moment) -> Outcome:
        """What time alone does: leases run out, failed messages are tried again, and the unwanted lapse."""
        outcome = Outcome()
        if self.allowed_from_s is not None and self.allowed_from_s <= now.monotonic_s:
            self.held_up = False
        for lease, over in self.leases.expired(now.monotonic_s):
            if lease.unseen is not None and (unseen := over & lease.unseen):
                event = self._event(EventKind.RELEASED, unseen, now.wall_us, lease.consumer, detail=_UNSEEN)
                outcome.events.append((lease.partition, event))
                over = over - unseen  # noqa: PLW2901 - the others failed
            self._failed(EventKind.EXPIRED, now.wall_us, lease, over, "the lease ran out", 0.0, outcome)
        for partition, claims in enumerate(self.claims):
            if claims.next_time_us() is not None:
                claims.retry(now.wall_us)
                self._awake.add(partition)
            if claims.lapsing and not claims.paused:
                lapsing, claims.lapsing = claims.lapsing, Offsets()
                claims.held += len(lapsing)
                if self.config.dead_letter_lapsed and self._dead_letters_allowed:
                    outcome.dying.append(Dying(partition, lapsing, None, None, "its time to live ended", claims.era))
                else:
                    outcome.events.append((partition, self._event(EventKind.LAPSED, lapsing, now.wall_us, None)))
        return outcome

    def end_leases(self, now: Moment, consumer: str, kind: EventKind, reason: str) -> Outcome:
        """A consumer went away: RELEASED if it said so, EXPIRED if it was not heard of."""
        outcome = Outcome()
        for lease in self.leases.held_by(consumer):
            if kind == EventKind.RELEASED:
                self.release(now, lease, Offsets(lease.messages), outcome, reason)
            else:
                held = self.leases.take(lease, Offsets(lease.messages))
                self._failed(EventKind.EXPIRED, now.wall_us, lease, held, reason, 0.0, outcome)
        return outcome

    def bury(self, dying: Dying, now_us: int) -> list[Logged]:
        """The events of a burial, once the dead letters have the messages; in one commit with them."""
        if self.is_void(dying):
            return []
        events: list[Logged] = []
        if dying.kind is not None:
            event = self._event(dying.kind, dying.offsets, now_us, dying.consumer, detail=dying.cause)
            events.append((dying.partition, event))
        event = self._event(EventKind.DEAD, dying.offsets, now_us, dying.consumer, detail=dying.cause)
        return [*events, (dying.partition, event)]

    def skip(self, dying: Dying, now_us: int) -> list[Logged]:
        """The event for messages that are gone from the log, so that nobody waits for them."""
        if self.is_void(dying):
            return []
        event = self._event(EventKind.SKIPPED, dying.offsets, now_us, None, detail="it is not in the log")
        return [(dying.partition, event)]

    def is_void(self, dying: Dying) -> bool:
        """Whether the group was moved since: then they are ready again, or done."""
        return dying.era != self.claims[dying.partition].era

    def _failed(
        self,
        kind: EventKind,
        now_us: int,
        lease: Lease,
        offsets: Offsets,
        reason: str,
        delay_s: float | None,
        outcome: Outcome,
    ) -> None:
        """Retry those that may fail again, and let the others die. A failure without a time to retry is the last."""
        claims, config = self.claims[lease.partition], self.config
        by_failures: dict[int, list[int]] = {}
        for offset in offsets:
            by_failures.setdefault(claims.progress.counts_of(offset)[1] + 1, []).append(offset)
        for failures, some in by_failures.items():
            failed = Offsets(some)
            if self._dead_letters_allowed and failures >= config.max_deliveries:
                outcome.dying.append(Dying(lease.partition, failed, kind, lease.consumer, reason, claims.era))
                continue
            if delay_s is not None:
                wait_us = round(delay_s * 1_000_000)
            else:
                token = f"{self.name}/{lease.partition}/{some[0]}"
                wait_us = retry_delay_us(config.retry_backoff, config.retry_backoff_max, failures, token)
            event = self._event(kind, failed, now_us, lease.consumer, detail=reason, due_us=now_us + wait_us)
            outcome.events.append((lease.partition, event))

    # What became of the events.

    def committed(self, partition: int, event: Event, now_us: int) -> None:
        """An event of this group is on disk, and applied."""
        claims = self.claims[partition]
        if event.kind == EventKind.DELIVERED or event.kind == EventKind.EXTENDED:
            return
        self._awake.add(partition)
        self.leases.write_down(self._is_done)
        if event.kind in _ENDS_A_LEASE:
            claims.held -= event.count
            if event.kind == EventKind.RELEASED:
                claims.give_back(offsets_of(event))
            elif claims.by_key:  # others may wait for them
                claims.finished(offsets_of(event))
        elif (event.kind == EventKind.FAILED or event.kind == EventKind.EXPIRED) and event.due_us:
            claims.held -= event.count
            if event.due_us <= now_us:
                claims.give_back(offsets_of(event))
            else:
                claims.retry_at(offsets_of(event), event.due_us)
        elif event.kind == EventKind.REDRIVEN:
            claims.give_back(offsets_of(event))
        elif event.kind == EventKind.SOUGHT:
            self.leases.moved(partition)
            self._moved(partition)

    def _is_done(self, partition: int, offsets: Offsets) -> bool:
        return self.claims[partition].progress.has_done(offsets)

    def refused(self, partition: int, event: Event) -> None:
        """An event of this group was not written: its messages are ready again."""
        retried = event.kind in (EventKind.FAILED, EventKind.EXPIRED) and event.due_us
        if event.kind in _ENDS_A_LEASE or retried:
            if event.kind == EventKind.ACKED:
                self.leases.unack(partition, offsets_of(event))
            self.give_up(partition, offsets_of(event))
        elif event.kind == EventKind.SOUGHT:
            self._moved(partition)

    def _moved(self, partition: int) -> None:
        """The group was moved, or could not be: nothing is held, for `pause` ended all leases."""
        claims = self.claims[partition]
        claims.reset()
        claims.paused -= 1
        self._awake.add(partition)

    def give_up(self, partition: int, offsets: Offsets) -> None:
        """What was to be finished could not be: it is ready again."""
        claims = self.claims[partition]
        claims.held = max(0, claims.held - len(offsets))  # a move that was refused with them has let go of all
        claims.give_back(offsets)
        self._awake.add(partition)

    def withdraw(self, partition: int, offsets: Offsets) -> None:
        """They are done for everybody, also for those who hold them."""
        claims = self.claims[partition]
        for lease in self.leases.held_by(partition=partition):
            claims.held -= len(self.leases.take(lease, offsets))
        claims.withdraw(offsets)

    def wake(self, partition: int) -> None:
        """Something may be ready in a partition."""
        self._awake.add(partition)

    def is_near(self, partition: int, offset: int) -> bool:
        """Whether the group will come to a new message soon."""
        return self.claims[partition].progress.floor + _NEAR > offset

    @property
    def idle(self) -> bool:
        """Whether nothing is ready, for sure."""
        return not self._awake

    def pause(self, partition: int) -> None:
        """The group is being moved: no lease of the partition counts any more, and no new one is given."""
        self.claims[partition].paused += 1
        self.claims[partition].era += 1
        for lease in self.leases.held_by(partition=partition):
            self.leases.take(lease, Offsets(lease.messages))

    def next_time_us(self) -> int | None:
        """When a failed message is to be tried again."""
        times = [claims.next_time_us() for claims in self.claims]
        return min((time_us for time_us in times if time_us is not None), default=None)

    def _event(
        self,
        kind: EventKind,
        offsets: Offsets,
        now_us: int,
        consumer: str | None,
        attempt: int = 0,
        detail: str | None = None,
        due_us: int = 0,
    ) -> Event:
        first, count, others = written(offsets)
        return Event(kind, now_us, first, count, self.name, consumer, attempt, detail, due_us, others)
