"""Files that say how a server is run: they set what there is, and nothing else."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from penstock.server.access.starting import StartRefused, check_exposure
from penstock.server.config import FILE_VARIABLE
from penstock.server.http.description import description
from penstock.server.settings.table import SETTINGS
from tests.deploy.harness import DEPLOY, ROOT, config_of, tool

DOCKERFILE = DEPLOY / "docker" / "Dockerfile"
UNIT = DEPLOY / "systemd" / "penstock.service"
TEXTS = sorted(path for path in DEPLOY.rglob("*") if path.is_file())


@pytest.mark.parametrize("path", TEXTS, ids=lambda path: str(path.relative_to(DEPLOY)))
def test_every_variable_that_is_named_is_read(path: Path) -> None:
    named = set(re.findall(r"\bPENSTOCK_[A-Z0-9_]+\b", path.read_text()))
    assert named - {setting.variable for setting in SETTINGS.values()} - {FILE_VARIABLE} == set()


# The image.


def instructions(word: str) -> list[str]:
    """What follows a word of the Dockerfile, with lines that go on joined."""
    text = DOCKERFILE.read_text().replace("\\\n", " ")
    return re.findall(rf"^\s*{word} (.+)$", text, re.MULTILINE)


def test_hadolint_finds_nothing_wrong_with_the_dockerfile() -> None:
    assert tool("hadolint", DOCKERFILE) == ""


def test_the_image_is_made_of_files_that_are_sent_to_the_builder() -> None:
    sent = {
        line[1:] for line in DOCKERFILE.with_name("Dockerfile.dockerignore").read_text().splitlines() if line[0] == "!"
    }
    copied = [word for line in instructions("COPY") if "--from" not in line for word in line.split()[:-1]]
    assert {path.partition("/")[0] for path in copied} == sent
    assert all((ROOT / path).exists() for path in copied)
    built = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert {built["project"]["readme"], *built["project"]["license-files"]} <= sent


def test_the_server_of_the_image_listens_once_it_is_told_who_may_use_it() -> None:
    line = instructions("ENV")[-1]
    environment = dict(pair.split("=") for pair in line.split())
    with pytest.raises(StartRefused):
        check_exposure(config_of(environment))
    for said in ({"PENSTOCK_AUTH": "tokens"}, {"PENSTOCK_INSECURE": "yes"}):
        check_exposure(config_of({**environment, **said}))
    config = config_of(environment)
    assert [config.native_port, config.http_port, config.line_port] == list(
        map(int, instructions("EXPOSE")[-1].split())
    )


def test_the_image_is_asked_for_its_health_at_a_route_that_there_is() -> None:
    asked = re.findall(r"127\.0\.0\.1:8080(/\w+)", DOCKERFILE.read_text())
    assert asked and all(f'"{route}":' in description().decode() for route in asked)


def test_neither_image_runs_as_root() -> None:
    stages = re.split(r"^FROM .* AS ", DOCKERFILE.read_text(), flags=re.MULTILINE)
    ends = {stage.split()[0]: re.findall(r"^USER (\d+):\d+$", stage, re.MULTILINE) for stage in stages[1:]}
    assert ends["store"] == ends["server"] == ["10001"]


def test_the_store_of_the_image_is_pinned() -> None:
    (name,) = re.findall(r"\^(\S+)==", DOCKERFILE.read_text())
    pinned = (ROOT / "requirements/dev.txt").read_text()
    assert re.search(rf"^{name}==\S+ \\\n(    --hash=sha256:\w+ \\\n)*    --hash=sha256:\w+\n", pinned, re.MULTILINE)


# systemd.


def test_systemd_finds_nothing_wrong_with_the_unit(tmp_path: Path) -> None:
    unit = tmp_path / UNIT.name
    unit.write_text(UNIT.read_text().replace("/opt/penstock/bin/penstock", "/bin/true"))
    assert tool("systemd-analyze", "verify", unit) == ""


def test_the_unit_gives_a_server_the_time_that_it_takes_to_stop() -> None:
    text = UNIT.read_text()
    assert float(re.findall(r"^TimeoutStopSec=(\d+)$", text, re.MULTILINE)[0]) > config_of({}).shutdown_grace + 30
    assert int(re.findall(r"^LimitNOFILE=(\d+)$", text, re.MULTILINE)[0]) > config_of({}).max_connections


def test_the_page_shows_the_unit_as_it_is() -> None:
    page = (ROOT / "docs/how-to/run-a-server.md").read_text()
    assert re.findall(r"```ini\n(.*?)```", page, re.DOTALL) == [UNIT.read_text()]


@pytest.mark.parametrize("is_on", ["first", "second"])
def test_both_environments_of_the_unit_are_taken(is_on: str) -> None:
    first, second = UNIT.with_name("environment").read_text().split("\n# Or ")
    lines = (first if is_on == "first" else second.replace("\n#", "\n")).splitlines()
    environment = dict(line.split("=", 1) for line in lines if re.match(r"[A-Z_]+=", line))
    check_exposure(config_of(environment))
    assert environment["PENSTOCK_DATA_DIR"].startswith("/var/lib/penstock" if is_on == "first" else "s3://")
