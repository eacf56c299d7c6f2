# Made from client/calls.py by tools/faces.py: change that, and run `make faces`.
"""The operations that a client only has to ask its server for; in plain calls."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from penstock.client.sync_calling import Caller
from penstock.model.info import BrokerStatus, GroupInfo, TopicInfo
from penstock.model.layout import TopicLayout
from penstock.model.letters import DeadLetter
from penstock.model.message import Data, MessageId
from penstock.model.names import Priority
from penstock.model.pipelines import PipelineReport
from penstock.model.processes import ClusterInfo
from penstock.model.schedules import DelayedMessage, Schedule
from penstock.model.traces import Trace
from penstock.model.units import Duration, Time


class ClientCalls(Caller):
    """The same operations as `penstock.Broker` has."""

    def offset_at(self, topic: str, time: Time, partition: int = 0) -> int:
        """The offset of the first message with a timestamp at or after `time`; the end if there is none."""
        return self.call("offset_at", int, topic=topic, time=time, partition=partition)

    def topics(self) -> list[TopicInfo]:
        """Every topic, by name, with its partitions."""
        return self.call("topics", list[TopicInfo])

    def layout(self, topic: str, *, segments: bool = True) -> TopicLayout:
        """Where the messages and events of a topic lie: how far they reach, and the segment files, if wanted."""
        return self.call("layout", TopicLayout, topic=topic, segments=segments)

    def create_topic(self, name: str, **config: Any) -> TopicInfo:
        """Make a topic with options of its own: `partitions`, `spread`, `retention_age`, `retention_bytes`, …."""
        return self.call("create_topic", TopicInfo, name=name, **config)

    def configure_topic(self, name: str, **options: Any) -> TopicInfo:
        """Change options of a topic, such as `retention_age` or `visibility_timeout`; `partitions` and `order` stay.

        Consumers that are at work follow at once: what they hold stays as it was leased to them.
        """
        return self.call("configure_topic", TopicInfo, name=name, **options)

    def delete_topic(self, name: str) -> None:
        """Delete a topic with all its messages; a topic made later under this name goes on with higher offsets."""
        self.call("delete_topic", None, name=name)

    def settle(self) -> None:
        """Turn what is in the journal into Parquet segments now (very many tiny topics stay: docs/decisions/0003)."""
        self.call("settle", None)

    def retain(self) -> int:
        """Apply retention now; how many segments were removed or archived."""
        return self.call("retain", int)

    def trim(self, topic: str, before: Mapping[int, int], *, events: Mapping[int, int] | None = None) -> int:
        """Remove the segments that lie wholly before these offsets (by partition), for good; how many went.

        For whoever has copied them. What is leased, delayed and not due, or unacked where the topic protects it stays,
        and so does what is not settled. With `events` (numbers of events, by partition), segments of events go too, if
        all messages that they speak of are gone.
        """
        return self.call("trim", int, topic=topic, before=before, events=events)

    def status(self) -> BrokerStatus:
        """The broker at this instant: who it is, how much it holds, and whether it can write."""
        return self.call("status", BrokerStatus)

    def create_group(
        self,
        topic: str,
        group: str,
        *,
        start: str | Time = "earliest",
        visibility_timeout: Duration | None = None,
        max_in_flight: int | None = None,
    ) -> GroupInfo:
        """Make a group before its first consumer comes, with settings of its own."""
        return self.call(
            "create_group",
            GroupInfo,
            topic=topic,
            group=group,
            start=start,
            visibility_timeout=visibility_timeout,
            max_in_flight=max_in_flight,
        )

    def groups(self, topic: str | None = None) -> list[GroupInfo]:
        """Every group, or those of one topic."""
        return self.call("groups", list[GroupInfo], topic=topic)

    def group(self, topic: str, group: str) -> GroupInfo:
        """One group: its lag, what is ready, leased, delayed and dead, and its consumers."""
        return self.call("group", GroupInfo, topic=topic, group=group)

    def seek_group(self, topic: str, group: str, to: int | str | Time, *, partition: int | None = None) -> None:
        """Move a group to an offset (a whole number), a time, 'earliest' or 'latest'; what it leased is taken back.

        Times are datetimes, ISO 8601 text, or seconds since 1970 with a fraction (a whole number is an offset).
        """
        self.call("seek_group", None, topic=topic, group=group, to=to, partition=partition)

    def reset_group(self, topic: str, group: str) -> None:
        """Let a group begin again, with everything that is kept: `seek_group` to 'earliest'."""
        self.call("reset_group", None, topic=topic, group=group)

    def pause_group(self, topic: str, group: str) -> GroupInfo:
        """Hand no messages to a group until it is resumed; its consumers keep what they hold, and can finish it."""
        return self.call("pause_group", GroupInfo, topic=topic, group=group)

    def resume_group(self, topic: str, group: str) -> GroupInfo:
        """Hand messages to a paused group again; whatever has come meanwhile waits for it."""
        return self.call("resume_group", GroupInfo, topic=topic, group=group)

    def checkpoint_group(self, topic: str, group: str, positions: Mapping[int, int]) -> None:
        """Note how far a reader is that keeps its own position (offsets by partition), so that its lag is seen.

        The group is made if it is new, and is for no consumers; durable when this returns. Each position is the next
        offset to be read, and may go back; where it is the same as before, nothing is written.
        """
        self.call("checkpoint_group", None, topic=topic, group=group, positions=positions)

    def delete_group(self, topic: str, group: str) -> None:
        """Forget a group; it must have no consumers."""
        self.call("delete_group", None, topic=topic, group=group)

    def delayed(self, topic: str, *, limit: int | None = None) -> list[DelayedMessage]:
        """What is not due yet, the next to fall due first."""
        return self.call("delayed", list[DelayedMessage], topic=topic, limit=limit)

    def cancel_delayed(self, identity: MessageId | str) -> bool:
        """Withdraw a delayed message: True if and only if nobody ever gets it."""
        return self.call("cancel_delayed", bool, identity=identity)

    def reschedule_delayed(
        self, identity: MessageId | str, *, delay: Duration | None = None, deliver_at: Time | None = None
    ) -> datetime | None:
        """Give a delayed message another time; that time, or None if it is not delayed (any more)."""
        found: datetime | None = self.call(
            "reschedule_delayed", _RESCHEDULE_DELAYED, identity=identity, delay=delay, deliver_at=deliver_at
        )
        return found

    def schedule(
        self,
        name: str,
        cron: str,
        topic: str,
        value: Data,
        *,
        zone: str = "UTC",
        key: Data | None = None,
        headers: Mapping[str, str] | None = None,
        priority: Priority = "normal",
        expires_in: Duration | None = None,
    ) -> Schedule:
        """Publish a message again and again, when a cron expression says so in a time zone.

        A schedule of the same name is replaced. What was missed while the broker was closed is published once.
        """
        return self.call(
            "schedule",
            Schedule,
            name=name,
            cron=cron,
            topic=topic,
            value=value,
            zone=zone,
            key=key,
            headers=headers,
            priority=priority,
            expires_in=expires_in,
        )

    def schedules(self) -> list[Schedule]:
        """Every schedule, by name."""
        return self.call("schedules", list[Schedule])

    def pause_schedule(self, name: str) -> Schedule:
        """Stop a schedule from firing."""
        return self.call("pause_schedule", Schedule, name=name)

    def resume_schedule(self, name: str) -> Schedule:
        """Let a paused schedule fire again, from now on."""
        return self.call("resume_schedule", Schedule, name=name)

    def remove_schedule(self, name: str) -> None:
        """End a schedule."""
        self.call("remove_schedule", None, name=name)

    def dead_letter(self, identity: MessageId | str) -> DeadLetter:
        """One dead letter, by its id among the dead letters (`orders.dlq/0/7`)."""
        return self.call("dead_letter", DeadLetter, identity=identity)

    def trace(self, identity: MessageId | str) -> Trace:
        """The life of a message: published, delivered, failed, acked, …, each with time, group and cause."""
        return self.call("trace", Trace, identity=identity)

    def staged_sequence(self, producer: str) -> int | None:
        """The sequence that `publish_staged` knows of a producer as its newest; None if it knows none.

        So work that publishes in numbered parts goes on where it was, after whatever ended it.
        """
        found: int | None = self.call("staged_sequence", _STAGED_SEQUENCE, producer=producer)
        return found

    def report_pipeline(self, report: PipelineReport) -> None:
        """Tell the server what a pipeline is doing; it keeps the newest report, for a day."""
        self.call("report_pipeline", None, report=report)

    def pipelines(self) -> list[PipelineReport]:
        """What every pipeline has reported last, by name; `silent` are those that ought to have reported again."""
        return self.call("pipelines", list[PipelineReport])

    def cluster(self) -> ClusterInfo:
        """All processes and shards of the server, and the last moves."""
        return self.call("cluster", ClusterInfo)

    def move_shard(self, shard: int, process: int) -> ClusterInfo:
        """Move a shard to a process, and wait until it is there; only what it has pauses, for a moment."""
        return self.call("move_shard", ClusterInfo, shard=shard, process=process)

    def drain_process(self, process: int) -> ClusterInfo:
        """Move all shards of a process to others; it gets none until they are balanced again."""
        return self.call("drain_process", ClusterInfo, process=process)

    def balance_shards(self) -> ClusterInfo:
        """Let all processes share the shards, with as few moves as that takes."""
        return self.call("balance_shards", ClusterInfo)


_RESCHEDULE_DELAYED: Any = datetime | None
_STAGED_SEQUENCE: Any = int | None
