"""Topics that are spread over shards: where their slices are.

A slice is a topic of its own for its shard, with the same name and all partitions, of which the ones that are dealt to
other slices stay empty. So an id says where a message is, and nothing has to be translated. The first slice is where
a topic lives anyway: it knows how the topic is spread. `orders#2` asks for one slice, and for nothing else.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from penstock.log.topics import Topic
from penstock.model.errors import TopicNotFound, TopicSpread
from penstock.model.names import DEAD_LETTERS, check_topic_name
from penstock.model.placement import Spread, is_slice, living, parse_slice, shard_of, shards_of

if TYPE_CHECKING:
    from penstock.cluster.shards import Shards
    from penstock.shard.shard import Shard


def find(shards: Shards, topic: str) -> tuple[str, Sequence[Shard]]:
    """The name of a topic and the shards that have it, its home first; or those that have the slices that are named.

    Raises TopicSpread where other processes have some of them, and NotOwner where another one is its home.
    """
    if shards.count == 1:
        return topic, (shards.only,)
    if is_slice(topic):
        name, number = parse_slice(topic)
        return name, held_slices(shards, name) if number is None else (find_slice(shards, topic)[1],)
    spread = spread_of(shards, topic)
    if spread is None:
        return topic, (shards.of(topic),)
    return topic, [of_slice(shards, topic, spread, number) for number in range(spread.slices)]


def held_slices(shards: Shards, topic: str) -> list[Shard]:
    """The shards here that have slices of a topic, in the order of the slices; raises TopicNotFound for none."""
    names = (check_topic_name(topic), living(topic) if topic.endswith(DEAD_LETTERS) else topic)
    found: dict[int, Shard] = {}
    for shard in shards:
        known = next((shard.catalog.by_name[name] for name in names if name in shard.catalog.by_name), None)
        if known is not None and known.config.spread > 1:
            found[known.slice] = shard
    if not found:
        raise TopicNotFound(f"there is no topic {topic!r}")
    return [found[number] for number in sorted(found)]


def find_existing(shards: Shards, topic: str) -> tuple[str, Sequence[Shard]]:
    """As `find`, for those who only look: without slices that have nothing of it, as long as one has.

    There may be such slices of dead letters, and of a topic whose deletion was interrupted.
    """
    spread = spread_of(shards, topic)
    name, slices = find(shards, topic) if spread is None else (topic, places_of(shards, topic, spread))
    if len(slices) == 1:
        return name, slices
    return name, [shard for shard in slices if name in shard.catalog.by_name] or slices[:1]


def spread_of(shards: Shards, topic: str) -> Spread | None:
    """How a topic is spread; None if it lives in one shard, as most do, or is one slice."""
    if shards.count == 1 or is_slice(topic):
        return None
    names = shards.of(topic).catalog.by_name
    known = names.get(topic)
    if known is not None:
        return None if known.config.spread == 1 else Spread(known.config.spread, len(known.partitions))
    if not topic.endswith(DEAD_LETTERS):
        return None
    known = names.get(living(topic)) or next(_known(shards, topic), None)  # no message of the first slice has died
    return None if known is None or known.config.spread == 1 else Spread(known.config.spread, known.config.spread)


def of_slice(shards: Shards, topic: str, spread: Spread, number: int) -> Shard:
    """The shard of a slice; raises TopicSpread if another process has it."""
    shard = _place_of(shards, topic, spread, number)
    if topic not in shard.catalog.by_name and not topic.endswith(DEAD_LETTERS):  # those are made as they are needed
        raise TopicNotFound(f"{topic} is being deleted: if that was interrupted, delete it again")
    return shard


def places_of(shards: Shards, topic: str, spread: Spread) -> list[Shard]:
    """The shards of all slices, whether there is anything of the topic or not; raises as `of_slice`."""
    return [_place_of(shards, topic, spread, number) for number in range(spread.slices)]


def _place_of(shards: Shards, topic: str, spread: Spread, number: int) -> Shard:
    shard = shards_of(topic, spread.slices, shards.count)[number]
    if shard not in shards:
        raise in_several(topic, spread)
    return shards[shard]


def in_several(topic: str, spread: Spread) -> TopicSpread:
    """What whoever asks for all of a topic hears that is in several processes."""
    return TopicSpread(
        f"{topic} is spread over {spread.slices} shards, which are in several processes: nothing was done here; "
        "ask each of its slices, as newer clients do",
        topic,
        *spread,
    )


def of_partition(shards: Shards, topic: str, partition: int) -> Shard:
    """The shard of a partition; whoever has that needs not have the topic's home too."""
    if shard_of(check_topic_name(topic), shards.count) not in shards:
        for shard in shards:
            known = shard.catalog.by_name.get(topic)
            if known is not None and known.config.spread > 1 and partition in known.own_partitions:
                return shard
    spread = spread_of(shards, topic)
    if spread is None:
        return shards.of(topic)
    return of_slice(shards, topic, spread, spread.of_partition(partition))


def is_shown(shards: Shards, shard: Shard, topic: Topic) -> bool:
    """Whether lists show what a shard has of a topic.

    Each shard keeps its schedules in a topic of one name: one of them is shown. Slices that nothing leads to are left
    from making or deleting a topic, which was interrupted.
    """
    if shards.count == 1:
        return True
    if topic.config.spread == 1:
        return shards.is_home(shard, topic.name)
    if topic.slice == 0 or topic.name.endswith(DEAD_LETTERS):
        return True
    home = shard_of(topic.name, shards.count)
    if home not in shards:
        return True  # whoever puts together what all processes have sees more
    known = shards[home].catalog.by_name.get(topic.name)
    return known is not None and known.config.spread == topic.config.spread


def find_slice(shards: Shards, name: str) -> tuple[str, Shard]:
    """The topic and the shard of a slice that is named; raises TopicSpread if there is no such slice (any more)."""
    topic, number = parse_slice(name)
    check_topic_name(topic)
    if number is None or number >= shards.count:
        raise TopicSpread(f"{topic} has no such slice: nothing was done; ask for the topic", topic)
    shard = shards.of(name)
    names = shard.catalog.by_name
    known = names.get(topic) or (names.get(living(topic)) if topic.endswith(DEAD_LETTERS) else None)
    if known is None or known.config.spread <= number:
        raise TopicSpread(f"{topic} has no slice {number}: nothing was done; ask for the topic", topic)
    return topic, shard


def _known(shards: Shards, topic: str) -> Iterator[Topic]:
    return (found for shard in shards if (found := shard.catalog.by_name.get(topic)) is not None)


def known_topic(slices: Sequence[Shard], topic: str) -> Topic:
    """A topic as one of these slices knows it: the dead letters of one are there when the first message has died."""
    found = (known for shard in slices if (known := shard.catalog.by_name.get(topic)) is not None)
    return next(found, None) or slices[0].topic(topic)
