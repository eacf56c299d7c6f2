"""Keys in the files of AWS profiles: which of them are used, and what is said of those that cannot be."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.model.errors import InvalidArgument
from penstock.storage.aws_files import keys_in_files

CREDENTIALS = """
[default]
aws_access_key_id = usual
aws_secret_access_key = usual%secret

[shop]
aws_access_key_id=of the shop
aws_secret_access_key=secret
aws_session_token=token
"""
CONFIG = """
[default]
region = eu-central-1

[profile shop]
region = eu-west-1
output = json

[profile role]
role_arn = arn:of:a:role
source_profile = default
"""


@pytest.fixture
def home(tmp_path: Path) -> dict[str, str]:
    (tmp_path / ".aws").mkdir()
    (tmp_path / ".aws" / "credentials").write_text(CREDENTIALS)
    (tmp_path / ".aws" / "config").write_text(CONFIG)
    return {"HOME": str(tmp_path)}


def test_the_default_profile_is_used_where_nothing_else_is_said(home: dict[str, str]) -> None:
    assert keys_in_files(home) == {
        "access_key_id": "usual",
        "secret_access_key": "usual%secret",
        "region": "eu-central-1",
    }


def test_a_profile_may_be_named(home: dict[str, str]) -> None:
    assert keys_in_files({**home, "AWS_PROFILE": "shop"}) == {
        "access_key_id": "of the shop",
        "secret_access_key": "secret",
        "session_token": "token",
        "region": "eu-west-1",
    }


@pytest.mark.parametrize("name", ["AWS_ACCESS_KEY_ID", "AWS_WEB_IDENTITY_TOKEN_FILE"])
def test_the_environment_goes_before_files(home: dict[str, str], name: str) -> None:
    assert keys_in_files({**home, name: "something", "AWS_PROFILE": "nothing"}) == {}


def test_files_may_lie_elsewhere(home: dict[str, str], tmp_path: Path) -> None:
    elsewhere = tmp_path / "keys"
    elsewhere.write_text("[default]\naws_access_key_id=a\naws_secret_access_key=b\n")
    found = keys_in_files({"AWS_SHARED_CREDENTIALS_FILE": str(elsewhere)})
    assert found == {"access_key_id": "a", "secret_access_key": "b"}


def test_without_files_roles_are_left_to_be_tried(tmp_path: Path) -> None:
    assert keys_in_files({"HOME": str(tmp_path)}) == {}
    assert keys_in_files({}) == {}


@pytest.mark.parametrize("profile", ["role", "nobody"])
def test_a_profile_that_was_asked_for_and_has_no_keys_is_an_error(home: dict[str, str], profile: str) -> None:
    with pytest.raises(InvalidArgument, match=profile):
        keys_in_files({**home, "AWS_PROFILE": profile})


@pytest.mark.parametrize("content", [b"aws_secret_access_key = hidden\n", b"[default]\nhidden\n", b"\xff\xfehidden"])
def test_what_is_wrong_with_a_file_is_said_without_what_is_in_it(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "keys"
    path.write_bytes(content)
    with pytest.raises(InvalidArgument) as refused:
        keys_in_files({"AWS_SHARED_CREDENTIALS_FILE": str(path)})
    assert str(path) in str(refused.value) and "hidden" not in str(refused.value)
    assert refused.value.__suppress_context__
