"""What a pipeline needs of the server before its queries are planned: topics that are there, and limits."""

from __future__ import annotations

from penstock.model.errors import Forbidden, TopicExists
from penstock.model.info import TopicInfo
from penstock.spark.jobs.place import Place
from penstock.spark.pipelines.sinks import Limits
from penstock.spark.pipelines.spec import Pipeline


def missing_topics(pipeline: Pipeline, place: Place) -> list[str]:
    """The topics that a pipeline reads and that are not there."""
    read = {name for source in pipeline.sources.values() for name in (source.topic, source.events) if name is not None}
    return sorted(read - set(_topics(place)))


def _topics(place: Place) -> dict[str, TopicInfo]:
    """The topics that are there, as far as the token may know."""
    try:
        return {topic.name: topic for topic in place.client("a pipeline").topics()}
    except Forbidden:
        return {}


def make_topics(pipeline: Pipeline, place: Place) -> list[str]:
    """Make the topics that are to be read; who may not leaves it to whoever publishes first."""
    made = []
    for name in missing_topics(pipeline, place):
        try:
            place.client("a pipeline").create_topic(name)
            made.append(name)
        except (Forbidden, TopicExists):
            continue
    return made


def limits_of(pipeline: Pipeline, place: Place) -> dict[str, Limits]:
    """What the broker takes for each topic that a pipeline writes to."""
    client = place.client("a pipeline")
    delays = {name: topic.config.max_delay for name, topic in _topics(place).items()}
    written = {sink.topic for sink in pipeline.sinks.values() if sink.topic is not None}
    written |= {source.topic for source in pipeline.sources.values() if source.topic is not None}
    taken, default = client.limits, Limits()
    return {
        name: Limits(
            taken.max_value_bytes,
            taken.max_key_bytes,
            taken.max_headers_bytes,
            delays.get(name, default.delay_s),
        )
        for name in written
    }
