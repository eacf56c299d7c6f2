"""What the broker remembers of loads: how far each is, and what was in its files.

Two names for a load. One is of its *words*: the topic, the files, and what their columns are. Under it the broker has a
number: how often these words began anew, and what is in the files (a part of a hash). The other has both as well: it is
the producer of the messages, whose sequence is the number of the part and how many messages there are up to its end.
So a load that is run again knows where it was, and one whose files have changed is noticed.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from dataclasses import astuple, dataclass, replace
from typing import TYPE_CHECKING

from penstock.model.errors import InvalidArgument, TopicNotFound
from penstock.spark.files.roles import Roles

if TYPE_CHECKING:
    from penstock.client.sync import Client

_CONTENT_BITS = 44
_MESSAGES_BITS = 40
_CONTENT, _MESSAGES = (1 << _CONTENT_BITS) - 1, (1 << _MESSAGES_BITS) - 1


def words_of(
    topic: str, files: Sequence[str | os.PathLike[str]], form: str | None, roles: Roles, delimiter: str, header: bool
) -> str:
    """What is loaded into what, as a few digits; files as they were given, so that more of them are noticed."""
    paths = [os.path.abspath(file) for file in files]  # noqa: PTH100 - of patterns too
    return hashlib.sha256(repr((topic, paths, form, astuple(roles), delimiter, header)).encode()).hexdigest()[:24]


@dataclass(frozen=True)
class Known:
    """A load, as far as it came."""

    producer: str
    round: int
    parts: int = 0
    """How many parts are published."""
    messages: int = 0
    notes: tuple[str, ...] = ()

    def sequence(self, number: int, messages: int) -> int:
        """Under which a part is published, with all messages up to its end."""
        return number << _MESSAGES_BITS | messages


class Memory:
    """What the broker knows of a load."""

    def __init__(self, client: Client, topic: str, words: str, fingerprint: str, *, named: bool) -> None:
        """`named`: each file is given by its name, and not by a pattern or a directory."""
        self._client, self._topic, self._named = client, topic, named
        self._name = f"load-{words}"
        self._content = int(fingerprint, 16) & _CONTENT
        self._mark: int | None = None

    def recall(self, *, again: bool) -> Known:
        """How far the load is; changes nothing."""
        self._mark = self._client.staged_sequence(self._name)
        if self._mark is None:
            return self._known(0)
        before = self._known(self._mark >> _CONTENT_BITS, self._mark & _CONTENT)
        told: str | None = None
        if again:
            told = None
        elif self._mark & _CONTENT != self._content:
            if not self._named and before.messages:
                raise InvalidArgument(
                    f"there are other files than when {before.messages:,} messages were loaded with these words, or "
                    "they have changed: name the new ones, or load all of them beside those (again)"
                )
            told = (
                f"what is in these files has changed since they were loaded: they are loaded as new ones, beside the "
                f"{before.messages:,} messages that were published of them before"
            )
        elif before.messages and not self._has_topic():
            told = f"the topic {self._topic} was deleted since these files were loaded: they are loaded anew"
        else:
            return before
        anew = self._known(before.round + 1)
        return anew if told is None else replace(anew, notes=(told,))

    def begin(self, known: Known) -> Known:
        """Note that the load is under way; before anything of it is published."""
        mark = known.round << _CONTENT_BITS | self._content
        if mark != self._mark:
            self._client.publish_staged([], producer=self._name, sequence=mark)
        return known

    def _known(self, number: int, content: int | None = None) -> Known:
        content = self._content if content is None else content
        producer = f"{self._name}-{number}-{content:011x}"
        last = self._client.staged_sequence(producer)
        if last is None:
            return Known(producer, number)
        return Known(producer, number, (last >> _MESSAGES_BITS) + 1, last & _MESSAGES)

    def _has_topic(self) -> bool:
        try:
            self._client.layout(self._topic, segments=False)
        except TopicNotFound:
            return False
        return True
