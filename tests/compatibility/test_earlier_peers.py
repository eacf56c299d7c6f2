"""A client of 0.1.0 talks to the server of today, and the client of today to a server of 0.1.0.

`v0_1_0.package.tar.xz` is the code of commit 9259d9f (`make_package.py`); it runs in processes of its own. What clients
are told is compared with what the client of 0.1.0 was told by its own server. New fields are left out, and the words of
errors may change; what is told otherwise on purpose is in `_today`.
"""

from __future__ import annotations

import lzma
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.compatibility.conversations import over_http, over_text
from tests.compatibility.earlier import PACKAGE, earlier_server, live_as, todays_server, unpack
from tests.compatibility.make_package import files_of, unpacked

COMMIT = "9259d9f"
OPERATIONS = {
    *("topics", "layout", "create_topic", "configure_topic", "delete_topic", "settle", "retain", "trim", "status"),
    *("create_group", "groups", "group", "seek_group", "reset_group", "checkpoint_group", "delete_group"),
    *("delayed", "cancel_delayed", "reschedule_delayed"),
    *("schedule", "schedules", "pause_schedule", "resume_schedule", "remove_schedule"),
    *("dead_letters", "dead_letter", "redrive", "purge_dead_letters", "replay", "trace", "offset_at"),
    *("seal_stage", "publish_staged", "staged_sequence", "drop_staged", "report_pipeline", "pipelines"),
}
"""Everything that can be called by name on a server of 0.1.0, but for its tokens."""
_ERROR = re.compile(r"[A-Z][A-Za-z]+: .*", re.DOTALL)


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The code of 0.1.0."""
    return unpack(tmp_path_factory.mktemp("package"))


@pytest.fixture(scope="module")
def told(package: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What the client of 0.1.0 was told by its own server."""
    with earlier_server(package, tmp_path_factory.mktemp("own") / "data") as ports:
        found = live_as(package, ports.address, "client")
    assert found["package"] == str(package / "penstock" / "__init__.py")
    assert set(found["called"]) == OPERATIONS
    histories: dict[str, Any] = found["told"]
    return histories


def _today(told: dict[str, Any]) -> dict[str, Any]:
    """What servers of today tell otherwise."""
    trace = [*told["delivering"]["trace of work/1/2"], ["copied", "crew", None, 1, "to rescued/0/0"]]
    return {**told, "delivering": {**told["delivering"], "trace of work/1/2": trace}}  # the copies are new in traces


def comparable(found: Any, expected: Any) -> Any:
    """What was found, without fields that are new, and without the words of errors."""
    if isinstance(found, dict) and isinstance(expected, dict):
        return {name: comparable(found[name], value) for name, value in expected.items() if name in found}
    if isinstance(found, list) and isinstance(expected, list) and len(found) == len(expected):
        return [comparable(one, other) for one, other in zip(found, expected, strict=True)]
    if isinstance(found, str) and isinstance(expected, str) and _ERROR.fullmatch(found) and _ERROR.fullmatch(expected):
        return expected if found.partition(":")[0] == expected.partition(":")[0] else found
    return found


def check_told(found: dict[str, Any], expected: dict[str, Any]) -> None:
    """Every step of every history told the same."""
    assert found.keys() == expected.keys()
    for history, steps in expected.items():
        assert found[history].keys() == steps.keys()
        for label, value in steps.items():
            assert comparable(found[history][label], value) == value, f"{history}: {label}"


@pytest.mark.parametrize("face", ["client", "aio"])
def test_F5_a_client_of_an_earlier_version_is_told_the_same_by_the_server_of_today(
    face: str, package: Path, told: dict[str, Any], tmp_path: Path
) -> None:
    with todays_server(tmp_path / "data") as ports:
        found = live_as(package, ports.address, face)
    assert found["package"] == str(package / "penstock" / "__init__.py")
    check_told(found["told"], _today(told))


@pytest.mark.parametrize("face", ["client", "aio"])
def test_F5_the_client_of_today_is_told_the_same_by_a_server_of_an_earlier_version(
    face: str, package: Path, told: dict[str, Any], tmp_path: Path
) -> None:
    with earlier_server(package, tmp_path / "data") as ports:
        found = live_as(None, ports.address, face)
    assert Path(found["package"]) != package / "penstock" / "__init__.py"
    check_told(found["told"], told)


def test_F5_the_http_and_text_ports_answer_as_those_of_an_earlier_version_did(package: Path, tmp_path: Path) -> None:
    with earlier_server(package, tmp_path / "earlier") as ports:
        by_http, by_text = over_http(ports.http), over_text(ports.line)
    with todays_server(tmp_path / "today") as ports:
        answers = over_http(ports.http)
        assert over_text(ports.line) == by_text
    assert answers.keys() == by_http.keys()
    for label, (status, body) in by_http.items():
        found_status, found_body = answers[label]
        assert (found_status, comparable(found_body, body)) == (status, body), label


def test_the_archive_is_the_code_of_the_commit() -> None:
    try:
        files = files_of(COMMIT)
    except (subprocess.CalledProcessError, FileNotFoundError):
        pytest.skip("this clone has less of the history")
    assert unpacked(lzma.decompress(PACKAGE.read_bytes())) == files
