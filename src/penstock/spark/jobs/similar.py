"""Error texts that mean the same: first without what differs from case to case, then by the words they share."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from difflib import SequenceMatcher
from functools import reduce
from typing import TYPE_CHECKING

from pyspark.sql import functions as f

if TYPE_CHECKING:
    from pyspark.sql import Column

_PATTERNS = (
    (r"[0-9A-Fa-f]{8}-(?:[0-9A-Fa-f]{4}-){3}[0-9A-Fa-f]{12}", "<id>"),
    (
        r"[0-9]{4}-[0-9]{2}-[0-9]{2}(?:[T ][0-9:.,]*[0-9](?:Z|[+-][0-9]{2}:?[0-9]{2})?)?",
        "<time>",
    ),
    (r"[A-Za-z][A-Za-z0-9+.-]*://[^\s'\"<>]+", "<url>"),
    (r"[A-Za-z0-9._%+-]+@[A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)+", "<mail>"),
    (r"'[^'\n]{0,500}'|\"[^\"\n]{0,500}\"|`[^`\n]{0,500}`", "<text>"),
    (r"(?<![A-Za-z0-9_<])(?:[A-Za-z]:)?(?:[/\\][A-Za-z0-9._@%+~-]+){2,}[/\\]?", "<path>"),
    (r"\b[0-9]{1,3}(?:\.[0-9]{1,3}){3}\b", "<ip>"),
    (r"\b0[xX][0-9A-Fa-f]+\b|\b(?=[0-9A-Fa-f]*[0-9])(?=[0-9A-Fa-f]*[A-Fa-f])[0-9A-Fa-f]{6,}\b", "<hex>"),
    (r"[+-]?\b[0-9]+(?:[.,_][0-9]+)*", "<n>"),
    (r"\s+", " "),
)
"""What differs from case to case, and what stands for it; in this order. Java and Python read them alike."""
_TEMPLATE_MAX = 1000
"""Characters of a text that are looked at."""
_WORD = re.compile(r"<\w+>|\w+|[^\w\s]")
_NEAR = 0.7
"""How much of their words two templates share that are one."""
_GROUPS_MAX = 1000
"""How many groups, those of the most frequent templates, may absorb others."""


def template_of(text: Column) -> Column:
    """A text without its numbers, ids, names in quotes, paths and the like."""
    cut = f.substring(text, 1, _TEMPLATE_MAX)
    return f.trim(reduce(lambda made, pair: f.regexp_replace(made, *pair), _PATTERNS, cut))


def similar_groups(templates: Mapping[str, int]) -> dict[str, str]:
    """For each template the one that stands for it and all that are near: the most frequent of them.

    The same templates with the same counts give the same groups.
    """
    found: dict[str, str] = {}
    groups: list[_Group] = []
    for template in sorted(templates, key=lambda text: (-templates[text], text)):
        group = _Group(template)
        near = next((other for other in groups if other.is_near(group)), None)
        found[template] = template if near is None else near.template
        if near is None and len(groups) < _GROUPS_MAX:
            groups.append(group)
    return found


class _Group:
    """A template, and what is near to it."""

    __slots__ = ("_counted", "_words", "template")

    def __init__(self, template: str) -> None:
        self.template = template
        self._words = _WORD.findall(template)
        seen: Counter[str] = Counter()
        self._counted = set()  # each word with which time it is: so sets tell how many words two templates share
        for word in self._words:
            self._counted.add((word, seen[word]))
            seen[word] += 1

    def is_near(self, other: _Group) -> bool:
        """Whether most of the words are the same, in the same order."""
        least = _NEAR * (len(self._words) + len(other._words)) / 2
        if min(len(self._words), len(other._words)) < least or len(self._counted & other._counted) < least:
            return False
        return SequenceMatcher(None, self._words, other._words, autojunk=False).ratio() >= _NEAR
