"""Text from elsewhere as a terminal may get it: what the terminal would obey, hide or reorder is written out."""

from __future__ import annotations

import unicodedata

LAYOUT = "\n\t"
"""What may stay in text of several lines."""


def visible(text: str, keep: str = "") -> str:
    r"""The text with control characters, marks of direction and the like as escapes: `\x1b`, `\r`, `\u202e`."""
    if text.isprintable():
        return text
    return "".join(char if _is_shown(char) or char in keep else repr(char)[1:-1] for char in text)


def visible_json(text: str) -> str:
    """JSON that says the same, with escapes that JSON knows."""
    if text.isprintable():
        return text
    return "".join(char if _is_shown(char) or char in LAYOUT else _json_escape(char) for char in text)


def _is_shown(char: str) -> bool:
    return char.isprintable() or unicodedata.category(char) == "Zs"  # spaces of all widths do no harm


def _json_escape(char: str) -> str:
    units = char.encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{units[start : start + 4]}" for start in range(0, len(units), 4))
