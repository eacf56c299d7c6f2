"""The configuration of a server: defaults, under a file, under the environment, under flags; all mistakes at once."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from penstock.model.config import BrokerConfig
from penstock.model.errors import InvalidArgument
from penstock.server.settings.files import ConfigFile
from penstock.server.settings.options import ServerConfig
from penstock.server.settings.table import SECTIONS, SETTINGS, suggestion
from penstock.server.settings.values import Given, Remark, read

__all__ = ["ConfigError", "Loaded", "Remark", "ServerConfig", "load_config"]

FILE_VARIABLE = "PENSTOCK_CONFIG"
_PREFIX = "PENSTOCK_"
_OTHERS = (
    *("PENSTOCK_SERVER", "PENSTOCK_TOKEN", "PENSTOCK_TLS", "PENSTOCK_CA", "PENSTOCK_CERT", "PENSTOCK_KEY"),
    *("PENSTOCK_DIR", "PENSTOCK_OUTPUT", "PENSTOCK_SEED"),
)
"""Variables that clients and the command line read."""
_KUBERNETES = re.compile(r"PENSTOCK_(\w+_)?(SERVICE_(HOST|PORT)(_\w+)?|PORT_\d+_(TCP|UDP|SCTP)(_\w+)?)")
"""Variables that Kubernetes gives to every pod beside a service called `penstock` or `penstock-…`."""


class ConfigError(InvalidArgument):
    """A configuration that cannot be used; `problems` has everything that is wrong with it, each with its place."""

    def __init__(self, problems: list[Remark]) -> None:
        super().__init__(problems)
        self.problems = problems

    def __str__(self) -> str:
        return ";\n".join(map(str, self.problems))


@dataclass(frozen=True, slots=True)
class Loaded:
    """A configuration, what its author should know, and where each value comes from, by key (`broker.sync`).

    An origin is `default`, a file with its line, the name of an environment variable, or a flag.
    """

    config: ServerConfig
    notices: list[Remark]
    origins: dict[str, str]


def load_config(file: Path | None, environment: Mapping[str, str], flags: Mapping[str, object]) -> Loaded:
    """The configuration from all sources, the later over the earlier; raises one ConfigError with every problem.

    Without `file`, the variable PENSTOCK_CONFIG may name one. Flags go by their names with underscores
    (`native_port`, `broker_sync`, `topic_partitions`); those that are None were not given.
    """
    given: list[Given] = []
    problems: list[Remark] = []
    notices: list[Remark] = []
    path = file or environment.get(FILE_VARIABLE)
    if path:
        contents = ConfigFile(Path(path))
        given += contents.given
        problems += contents.problems
        notices += contents.notices
    _take(_variables(environment), {setting.variable: key for key, setting in SETTINGS.items()}, given, problems)
    written = {f"--{name.replace('_', '-')}": value for name, value in flags.items() if value is not None}
    _take(written, {f"--{setting.flat.replace('_', '-')}": key for key, setting in SETTINGS.items()}, given, problems)
    latest = {item.key: item for item in given}
    config = ServerConfig() if problems else _assemble(latest, problems)
    if problems:
        raise ConfigError(problems)
    return Loaded(config, notices, {key: latest[key].origin if key in latest else "default" for key in SETTINGS})


def _variables(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables that are meant for this configuration."""
    return {
        name: value
        for name, value in environment.items()
        if name.startswith(_PREFIX)
        and name not in (FILE_VARIABLE, *_OTHERS)
        and not _KUBERNETES.fullmatch(name)
        and not (name.endswith("_PORT") and "://" in value)
    }


def _take(source: Mapping[str, object], names: Mapping[str, str], given: list[Given], problems: list[Remark]) -> None:
    """Take what a source of plain names gives; a name is the place of its value."""
    for name, value in source.items():
        if name not in names:
            problems.append(Remark(name, f"there is no such option{suggestion(name, names)}"))
            continue
        try:
            given.append(Given(names[name], read(SETTINGS[names[name]].parse, value), name, name))
        except InvalidArgument as error:
            problems.append(Remark(name, str(error)))


def _assemble(latest: dict[str, Given], problems: list[Remark]) -> ServerConfig:
    """The configuration from options that are fine each for itself, but may not fit together."""
    options: dict[str, dict[str, Any]] = {section: {} for section in SECTIONS}
    for key, item in latest.items():
        options[SETTINGS[key].section][SETTINGS[key].name] = item.value
    broker, config = BrokerConfig(), ServerConfig()
    try:
        broker = BrokerConfig.parse({**options["broker"], "topic_defaults": options["topic_defaults"]})
    except InvalidArgument as error:
        problems.append(_misfit("broker", str(error), latest))
    try:
        config = ServerConfig.parse({**options["server"], "broker": broker})
    except InvalidArgument as error:
        problems.append(_misfit("server", str(error), latest))
    return config


def _misfit(section: str, message: str, latest: dict[str, Given]) -> Remark:
    """A problem between several options: its places are those of the options that the message names."""
    places = [
        item.place
        for key, item in latest.items()
        if SETTINGS[key].section == section and re.search(rf"\b{SETTINGS[key].name}\b", message)
    ]
    return Remark(", ".join(places), message)
