"""Finds the origin of a table: the one at a server, a bucket, or what a directory is."""

from __future__ import annotations

from penstock.cluster.directory import DIVISION
from penstock.model.errors import InvalidArgument
from penstock.shard.checkpoint_files import COPIES
from penstock.spark.connecting import connected
from penstock.spark.lake.origin import LakeOrigin, is_lake
from penstock.spark.options import ReadOptions, Secrets
from penstock.spark.origins import ArchiveOrigin, DirectoryOrigin, Origin, ServerOrigin
from penstock.spark.paths import path_of
from penstock.storage.buckets import is_bucket


def origin_of(options: ReadOptions) -> Origin:
    """The origin that the options name."""
    return origin_at(options.servers, options.path, options.secrets)


def origin_at(servers: str | None, path: str | None, secrets: Secrets) -> Origin:
    """The origin at a server, on a bucket, or in a directory."""
    if servers is not None:
        return ServerOrigin(connected(servers, secrets))
    assert path is not None
    root = path_of(path)
    if not root.is_dir():
        kind = "nothing at" if is_bucket(path) else "no directory"
        raise InvalidArgument(f"path: there is {kind} {path!r}" + " here" * (not is_bucket(path)))
    if any((root / name).is_file() for name in (*COPIES, DIVISION)):  # topics of a lake are directories
        return DirectoryOrigin(path)
    if is_lake(root):
        return LakeOrigin(path)
    if is_bucket(path):
        raise InvalidArgument(
            f"path: {path} is neither a bucket of brokers (with penstock.json) nor a lake (with <topic>/_log); "
            "archives are read from directories, or through what they are archives of (includeDeleted)"
        )
    return ArchiveOrigin(path)
