"""What an operation of a broker is: its arguments, its result, and the rules that hold wherever it is asked for."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, StrEnum
from typing import Any, TypeVar

from penstock.model.bounds import LARGE_REQUEST_BYTES_MAX, REQUEST_BYTES_MAX
from penstock.model.tokens import Scope

ALL = "all"
"""The route of an operation that no one topic routes."""


class Waits(Enum):
    """How long an operation may take."""

    NOT = "it only looks at memory"
    BRIEFLY = "for the disk, or for a lock"
    LONG = "for minutes: whoever asks is patient"
    HOURS = "for hours: whoever asks is patient, and a server does it in a thread beside those of other requests"


class About(StrEnum):
    """What an operation is about, and so what it takes of somebody whose token is for some topics only."""

    TOPIC = "a topic"
    """The topic must be theirs."""
    ALL_TOPICS = "all topics"
    """It is refused."""
    LIST = "a list"
    """They see what is of their topics."""
    SCHEDULE = "a schedule"
    """It must be for a topic of theirs."""
    STAGES = "stages"
    """They have stages and producers of their own."""
    PIPELINES = "pipelines"
    """They report under names of their own, and see what is of their topics."""
    TOKENS = "tokens"
    """It is refused; and nobody does it on a server that asks for no tokens."""
    PROCESSES = "processes"
    """It is refused."""


@dataclass(frozen=True, slots=True)
class Operation:
    """One operation, and its rules."""

    name: str
    declared: Callable[..., Any]
    """Its arguments and its result, as a method that does nothing."""
    scope: Scope
    """What a token must be for."""
    route: str
    """The argument that names the topic, or a message of it, by which a request finds its log; or `ALL`."""
    about: About
    waits: Waits
    repeatable: bool
    """Doing it twice is the same as doing it once: a client asks again when a reply was lost."""
    large: bool
    """Its arguments may be as large as a batch of messages."""
    called: bool
    """A server does it by its name (CALL); if not, it has commands of its own."""

    @property
    def group_verb(self) -> str | None:
        """What it does to a group, if it takes just a group and answers with it: `pause` for `pause_group`.

        Its command and its route are made from the table.
        """
        signature, verb = self.signature, self.name.removesuffix("_group")
        is_verb = verb != self.name and signature.return_annotation == "GroupInfo"
        return verb if is_verb and [*signature.parameters] == ["topic", "group"] else None

    @property
    def summary(self) -> str:
        """What it does, in the words of its declaration."""
        return inspect.getdoc(self.declared) or ""

    @property
    def is_patient(self) -> bool:
        """Whether a client waits for it longer than for anything else."""
        return self.waits in (Waits.LONG, Waits.HOURS)

    @property
    def is_slow(self) -> bool:
        """Whether a server does it in a thread beside those of other requests."""
        return self.waits is Waits.HOURS

    @property
    def bytes_max(self) -> int:
        """How large its arguments may be, as they are sent by the native protocol."""
        return LARGE_REQUEST_BYTES_MAX if self.large else REQUEST_BYTES_MAX

    @property
    def signature(self) -> inspect.Signature:
        """Its arguments and its result; types are text."""
        declared = inspect.signature(self.declared)
        return declared.replace(parameters=list(declared.parameters.values())[1:])


_RULES = "penstock_operation"
_Declared = TypeVar("_Declared", bound=Callable[..., Any])


def operation(
    scope: Scope,
    route: str,
    *,
    about: About | None = None,
    waits: Waits = Waits.BRIEFLY,
    repeatable: bool = False,
    large: bool = False,
    called: bool = True,
) -> Callable[[_Declared], _Declared]:
    """The rules of the operation that is declared below."""

    def declare(declared: _Declared) -> _Declared:
        name = declared.__name__
        subject = about or (About.ALL_TOPICS if route == ALL else About.TOPIC)
        vars(declared)[_RULES] = Operation(name, declared, scope, route, subject, waits, repeatable, large, called)
        return declared

    return declare


def operations_of(*interfaces: type) -> dict[str, Operation]:
    """All operations that are declared in these classes, by name."""
    found = [
        vars(one)[_RULES]
        for each in interfaces
        for one in vars(each).values()
        if _RULES in getattr(one, "__dict__", ())
    ]
    return {one.name: one for one in found}
