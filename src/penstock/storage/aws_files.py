"""Keys in the files that the tools of AWS keep, `~/.aws/credentials` and `~/.aws/config`, by the name of a profile.

obstore takes keys from the environment and from roles, and knows no files.
"""

from __future__ import annotations

import configparser
from collections.abc import Mapping
from pathlib import Path

from penstock.model.errors import InvalidArgument

_FILES = {"AWS_SHARED_CREDENTIALS_FILE": "credentials", "AWS_CONFIG_FILE": "config"}
"""The variables that name them, and what they are called in `~/.aws`."""
_KEYS = {
    "aws_access_key_id": "access_key_id",
    "aws_secret_access_key": "secret_access_key",
    "aws_session_token": "session_token",
    "region": "region",
}
"""What is read, and what obstore calls it."""
_ELSEWHERE = ("AWS_ACCESS_KEY_ID", "AWS_WEB_IDENTITY_TOKEN_FILE")
_BYTES_MAX = 1 << 20


def keys_in_files(environment: Mapping[str, str]) -> dict[str, str]:
    """The keys of AWS_PROFILE, or of the profile `default`, and its region; nothing where the environment has keys.

    A profile that was asked for and has no keys raises InvalidArgument.
    """
    if any(environment.get(name) for name in _ELSEWHERE):
        return {}
    profile = environment.get("AWS_PROFILE") or "default"
    found: dict[str, str] = {}
    for variable, usual in _FILES.items():
        named = environment.get(variable)
        home = environment.get("HOME")
        if named or home:
            path = Path(named) if named else Path(home or "") / ".aws" / usual
            section = profile if usual == "credentials" or profile == "default" else f"profile {profile}"
            found = {**_read(path, section), **found}
    if {"access_key_id", "secret_access_key"} <= found.keys():
        return found
    if environment.get("AWS_PROFILE"):
        raise InvalidArgument(
            f"the profile {profile!r} (AWS_PROFILE) has no keys in its files: set AWS_ACCESS_KEY_ID and "
            "AWS_SECRET_ACCESS_KEY, for roles and logins of profiles are not followed"
        )
    return {name: value for name, value in found.items() if name == "region"}


def _read(path: Path, section: str) -> dict[str, str]:
    """What a section of a file says; nothing of what is wrong with it, for there are secrets in it."""
    parser = configparser.ConfigParser(interpolation=None, strict=False, default_section="")
    try:
        with path.open(encoding="utf-8") as file:
            parser.read_string(file.read(_BYTES_MAX))
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        return {}
    except (configparser.Error, UnicodeDecodeError):
        raise InvalidArgument(f"{path} cannot be read: it is no file of AWS profiles") from None
    if not parser.has_section(section):
        return {}
    return {name: parser[section][key] for key, name in _KEYS.items() if parser[section].get(key)}
