"""A group in use, as the delivery of its topic holds it."""

from __future__ import annotations

from collections import deque

from penstock.delivery.assignment import Assignment
from penstock.delivery.group import Group
from penstock.shard.dispatch.waiting import GroupMember, Waiter


class ActiveGroup:
    """A group in use: its state machine, its consumers, and who of them waits."""

    __slots__ = ("assignment", "deleting", "group", "members", "waiters")

    def __init__(self, group: Group) -> None:
        self.group = group
        self.members: dict[str, GroupMember] = {}
        self.assignment: Assignment | None = None
        self.deleting = False  # its deletion is on the way to the disk
        self.waiters: deque[Waiter] = deque()
