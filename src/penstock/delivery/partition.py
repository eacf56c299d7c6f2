"""Everything that the events of one partition say about delivery: the durable state of all its groups."""

from __future__ import annotations

import msgspec
from msgspec.structs import replace

from penstock.delivery.offsets import Offsets, from_range, offsets_of
from penstock.delivery.progress import Progress, ProgressState
from penstock.model.events import Event, EventKind
from penstock.model.group_settings import GroupSettings, decode_settings

_WITHDRAWS = (EventKind.CANCELLED, EventKind.PURGED, EventKind.REDRIVEN)


class DeliveryState(msgspec.Struct, array_like=True):
    """The state of a partition as the checkpoint keeps it."""

    withdrawn: bytes
    moved: list[tuple[int, int]]
    groups: dict[str, ProgressState]


class PartitionState:
    """What is withdrawn, what was given another time, and how far each group is."""

    __slots__ = ("groups", "moved", "withdrawn")

    def __init__(self) -> None:
        self.withdrawn = Offsets()  # cancelled, purged or redriven: no group gets them
        self.moved: dict[int, int] = {}  # the new times of delayed messages
        self.groups: dict[str, Progress] = {}

    def apply(self, event: Event) -> None:
        """Take in what happened; the only way in which this changes, live and after a restart."""
        if event.kind == EventKind.REMOVED or event.kind == EventKind.ARCHIVED:
            self._lose(offsets_of(event), archived=event.kind == EventKind.ARCHIVED)
        elif event.group is None:
            if event.kind in _WITHDRAWS:
                self._withdraw(offsets_of(event))
            elif event.kind == EventKind.RESCHEDULED:
                for offset in offsets_of(event):
                    self.moved[offset] = event.due_us
        elif event.kind == EventKind.CREATED:
            self._create(event.group, event.offset, decode_settings(event.detail))
        elif event.kind == EventKind.FORGOTTEN:
            self.groups.pop(event.group, None)
        elif (progress := self.groups.get(event.group)) is not None:
            if event.kind == EventKind.SOUGHT:
                missing = decode_settings(event.detail).missing
                self._create(event.group, event.offset, replace(progress.settings, missing=missing))
            elif event.kind == EventKind.CONFIGURED:
                progress.configure(decode_settings(event.detail))
            else:
                progress.apply(event)

    def state(self) -> DeliveryState:
        """Everything, for the checkpoint."""
        return DeliveryState(
            self.withdrawn.serialize(),
            list(self.moved.items()),
            {name: progress.state() for name, progress in self.groups.items()},
        )

    def encoded(self) -> tuple[bytes, list[tuple[int, int]], dict[str, msgspec.Raw]]:
        """The same, with the progress of each group encoded; that is kept until it changes."""
        progress = {name: progress.encoded() for name, progress in self.groups.items()}
        return self.withdrawn.serialize(), list(self.moved.items()), progress

    @classmethod
    def restore(cls, state: DeliveryState) -> PartitionState:
        """The state of a checkpoint."""
        partition = cls()
        partition.withdrawn = Offsets.deserialize(state.withdrawn)
        partition.moved = dict(state.moved)
        partition.groups = {name: Progress.restore(progress) for name, progress in state.groups.items()}
        return partition

    def _create(self, name: str, start: int, settings: GroupSettings) -> None:
        known = self.groups.get(name)
        if known is None:
            known = self.groups[name] = Progress(start, replace(settings, missing=()))
        else:
            known.begin(start)  # who holds the object sees the change
        known.finish(self.withdrawn, "withdrawn")
        for first, end in settings.missing:
            known.finish(from_range(first, end), "lost")

    def _withdraw(self, offsets: Offsets) -> None:
        self.withdrawn |= offsets
        for offset in offsets:
            self.moved.pop(offset, None)
        for progress in self.groups.values():
            progress.finish(offsets, "withdrawn")

    def _lose(self, offsets: Offsets, archived: bool) -> None:
        if not archived:
            self.withdrawn -= offsets
        for offset in [offset for offset in self.moved if offset in offsets]:
            del self.moved[offset]
        for progress in self.groups.values():
            if not (archived and progress.settings.archived):
                progress.lose(offsets)
