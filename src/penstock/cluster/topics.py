"""Topics of all shards: made, changed, deleted and shown, wherever they live; one that is spread is made in several.

What changes it is done slice after slice, the one of its home last: whoever is interrupted finds it undone there, and
does it again.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING

from penstock.cluster.slices import find, find_existing, known_topic, places_of, spread_of
from penstock.model.config import TopicConfig
from penstock.model.errors import (
    BrokerClosed,
    InvalidArgument,
    TopicExists,
)
from penstock.model.info import TopicInfo
from penstock.model.layout import TopicLayout
from penstock.model.merging import merge_layouts, merge_topics
from penstock.model.names import DEAD_LETTERS
from penstock.model.placement import Spread, is_slice, parse_slice, part_name, shards_of
from penstock.model.schedules import check_open_topic
from penstock.shard.reading.layouts import topic_layout
from penstock.views import info

if TYPE_CHECKING:
    from penstock.cluster.shards import Shards
    from penstock.shard.shard import Shard


def create_topic(shards: Shards, name: str, options: Mapping[str, object], floor: int = 0) -> TopicInfo:
    """Make a topic by hand, with options of its own; one that is spread is made in each of its shards."""
    if is_slice(name):
        return _create_slices(shards, name, options, floor)
    options, config = _checked(shards, name, options)
    home, *others = places_of(shards, name, Spread(config.spread, config.partitions))
    floor = home.catalog.floors.get(name, 0)
    for shard in (*reversed(others), home):
        _make_slice(shard, name, config, options, floor)
    return topic_info(shards, name)


def spread_of_new(shards: Shards, name: str, arguments: Mapping[str, object]) -> Spread | None:
    """How a topic will be spread that is to be made; raises what making it would."""
    options = {option: value for option, value in arguments.items() if option != "name"}
    if options.get("spread", 1) == 1 and not name.endswith(DEAD_LETTERS):
        return None
    _, config = _checked(shards, name, options)
    return None if config.spread == 1 else Spread(config.spread, config.partitions)


def _create_slices(shards: Shards, name: str, options: Mapping[str, object], floor: int) -> TopicInfo:
    """Make those slices of a topic that are here: for `orders#0` also the first one, and with it the topic."""
    topic, first = parse_slice(name)
    config = TopicConfig.parse(options, shards.config.topic_defaults)
    slices = shards_of(topic, config.spread, shards.count)
    for number in reversed(slices if first == 0 else slices[1:]):
        if number in shards:
            _make_slice(shards[number], topic, config, options, floor)
    return topic_info(shards, part_name(topic))


def _checked(shards: Shards, name: str, options: Mapping[str, object]) -> tuple[Mapping[str, object], TopicConfig]:
    """The options of a topic that can be made."""
    shard = shards.of(check_open_topic(name))
    options, config = _with_spread(shards, name, options)
    check_spread(name, config, shards.count)
    letters = shard.catalog.by_name.get(name + DEAD_LETTERS)
    if letters is not None and config.spread != letters.config.spread:
        raise InvalidArgument(
            f"{name}: {letters.name} is there from before, and over {letters.config.spread} shards: delete it first"
        )
    with shard.lock:
        if name in shard.catalog.by_name:
            raise TopicExists(f"the topic {name!r} exists already")
    return options, config


def _with_spread(shards: Shards, name: str, options: Mapping[str, object]) -> tuple[Mapping[str, object], TopicConfig]:
    """The options of a topic; dead letters are spread as their topic is, for a slice has those of its own messages."""
    config = TopicConfig.parse(options, shards.config.topic_defaults)
    dead_of = spread_of(shards, name) if name.endswith(DEAD_LETTERS) and config.spread == 1 else None
    if dead_of is not None:
        options = {**options, "spread": dead_of.slices, "partitions": max(config.partitions, dead_of.slices)}
        config = TopicConfig.parse(options, shards.config.topic_defaults)
    return options, config


def check_spread(name: str, config: TopicConfig, shards: int) -> None:
    """Raise if a topic cannot be spread like this."""
    if config.spread > shards:
        raise InvalidArgument(f"{name}: spread: there are {shards} shards, so {config.spread} is too many")
    if config.spread > config.partitions:
        raise InvalidArgument(
            f"{name}: spread: {config.partitions} partitions cannot be dealt to {config.spread} shards: "
            f"give partitions={config.spread} or more"
        )


def _make_slice(shard: Shard, name: str, config: TopicConfig, options: Mapping[str, object], floor: int = 0) -> None:
    """Make one slice; one of an attempt that was interrupted, which has nothing in it, is as good if it is alike."""
    try:
        shard.create_topic(name, dict(options), floor).wait()
    except TopicExists:
        with shard.lock:
            known = shard.topic(name)
        if known.config.spread != config.spread or known.config.partitions != config.partitions:
            shard.delete_topic(name).wait()
            shard.create_topic(name, dict(options), floor).wait()


def configure_topic(shards: Shards, name: str, options: Mapping[str, object]) -> TopicInfo:
    """Change options of a topic."""
    topic, slices = find(shards, name)
    known = known_topic(slices, check_open_topic(topic))
    for shard in reversed(slices):
        if topic not in shard.catalog.by_name:  # no message of this slice has died yet
            shard.create_topic(topic, asdict(known.config)).wait()
        commit = shard.configure_topic(topic, options)
        if commit is not None:
            commit.wait()
    return topic_info(shards, name)


def delete_topic(shards: Shards, name: str, floor: int = 0) -> None:
    """Delete a topic with all its messages; a later one begins at the floor at least."""
    spread = spread_of(shards, name)
    places = None if spread is None else places_of(shards, name, spread)
    name, slices = find_existing(shards, name)
    for shard in reversed(slices):
        # The home is last, and knows from then on where a topic of this name begins in all shards.
        floor = max(floor, *(place.catalog.floors.get(name, 0) for place in places or (shard,)))
        shard.delete_topic(name, floor).wait()
        if shard.state.files_to_delete:
            with contextlib.suppress(BrokerClosed):  # closing writes one too
                shard.checkpoint()


def topic_info(shards: Shards, name: str) -> TopicInfo:
    """A topic and its partitions."""
    name, slices = find_existing(shards, name)
    return merge_topics([_info_of(shard, name) for shard in slices])


def _info_of(shard: Shard, name: str) -> TopicInfo:
    with shard.lock:
        return info.topic_info(shard.topic(name))


def layout(shards: Shards, topic: str, *, segments: bool = True) -> TopicLayout:
    """Where the messages and events of a topic lie."""
    name, slices = find_existing(shards, topic)
    found: list[TopicLayout] = []
    for shard in slices:
        with shard.lock:
            found.append(topic_layout(shard.topic(name), shard.storage if segments else None))
    return merge_layouts(found)
