"""The files of requirements/: they pin what pyproject.toml asks for, with hashes, and name no index."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
LOCKS = sorted((ROOT / "requirements").glob("*.txt"))
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())
INSTALLED_TOGETHER = ("build", "dev", "spark")
PYTHONS = ("3.11", "3.12", "3.13")


def entries(lock: Path) -> Iterator[tuple[Requirement, list[str]]]:
    """Each pin with its hashes."""
    for entry in lock.read_text().replace("\\\n", " ").splitlines():
        if entry and not entry.startswith("#"):
            pin, *hashes = re.split(r"\s+--hash=", entry)
            yield Requirement(pin.strip()), hashes


def pins(*names: str, python: str) -> dict[str, str]:
    """The version of each package on Linux, with a version of Python."""
    system = {"python_full_version": f"{python}.0", "python_version": python, "sys_platform": "linux"}
    return {
        canonicalize_name(pin.name): str(pin.specifier).removeprefix("==")
        for name in names
        for pin, _ in entries(ROOT / "requirements" / f"{name}.txt")
        if pin.marker is None or pin.marker.evaluate(system)
    }


def wanted() -> list[Requirement]:
    """What the package, all of its extras and its build ask for."""
    project = PROJECT["project"]
    listed = [*project["dependencies"], *PROJECT["build-system"]["requires"]]
    for extra in project["optional-dependencies"].values():
        listed += extra
    return [Requirement(line) for line in listed]


@pytest.mark.parametrize("lock", LOCKS, ids=lambda lock: lock.stem)
def test_every_pin_is_one_version_with_hashes(lock: Path) -> None:
    found = list(entries(lock))
    assert found
    for pin, hashes in found:
        assert re.fullmatch(r"==[^,*]+", str(pin.specifier)), pin
        assert pin.url is None, pin
        assert hashes and all(re.fullmatch(r"sha256:[0-9a-f]{64}", given) for given in hashes), pin
    assert "://" not in lock.read_text()


@pytest.mark.parametrize("python", PYTHONS)
def test_the_pins_are_what_the_package_asks_for(python: str) -> None:
    pinned = pins(*INSTALLED_TOGETHER, python=python)
    for asked in wanted():
        version = pinned.get(canonicalize_name(asked.name))
        assert version is not None, f"{asked} is not pinned: run `make lock`"
        assert asked.specifier.contains(version), f"{asked} is pinned to {version}: run `make lock`"


@pytest.mark.parametrize("python", PYTHONS)
def test_every_group_of_dependencies_is_pinned_in_a_file_of_its_name(python: str) -> None:
    for group, listed in PROJECT["dependency-groups"].items():
        pinned = pins(group, python=python)
        for asked in map(Requirement, listed):
            assert asked.specifier.contains(pinned[canonicalize_name(asked.name)]), f"{asked}: run `make lock`"


def test_what_is_subclassed_has_an_upper_bound() -> None:
    bounded = {asked.name for asked in wanted() if any(part.operator == "<" for part in asked.specifier)}
    assert bounded >= {"httptools", "litestar", "pyspark", "pytest-xdist", "uvicorn", "websockets"}
