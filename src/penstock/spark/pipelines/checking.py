"""Checks a declaration: reports all problems at once, and returns the parts that have none."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any, TypeVar

from penstock.model.errors import InvalidArgument
from penstock.model.units import parse_digits, parse_duration
from penstock.server.settings.table import suggestion
from penstock.spark.pipelines.given import Given
from penstock.spark.pipelines.spec import Declared, Pipeline, Sink, Source, Step, Watermark
from penstock.spark.pipelines.value_readers import (
    PART_NAME,
    VIEW_NAME,
    Notes,
    Read,
    duration,
    expression,
    expressions,
    named,
    names,
    number,
    one_of,
    text,
    topic,
    truth,
)

Part = TypeVar("Part", Source, Sink)
CONTINUOUS, AVAILABLE_NOW = "continuous", "available-now"
_TRIGGER_MAX_S = 30 * 86_400.0
_OF_TOPICS = ("starting", "max_per_trigger")
_SOURCES: dict[str, tuple[str, ...]] = {
    "topic": (*_OF_TOPICS, "value", "schema", "bad_rows"),
    "events": _OF_TOPICS,
    "table": ("stream", "schema"),
    "files": ("stream", "schema", "format", "header", "bad_rows"),
}
"""Further keys of each kind of source; all may have a watermark."""
_SINKS: dict[str, tuple[str, ...]] = {
    "topic": ("value", "key", "priority", "delay", "headers"),
    "table": ("partition_by",),
    "console": (),
}
"""Further keys of each kind of sink; all may have `from`, `where` and `mode`."""
_MODES = {"topic": ("append", "update"), "table": ("append",), "console": ("append", "update", "complete")}
_BAD_ROWS = {"topic": ("dead-letter", "drop", "fail"), "files": ("fail", "drop")}


def check(given: Given, notes: Notes) -> Declared:
    """What a whole file declares, without the parts that have problems, which are noted."""
    readers: dict[str, Read] = {
        "server": _server,
        "checkpoints": text,
        "settings": _settings,
        "pipelines": lambda part: _pipelines(part, notes),
    }
    found = notes.section("", given, readers, ("pipelines",))
    checkpoints = (notes.path.parent / found.get("checkpoints", "checkpoints")).resolve()
    declared = Declared(
        path=notes.path,
        pipelines=found.get("pipelines", {}),
        checkpoints=checkpoints,
        server=found.get("server"),
        settings=found.get("settings", {}),
        lines=notes.lines,
        unread=notes.unread,
    )
    _check_tables(declared, notes)
    return declared


def circles(declared: Declared) -> list[str]:
    """Notes on topics that come back to themselves, through whatever pipelines."""
    ways: dict[str, set[str]] = {}
    for pipeline in declared.pipelines.values():
        written = {sink.topic for sink in pipeline.sinks.values() if sink.topic is not None}
        for source in pipeline.sources.values():
            if source.topic is not None:
                ways.setdefault(source.topic, set()).update(written)
    found = []
    for start, first in ways.items():
        reached, ahead = set[str](), list(first)
        while ahead:
            at = ahead.pop()
            if at not in reached:
                reached.add(at)
                ahead += ways.get(at, ())
        if start in reached:
            found.append(f"what is read from the topic {start} may come back to it: let it not go round for ever")
    return found


# The file.


def _server(given: Given) -> str:
    for address in text(given).split(","):
        host, _, port = address.strip().rpartition(":")
        number = parse_digits(port)
        if not host or number is None or number > 65_535:
            raise InvalidArgument(f"{address.strip()!r} is not an address such as '127.0.0.1:9000'")
    return text(given)


def _settings(given: Given) -> dict[str, str]:
    for name, part in given.items().items():
        if not name.startswith("spark."):
            raise InvalidArgument(f"{name} is not a setting of Spark: they begin with 'spark.'")
        if part.value is None or isinstance(part.value, dict | list):
            raise InvalidArgument(f"{name} is neither text nor a number")
    return {name: part.text for name, part in given.items().items()}


def _pipelines(given: Given, notes: Notes) -> dict[str, Pipeline]:
    items = given.items()
    if not items:
        raise InvalidArgument("there are none")
    found = {}
    for name, part in items.items():
        place = f"pipelines.{name}"
        notes.stands(place, part)
        if wrong := named(PART_NAME, name, "pipeline"):
            notes.wrong(place, wrong)
        found[name] = _pipeline(place, part, notes)
        read = {*found[name].sources, *(step.name for step in found[name].steps)}
        views = {*part.at("sources").found, *_step_names(_step_parts(part))}  # whatever is wrong with them
        notes.unread[name] = frozenset(views - read)
    return found


def _pipeline(place: str, given: Given, notes: Notes) -> Pipeline:
    readers: dict[str, Read] = {
        "sources": lambda part: _sources(f"{place}.sources", part, notes),
        "steps": lambda part: _steps(f"{place}.steps", part, notes),
        "sinks": lambda part: _parts(f"{place}.sinks", part, notes, "sink", _sink),
        "trigger": _trigger,
    }
    found = notes.section(place, given, readers, ("sources", "sinks"))
    _check_names(place, given, notes)
    return Pipeline(**{"sources": {}, "sinks": {}, **found})


def _trigger(given: Given) -> float | str:
    if given.value in (CONTINUOUS, AVAILABLE_NOW):
        return str(given.value)
    try:
        every_s = parse_duration(given.value)
    except InvalidArgument as error:
        raise InvalidArgument(
            f"{given.value!r} is neither {CONTINUOUS}, {AVAILABLE_NOW} nor a duration such as 5s"
        ) from error
    if not 0.001 <= every_s <= _TRIGGER_MAX_S:
        raise InvalidArgument(f"{given.value!r} is not between 1ms and 30d")
    return duration(given)


def _check_names(place: str, given: Given, notes: Notes) -> None:
    """Check that steps refer to what stands before them, and sinks to what is there, whatever else is wrong."""
    known, parts = list(given.at("sources").found), _step_parts(given)
    ahead = _step_names(parts)
    for place_in_list, part in enumerate(parts):
        inner, name = _step_place(f"{place}.steps", part, place_in_list), part.at("name").text
        for view in _texts(part.at("input")):
            if view in ahead and view not in known:
                notes.wrong(f"{inner}.input", f"{view} does not come before {name}: steps are done in their order")
            else:
                _refers(f"{inner}.input", view, known, notes)
        if name.lower() in map(str.lower, known):
            notes.wrong(f"{inner}.name", f"there is a source or step {name} already")
        if name:
            known.append(name)
    for sink, part in given.at("sinks").found.items():
        for view in _texts(part.at("from")):
            _refers(f"{place}.sinks.{sink}.from", view, known, notes)


def _step_parts(given: Given) -> list[Given]:
    steps = given.at("steps").value
    return [part for part in steps if isinstance(part.value, dict)] if isinstance(steps, list) else []


def _step_names(parts: list[Given]) -> list[str]:
    return [part.at("name").text for part in parts if "name" in part.found]


def _texts(given: Given) -> list[str]:
    """The names that a value refers to."""
    parts = given.value if isinstance(given.value, list) else [given]
    return [part.value for part in parts if isinstance(part.value, str) and part.value]


def _refers(place: str, name: str, known: Collection[str], notes: Notes) -> None:
    if name not in known:
        near = suggestion(name, known) or f"; there are {', '.join(known) or 'none'}"
        notes.wrong(place, f"there is no source and no step {name}{near}")


def _check_tables(declared: Declared, notes: Notes) -> None:
    """Two queries must not write into one directory: Spark keeps the list of a table's files in it."""
    first: dict[str, str] = {}
    for pipeline, spec in declared.pipelines.items():
        for name, sink in spec.sinks.items():
            if sink.table is not None:
                path, place = declared.near(sink.table), f"pipelines.{pipeline}.sinks.{name}.table"
                if path in first:
                    notes.wrong(place, f"{first[path]} writes into this directory already: a table has one sink")
                first.setdefault(path, place.rpartition(".")[0])


