"""Buckets of S3 and of what speaks like it, by obstore, which is asked to do each request once.

It would repeat requests that failed, and then cannot tell whether a create met an object of somebody else, of another
request under way, or its own first attempt. So it does not, and whoever creates looks what is there.

Where a bucket is, and who asks, is taken from the environment, the files and the roles that the tools of its maker
use (`AWS_ENDPOINT_URL`, `AWS_REGION`, `AWS_ACCESS_KEY_ID`, …), and never told to anybody.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, TypeVar, cast
from urllib.parse import unquote, urlsplit

from penstock.model.errors import InvalidArgument
from penstock.storage.aws_files import keys_in_files
from penstock.storage.counted import BucketMeter, CountedObjects
from penstock.storage.object_directory import DirectoryObjects
from penstock.storage.objects import ObjectStore, Outcome, Range, StoreUnavailable, all_of

if TYPE_CHECKING:
    from obstore.store import S3Config, S3Store

_TIMEOUT_S, _CONNECT_TIMEOUT_S = 20.0, 3.0
_LARGE_BYTES, _LARGE_TIMEOUT_S = 8 << 20, 300.0  # a bundle on a slow line takes its time, and nobody waits for it
_AT_ONCE = 32
_TOLD_MAX = 300
_NO_BUCKET = "NoSuchBucket"
_BEYOND = "status code: 416"  # the object ends before
_REGION = "us-east-1"  # where none is given: other stores than S3 have none
T = TypeVar("T")


def is_bucket(address: str) -> bool:
    """Whether this is the address of a bucket, and no path."""
    return address.startswith(("s3://", "file://"))


def open_objects(address: str, meter: BucketMeter | None = None, timeout_s: float = _TIMEOUT_S) -> ObjectStore:
    """The bucket, or the place in one, of an address: `s3://bucket/place` or `file:///directory`.

    `meter`: hears of every request. `timeout_s`: how long one may take before its outcome is not known; sending an
    object of more than 8 MiB may take five minutes.
    """
    objects = _open(address, timeout_s)
    return objects if meter is None else CountedObjects(objects, meter)


def _open(address: str, timeout_s: float) -> ObjectStore:
    parts = urlsplit(address)
    place = unquote(parts.path).strip("/")
    if parts.scheme == "file" and not parts.netloc and place:
        return DirectoryObjects(f"/{place}")
    if parts.scheme != "s3" or not parts.netloc:
        raise InvalidArgument(f"{address!r} is no address of a bucket: give s3://bucket/place or file:///directory")
    store, patient = _s3(parts.netloc, timeout_s), _s3(parts.netloc, max(timeout_s, _LARGE_TIMEOUT_S))
    return BucketObjects(store, patient, f"s3://{parts.netloc}", f"{place}/" if place else "")


def _s3(bucket: str, timeout_s: float) -> S3Store:
    try:
        from obstore.store import S3Store
    except ImportError as error:
        raise InvalidArgument("a bucket needs obstore: install penstock[bucket]") from error
    endpoint = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL") or ""
    keys = keys_in_files(os.environ)
    region = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION") or keys.get("region") or _REGION
    return S3Store(
        bucket,
        config=cast("S3Config", {**keys, "region": region}),
        client_options={
            "timeout": timedelta(seconds=timeout_s),
            "connect_timeout": timedelta(seconds=min(_CONNECT_TIMEOUT_S, timeout_s)),
            "allow_http": endpoint.startswith("http://"),
        },
        retry_config={"max_retries": 0},
    )


class BucketObjects:
    """A place in a bucket."""

    def __init__(
        self, store: S3Store, patient: S3Store, bucket: str, prefix: str, threads: ThreadPoolExecutor | None = None
    ) -> None:
        """`patient`: the same one, for sending what is large; `bucket`: its address, for people."""
        import obstore
        import obstore.exceptions

        self._obstore, self._errors = obstore, obstore.exceptions
        self._store, self._patient, self._bucket, self._prefix = store, patient, bucket, prefix
        self._threads = threads or ThreadPoolExecutor(_AT_ONCE, "penstock-bucket")
        self._process = os.getpid()

    @property
    def address(self) -> str:
        return f"{self._bucket}/{self._prefix}".rstrip("/")

    def create(self, name: str, data: bytes) -> Outcome:
        try:
            self._ask(lambda: self._obstore.put(self._for(data), self._prefix + name, data, mode="create"))
        except (self._errors.AlreadyExistsError, self._errors.PreconditionError):
            return Outcome.EXISTS
        except StoreUnavailable:
            return Outcome.UNKNOWN
        return Outcome.DONE

    def put(self, name: str, data: bytes) -> None:
        self._ask(lambda: self._obstore.put(self._for(data), self._prefix + name, data))

    def _for(self, data: bytes) -> S3Store:
        return self._patient if len(data) > _LARGE_BYTES else self._store

    def get(self, name: str) -> bytes | None:
        try:
            return self._ask(lambda: bytes(self._obstore.get(self._store, self._prefix + name).bytes()))
        except FileNotFoundError:
            return None

    def get_many(self, names: Sequence[str]) -> list[bytes | None]:
        return self._at_once([partial(self.get, name) for name in names])

    def get_range(self, name: str, start: int, length: int) -> bytes | None:
        path = self._prefix + name
        try:
            return self._ask(lambda: bytes(self._obstore.get_range(self._store, path, start=start, length=length)))
        except FileNotFoundError:
            return None
        except StoreUnavailable as error:
            if _BEYOND in str(error):
                return b""
            raise

    def get_ranges(self, ranges: Sequence[Range]) -> list[bytes | None]:
        return self._at_once([partial(self.get_range, *one) for one in ranges])

    def _at_once(self, requests: Sequence[Callable[[], bytes | None]]) -> list[bytes | None]:
        if len(requests) < 2:
            return [request() for request in requests]
        return all_of(list(self._threads.map(_answer, requests)))

    def list_folder(self, prefix: str) -> list[str]:
        whole = self._prefix + prefix
        found = self._ask(lambda: self._obstore.list_with_delimiter(self._store, whole))
        paths = [*found["common_prefixes"], *(one["path"] for one in found["objects"])]
        return sorted(str(path).removeprefix(whole).rstrip("/") for path in paths)

    def list(self, prefix: str, after: str = "") -> list[str]:
        whole, offset = self._prefix + prefix, self._prefix + after if after else None
        found = self._ask(lambda: self._obstore.list(self._store, whole, offset=offset).collect())
        names = [str(one["path"]).removeprefix(self._prefix) for one in found]
        return sorted(name for name in names if name.startswith(prefix) and name > after)

    def delete(self, names: Sequence[str]) -> None:
        if names:
            self._ask(lambda: self._obstore.delete(self._store, [self._prefix + name for name in names]))

    def part(self, prefix: str) -> BucketObjects:
        return BucketObjects(self._store, self._patient, self._bucket, self._prefix + prefix, self._threads)

    def _ask(self, request: Callable[[], T]) -> T:
        """The answer to a request; errors as the seam has them, but for those of a create."""
        if os.getpid() != self._process:
            raise RuntimeError("a process that was forked cannot use the bucket of its parent: spawn it")
        try:
            return request()
        except (self._errors.AlreadyExistsError, self._errors.PreconditionError):
            raise
        except (self._errors.NotFoundError, FileNotFoundError) as error:
            self._check_there(error)
            raise FileNotFoundError(errno.ENOENT, f"{self.address}: {_told(error)}") from error
        except (self._errors.PermissionDeniedError, self._errors.UnauthenticatedError) as error:
            raise PermissionError(errno.EACCES, f"{self.address}: {_told(error)}") from error
        except self._errors.BaseError as error:
            self._check_there(error)
            raise StoreUnavailable(errno.EIO, f"{self.address}: {_told(error)}") from error

    def _check_there(self, error: Exception) -> None:
        """Raise InvalidArgument if the bucket itself is missing: nobody can be told that its objects are not there."""
        if _NO_BUCKET in str(error):
            raise InvalidArgument(f"{self._bucket}: there is no such bucket: make it first") from error


def _answer(request: Callable[[], bytes | None]) -> bytes | StoreUnavailable | None:
    try:
        return request()
    except StoreUnavailable as error:
        return error


def _told(error: Exception) -> str:
    """What a store says of a failure, in a line."""
    return " ".join(str(error).split())[:_TOLD_MAX]
