"""A place at one instant: where its logs end, and what its groups say at just that moment."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from penstock.model.errors import TopicNotFound
from penstock.model.info import GroupInfo
from penstock.spark.jobs.auditing.problems import Findings, Key
from penstock.spark.jobs.auditing.sides import Side
from penstock.spark.origins import DirectoryOrigin
from penstock.views.snapshot import GroupProgress, Snapshot

_TRIES = 5


Groups = dict[tuple[str, str], GroupInfo | GroupProgress]
"""By topic and name."""


def look_at_once(side: Side, topics: Iterable[str], findings: Findings) -> Groups | None:
    """Look at the logs of topics, and at their groups at the same moment; None where there is nobody who counts them.

    A server goes on meanwhile. A topic in which something happened between two looks is looked at again, a few times.
    """
    if side.place.servers is None:
        side.look(topics)
        if not isinstance(side.origin, DirectoryOrigin):
            return None
        assert side.place.path is not None
        with Snapshot(side.place.path) as snapshot:
            return {(group.topic, group.name): group for group in snapshot.groups()}
    groups: Groups = {}
    for topic in topics:
        found = _look_at_topic(side, topic)
        if found is None:
            findings.remark(topic, None, None, "its groups were at work all the time, and are not compared")
        else:
            groups.update(((topic, group.name), group) for group in found)
    return groups


def _look_at_topic(side: Side, topic: str) -> Sequence[GroupInfo] | None:
    client = side.place.client("an audit of groups")
    for _ in range(_TRIES):
        side.look([topic])
        try:
            groups = client.groups(topic)
            layout = client.layout(topic, segments=False)
        except TopicNotFound:
            return None
        ends: dict[tuple[str, Key], int] = {}
        for table, logs in (("messages", layout.messages), ("events", layout.events)):
            ends.update(((table, (topic, log.partition)), log.end) for log in logs)
        views = {(view.table, view.key): view.end for view in side.logs.values() if view.topic == topic}
        if ends == views:
            return groups
    return None
