"""Who uses a connection, and what they may do."""

from __future__ import annotations

import fnmatch
from dataclasses import dataclass

from penstock.model.bounds import shown
from penstock.model.errors import Forbidden
from penstock.model.names import DEAD_LETTERS
from penstock.model.placement import whole_name
from penstock.model.tokens import Scope

__all__ = ["ANYBODY", "PEER", "Principal", "Scope"]

_TOPIC_MAX = 250  # characters: no topic has a name so long


@dataclass(frozen=True, slots=True)
class Principal:
    """An authenticated client."""

    name: str
    scopes: frozenset[Scope]
    topics: tuple[str, ...] = ("*",)
    """Patterns of the topics that it is for, as in a shell: `orders.*`."""
    token: str | None = None
    """The id of the token that was shown."""

    def require(self, scope: Scope, topic: str | None = None) -> None:
        """Raise Forbidden unless it may do something of this kind, with this topic if one is given."""
        if scope is Scope.PUBLISH and topic is not None and whole_name(topic).endswith(DEAD_LETTERS):
            scope = Scope.ADMIN  # who publishes could say of what a message is the dead letter
        if scope not in self.scopes and Scope.ADMIN not in self.scopes:
            has = ", ".join(sorted(self.scopes)) or "none"
            raise Forbidden(f"{self.name} may not do this: it takes the scope {scope}, and it has {has}")
        if topic is not None and not self.sees(topic):
            raise Forbidden(f"{self.name} may not use the topic {shown(topic)}: it is for {', '.join(self.topics)}")

    def require_all_topics(self, scope: Scope) -> None:
        """Raise Forbidden unless it may do something of this kind that is about every topic."""
        self.require(scope)
        if not self.sees_all:
            raise Forbidden(
                f"{self.name} may not do this: it is about all topics, and it is for {', '.join(self.topics)}"
            )

    @property
    def sees_all(self) -> bool:
        """Whether every topic is one of its own."""
        return "*" in self.topics

    def sees(self, topic: str) -> bool:
        """Whether a topic, or a slice of it, or the topic that these are the dead letters of, is one of its own."""
        if self.sees_all:
            return True
        topic = whole_name(topic)
        if len(topic) > _TOPIC_MAX:
            return False
        return any(
            fnmatch.fnmatchcase(name, pattern)
            for name in (topic, topic.removesuffix(DEAD_LETTERS))
            for pattern in self.topics
        )

    @property
    def producer_name(self) -> str | None:
        """Its name as a publisher: that of its token, if it has one."""
        return None if self.token is None else self.name

    def own_name(self, name: str) -> str:
        """The name of a stage or of its producer, which belong to no topic: who is for some topics has their own."""
        return name if self.sees_all else f"{self.name}.{name}"


PEER = Principal("peer", frozenset({Scope.ADMIN}))
"""Another process of the same server: it has checked what it asks for."""
ANYBODY = Principal("anybody", frozenset({Scope.ADMIN}))
"""Every client of a server that asks for no tokens."""
