"""The metrics of several processes as one page: what has the same labels is told together, by a rule."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Sequence

from penstock.server.metrics.catalogue import METRICS

_RULES: dict[str, Callable[[float, float], float]] = {"sum": operator.add, "max": max, "min": min}
_KINDS = {name.removesuffix("_total"): metric for name, metric in METRICS.items()}


def merge_pages(pages: Sequence[bytes]) -> bytes:
    """Pages in the text format of Prometheus as one; all of them have the families of the catalogue, in its order."""
    whole: list[str] = []
    for families in zip(*map(_families, pages), strict=True):
        name, head, _ = families[0]
        rule = _RULES[_KINDS[name.removesuffix("_total")].together]
        values: dict[str, float] = {}
        for _, _, samples in families:
            for labelled, value in samples:
                values[labelled] = rule(values[labelled], value) if labelled in values else value
        whole += head
        whole += [f"{labelled} {value!r}" for labelled, value in values.items()]
    return "\n".join([*whole, ""]).encode()


def _families(page: bytes) -> Iterator[tuple[str, list[str], list[tuple[str, float]]]]:
    """The name, the head and the samples of each family."""
    name, head, samples = "", list[str](), list[tuple[str, float]]()
    for line in page.decode().splitlines():
        if line.startswith("# HELP "):
            if head:
                yield name, head, samples
            name, head, samples = line.split(" ", 3)[2], [line], []
        elif line.startswith("#"):
            head.append(line)
        else:
            labelled, _, value = line.rpartition(" ")
            samples.append((labelled, float(value)))
    if head:
        yield name, head, samples
