"""The brokers and the store of the compose file: what they are told is taken, and only this machine reaches them."""

from __future__ import annotations

import os
import re
from typing import Any

import pytest
import yaml

from penstock.server.access.starting import check_exposure
from penstock.testing.seaweed import BUCKET
from tests.deploy.harness import DEPLOY, ROOT, config_of, tool

FILE = DEPLOY / "docker" / "compose.yaml"
DOCKERFILE = FILE.with_name("Dockerfile").read_text()
SERVICES: dict[str, dict[str, Any]] = yaml.safe_load(FILE.read_text())["services"]
BROKERS = [name for name in SERVICES if name.startswith("broker")]


def environment(name: str) -> dict[str, str]:
    """What a service is told, with the defaults of variables."""
    return {key: re.sub(r"\$\{\w+:-(.*?)\}", r"\1", value) for key, value in SERVICES[name]["environment"].items()}


def test_it_is_a_compose_file() -> None:
    assert "done" in tool("check-jsonschema", "--builtin-schema", "vendor.compose-spec", FILE)


def test_every_broker_starts_with_what_it_is_told() -> None:
    assert len(BROKERS) == 3
    for name in BROKERS:
        config = config_of({**environment(name), "PENSTOCK_HOST": "0.0.0.0"})
        check_exposure(config)
        assert config.advertise == f"{name}:{config.native_port}"
        assert config.data_dir.startswith(f"s3://{BUCKET}/")
    assert len({config_of(environment(name)).data_dir for name in BROKERS}) == 1


def test_brokers_are_told_of_the_store_what_the_store_is_told() -> None:
    store = environment("store")
    for name in BROKERS:
        assert store.items() <= environment(name).items()
        assert environment(name)["AWS_ENDPOINT_URL"] == "http://store:8333"
    assert re.search(r"^EXPOSE 8333$", DOCKERFILE, re.MULTILINE)


def test_ports_are_open_to_this_machine_alone() -> None:
    ports = [port for service in SERVICES.values() for port in service.get("ports", ())]
    assert len(set(ports)) == len(BROKERS)
    assert all(re.fullmatch(r"127\.0\.0\.1:808\d:8080", port) for port in ports)


def test_images_are_made_here_of_stages_that_there_are() -> None:
    for service in SERVICES.values():
        build = service["build"]
        assert (FILE.parent / build["context"]).resolve() == ROOT
        assert ROOT / build["dockerfile"] == FILE.with_name("Dockerfile")
        assert f" AS {build['target']}\n" in DOCKERFILE


def test_a_broker_has_the_time_that_it_takes_to_hand_its_shards_over() -> None:
    for name in BROKERS:
        assert int(SERVICES[name]["stop_grace_period"].removesuffix("s")) > config_of({}).shutdown_grace + 30


@pytest.mark.skipif(not os.path.exists("/var/run/docker.sock"), reason="no builder of images is here")  # noqa: PTH110
@pytest.mark.parametrize("target", ["server", "store"])
def test_the_image_can_be_built(target: str) -> None:
    tool("docker", "build", "--target", target, "--file", FILE.with_name("Dockerfile"), ROOT)
