"""Changing the options of a topic that exists: one record in the journal; everybody follows once it is committed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from penstock.log.reservations import reserve_options
from penstock.model.errors import BrokerClosed, TopicNotFound
from penstock.model.schedules import check_open_topic

if TYPE_CHECKING:
    from penstock.broker.engine import Engine
    from penstock.journal import Commit


def configure_topic(engine: Engine, name: str, options: Mapping[str, object]) -> Commit | None:
    """Change options of a topic; what to wait for, or None where they are as asked for already."""
    check_open_topic(name)
    now_us = engine.clock.wall_us()
    with engine.lock:
        if engine.closed:
            raise BrokerClosed("the broker is closed")
        engine.journal.check_writable(0)  # only that: on a disk that is nearly full, shorter retention is the way out
        topic = engine.topic(name)
        if topic.deleting:
            raise TopicNotFound(f"the topic {name!r} is being deleted")
        newest = topic.changes[-1] if topic.changes else topic.config
        config = newest.changed(options)
        if config == newest:
            return engine.journal.latest_commit()
        return engine.journal.gather(reserve_options(topic, config, now_us), 0)
