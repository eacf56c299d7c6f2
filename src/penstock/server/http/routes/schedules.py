"""Messages that are published again and again."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

import msgspec
from litestar import Router, delete, get, post, put
from litestar.params import JSONBody, PathParameter
from msgspec import Meta

from penstock.model.schedules import Schedule
from penstock.server.http.bodies import Encoding, Priority, Seconds, as_text, decode_base64
from penstock.server.http.caller import Caller, permits
from penstock.server.http.documenting import body_of, errors

_EXAMPLE = {"cron": "0 7 * * 1-5", "zone": "Europe/Vienna", "topic": "reports", "value": "daily"}
Name = Annotated[str, PathParameter(description="The name of a schedule.")]


class NewSchedule(msgspec.Struct, forbid_unknown_fields=True):
    """What is published again and again, and when. Key and value are text, or base64 where `encoding` says so."""

    cron: Annotated[str, Meta(min_length=1, max_length=200)]
    topic: Annotated[str, Meta(min_length=1, max_length=204)]
    value: str
    zone: Annotated[str, Meta(min_length=1, max_length=100)] = "UTC"
    encoding: Encoding | None = None
    key: str | None = None
    headers: dict[str, str] | None = None
    priority: Priority = "normal"
    expires_in: Seconds | None = None


class ScheduleView(msgspec.Struct):
    """A schedule, and when it fires next."""

    name: str
    cron: str
    zone: str
    topic: str
    value: str
    encoding: Encoding
    key: str | None
    headers: dict[str, str] | None
    priority: int
    expires_in: float | None
    paused: bool
    next_at: datetime | None

    @classmethod
    def of(cls, schedule: Schedule) -> ScheduleView:
        """As JSON."""
        message = schedule.message
        value, key, encoding = as_text(message.value, message.key, None)
        return cls(
            name=schedule.name,
            cron=schedule.cron,
            zone=schedule.zone,
            topic=schedule.topic,
            value=value,
            encoding=encoding,
            key=key,
            headers=message.headers,
            priority=message.priority,
            expires_in=schedule.life_us / 1_000_000 if schedule.life_us else None,
            paused=schedule.paused,
            next_at=schedule.next_at,
        )


class Schedules(msgspec.Struct):
    """All schedules, by name."""

    schedules: list[ScheduleView]


@get("/schedules", responses=errors())
async def list_schedules(caller: Caller) -> Schedules:
    """List the schedules of all topics that one may see."""
    return Schedules([ScheduleView.of(schedule) for schedule in await caller.call("schedules")])


@put(
    "/schedules/{name:str}",
    operation_class=body_of(NewSchedule, _EXAMPLE),
    responses=errors(507),
    guards=permits("schedule"),
)
async def put_schedule(caller: Caller, name: Name, data: JSONBody[NewSchedule]) -> ScheduleView:
    """Make a schedule, or put another one in the place of the one that has this name.

    `cron` has five fields (minute, hour, day, month, weekday), read in the time zone `zone`. What was missed while the
    server was down is published once.
    """
    value: str | bytes = data.value
    key: str | bytes | None = data.key
    if data.encoding == "base64":
        value = decode_base64("value", data.value)
        key = None if data.key is None else decode_base64("key", data.key)
    made: Any = await caller.call(
        "schedule",
        name=name,
        cron=data.cron,
        topic=data.topic,
        value=value,
        zone=data.zone,
        key=key,
        headers=data.headers,
        priority=data.priority,
        expires_in=data.expires_in,
    )
    return ScheduleView.of(made)


@post("/schedules/{name:str}/pause", status_code=200, responses=errors(507))
async def pause_schedule(caller: Caller, name: Name) -> ScheduleView:
    """Stop a schedule from firing."""
    return ScheduleView.of(await caller.call("pause_schedule", name=name))


@post("/schedules/{name:str}/resume", status_code=200, responses=errors(507))
async def resume_schedule(caller: Caller, name: Name) -> ScheduleView:
    """Let a paused schedule fire again, from now on."""
    return ScheduleView.of(await caller.call("resume_schedule", name=name))


@delete("/schedules/{name:str}", responses=errors(507))
async def remove_schedule(caller: Caller, name: Name) -> None:
    """End a schedule."""
    await caller.call("remove_schedule", name=name)


ROUTES = Router(
    "/v1",
    route_handlers=[list_schedules, put_schedule, pause_schedule, resume_schedule, remove_schedule],
    tags=["schedules"],
)
