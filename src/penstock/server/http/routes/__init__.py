"""The routes, one file for each thing that they are about."""

from __future__ import annotations

from penstock.server.http.routes import (
    access,
    cluster,
    dead_letters,
    delayed,
    groups,
    health,
    messages,
    pages,
    pipelines,
    publishing,
    push,
    queues,
    receiving,
    schedules,
    stats,
    topics,
    traces,
    websockets,
)

TAGS = {
    "topics": "Make, list, change and delete topics.",
    "publishing": "Publish messages, one or thousands at a time.",
    "reading": "Read the log by offset and time, also what was acked; replay it.",
    "consuming": "Receive messages under a lease, and say what became of them.",
    "groups": "Groups of consumers: their lag, their members, their position.",
    "delayed": "Messages that are not due yet.",
    "schedules": "Messages that are published again and again.",
    "dead letters": "Messages that could not be processed: look, redrive, purge.",
    "traces": "The life of messages.",
    "pipelines": "What pipelines on Spark tell of themselves.",
    "broker": "The server itself: health, version, numbers.",
    "processes": "The processes of the server and their shards: look, move, drain, balance.",
    "queues": "Three plain routes: put in, take out, look.",
    "access": "Who you are.",
}

ROUTES = tuple(
    module.ROUTES
    for module in (
        *(access, cluster, dead_letters, delayed, groups, health, pages, pipelines, publishing, push),
        *(queues, messages, receiving, schedules, stats, topics, traces, websockets),
    )
)