# Sources, steps, sinks.


def _parts(
    place: str, given: Given, notes: Notes, what: str, read: Callable[[str, Given, Notes], Part]
) -> dict[str, Part]:
    """The sources or the sinks of a pipeline by name, without those that have problems."""
    found = {}
    for name, part in given.items().items():
        inner, before = f"{place}.{name}", len(notes.problems)
        notes.stands(inner, part)
        if wrong := named(VIEW_NAME if what == "source" else PART_NAME, name, what):
            notes.wrong(inner, wrong)
        made = read(inner, part, notes)
        if len(notes.problems) == before:
            found[name] = made
    if not given.items():
        raise InvalidArgument(f"there are none: a pipeline {'reads' if what == 'source' else 'writes'} something")
    return found


def _sources(place: str, given: Given, notes: Notes) -> dict[str, Source]:
    found = _parts(place, given, notes, "source", _source)
    if len({name.lower() for name in found}) < len(found):
        raise InvalidArgument("two names differ in capitals only, which are one to SQL")
    return found


def _source(place: str, given: Given, notes: Notes) -> Source:
    readers: dict[str, Read] = {
        "topic": topic,
        "events": topic,
        "table": text,
        "files": text,
        "starting": one_of("earliest", "latest"),
        "max_per_trigger": number(1, 10**9),
        "value": one_of("json", "text", "binary"),
        "schema": text,
        "bad_rows": one_of("dead-letter", "drop", "fail"),
        "format": one_of("csv", "json", "parquet", "text"),
        "header": truth,
        "stream": truth,
        "watermark": lambda part: _watermark(f"{place}.watermark", part, notes),
    }
    found = notes.section(place, given, readers)
    kind = _kind(place, given, found, _SOURCES, ("watermark",), notes)
    if kind == "topic":
        if found.get("value") == "json" and "schema" not in given.items():
            notes.wrong(place, "schema is missing: the fields of the JSON, such as `id STRING, amount DOUBLE`")
        for name in ("schema", "bad_rows"):
            if found.get("value", "binary") != "json" and name in found:
                notes.wrong(f"{place}.{name}", "it is for a topic whose values are JSON (`value: json`)")
    if kind == "files":
        if "format" not in given.items():
            notes.wrong(place, "format is missing: csv, json, parquet or text")
        if found.get("format") in ("csv", "json") and "schema" not in given.items():
            notes.wrong(place, "schema is missing: the columns of the files, such as `id STRING, amount DOUBLE`")
        if "header" in found and found.get("format") != "csv":
            notes.wrong(f"{place}.header", "it is for CSV files")
        if found.get("format") == "text" and "schema" in found:
            notes.wrong(f"{place}.schema", "lines of text have one column, `value`")
    if found.get("bad_rows") not in (None, *_BAD_ROWS.get(kind or "", ("dead-letter", "drop", "fail"))):
        notes.wrong(f"{place}.bad_rows", "files have no dead letters: give fail (the default) or drop")
    return Source(**found)


