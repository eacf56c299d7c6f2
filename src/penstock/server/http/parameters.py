"""Parameters that several routes have."""

from __future__ import annotations

import re
from typing import Annotated

from litestar.params import Parameter

from penstock.model.errors import InvalidArgument
from penstock.model.units import parse_time_us
from penstock.server.http.bodies import Encoding
from penstock.server.http.merging import LIMIT_MAX, SKIP_MAX

_NUMBER = re.compile(r"\d{1,12}(\.\d{1,9})?", re.ASCII)
NUMBER_MAX = 10**18 - 1

Topic = Annotated[str, Parameter(description="The name of a topic.")]
Partition = Annotated[int, Parameter(ge=0, le=NUMBER_MAX, description="The number of a partition, from 0.")]
Offset = Annotated[int, Parameter(ge=0, le=NUMBER_MAX, description="An offset, from 0.")]
Limit = Annotated[int, Parameter(ge=1, le=LIMIT_MAX, description="How many at most.")]
Skip = Annotated[int, Parameter(ge=0, le=SKIP_MAX, description="How many to leave out before them.")]
Search = Annotated[
    str, Parameter(max_length=200, description="A part of the name, or a pattern with `*`; in capitals or not.")
]
MaybePartition = Annotated[
    int | None, Parameter(ge=0, le=NUMBER_MAX, description="Only this partition; all if it is not given.")
]
MaybeOffset = Annotated[int | None, Parameter(ge=0, le=NUMBER_MAX, description="From this offset on.")]
MaybeTopic = Annotated[str | None, Parameter(description="Only this topic.")]
Cursor = Annotated[str | None, Parameter(max_length=300, description="Where to go on: as the last page gave it.")]
AsEncoded = Annotated[Encoding | None, Parameter(description="`base64` for values as base64 in any case.")]


def time_us(name: str, text: str | None) -> int | None:
    """A time of a query: ISO 8601, a date, or seconds since 1970."""
    if text is None:
        return None
    if _NUMBER.fullmatch(text):
        return parse_time_us(float(text))
    try:
        before, space, zone = text.rpartition(" ")  # a plus sign that was not encoded
        return parse_time_us(f"{before}+{zone}" if space and len(zone) <= 5 else text)
    except InvalidArgument:
        raise InvalidArgument(
            f"{name}: {text!r:.80} is not a point in time: give ISO 8601 text with a zone, such as "
            "'2026-01-31T12:00:00Z', a date such as '2026-01-31', or seconds since 1970"
        ) from None
