"""How long a failed message waits: doubling, with a jitter that depends on nothing but the message and the try."""

from __future__ import annotations

from zlib import crc32

_JITTER = 0.2


def retry_delay_us(first_s: float, longest_s: float, failures: int, token: str) -> int:
    """The wait after so many failures: up to 20 % less than doubling says, so that not all come back at once."""
    whole_s = min(longest_s, first_s * 2.0 ** min(failures - 1, 60))
    part = crc32(f"{token}/{failures}".encode()) / 0xFFFFFFFF
    return round(whole_s * (1 - _JITTER * part) * 1_000_000)