def _watermark(place: str, given: Given, notes: Notes) -> Watermark | None:
    found = notes.section(place, given, {"column": text, "delay": duration}, ("column", "delay"))
    return Watermark(**found) if len(found) == 2 else None


def _steps(place: str, given: Given, notes: Notes) -> list[Step]:
    found = []
    for place_in_list, part in enumerate(given.parts()):
        step = _step(_step_place(place, part, place_in_list), part, notes)
        if step is not None:
            found.append(step)
    return found


def _step_place(place: str, given: Given, place_in_list: int) -> str:
    """Steps are called by their names, where they have one."""
    return f"{place}.{given.at('name').text or place_in_list}"


def _step(place: str, given: Given, notes: Notes) -> Step | None:
    before = len(notes.problems)
    readers: dict[str, Read] = {"name": text, "sql": text, "python": _python, "input": names}
    found = notes.section(place, given, readers, ("name",))
    if "name" in found and (wrong := named(VIEW_NAME, found["name"], "step")):
        notes.wrong(f"{place}.name", wrong)
    items = given.found
    if ("sql" in items) == ("python" in items):
        notes.wrong(place, "give sql or python, one of the two")
    elif "python" in items and "input" not in items:
        notes.wrong(place, "input is missing: the view that the function is called with")
    elif "sql" in items and "input" in items:
        notes.wrong(f"{place}.input", "it is for python: SQL names what it reads itself")
    return Step(**found) if len(notes.problems) == before else None


def _python(given: Given) -> Any:
    if callable(given.value):
        return given.value
    module, _, name = text(given).partition(":")
    if not all(part.isidentifier() for part in (*module.split("."), name)):
        raise InvalidArgument(f"{given.value!r} does not name a function: give module:function, such as scoring:score")
    return given.value


def _sink(place: str, given: Given, notes: Notes) -> Sink:
    readers: dict[str, Read] = {
        "from": text,
        "where": expression,
        "mode": one_of("append", "update", "complete"),
        "topic": topic,
        "value": expression,
        "key": expression,
        "priority": expression,
        "delay": expression,
        "headers": expressions,
        "table": text,
        "partition_by": names,
        "console": truth,
    }
    found = notes.section(place, given, readers, ("from",))
    kind = _kind(place, given, found, _SINKS, ("from", "where", "mode"), notes)
    if kind is not None and found.get("mode", "append") not in _MODES[kind]:
        notes.wrong(f"{place}.mode", f"a {kind} takes {' or '.join(_MODES[kind])}")
    if found.get("console") is False:
        notes.wrong(f"{place}.console", "a sink is a topic, a table or `console: true`")
    return Sink(from_=found.pop("from", ""), **found)


def _kind(
    place: str,
    given: Given,
    found: Mapping[str, Any],
    kinds: Mapping[str, tuple[str, ...]],
    common: tuple[str, ...],
    notes: Notes,
) -> str | None:
    """Which of the kinds this is; what does not belong to it is noted."""
    if not isinstance(given.value, dict):
        return None
    chosen = [kind for kind in kinds if kind in given.items()]
    if len(chosen) != 1:
        notes.wrong(place, f"give one of {', '.join(kinds)}" + (f", not {' and '.join(chosen)}" if chosen else ""))
        return None
    for name in found:
        if name not in (*chosen, *kinds[chosen[0]], *common):
            notes.wrong(f"{place}.{name}", f"it is not for {chosen[0]}")
    return chosen[0]
