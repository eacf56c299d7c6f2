"""Runs of offsets, many at a time: events speak of runs, and so does everything that is made of them.

A layer is a list of runs that do not overlap, each with a number. Several layers are laid over each other by a sum that
runs along the offsets; between two borders nothing changes, so that a piece stands for all its messages at once.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

_NOTHING = pa.array([], pa.int64())


class Runs(NamedTuple):
    """Runs, from `low` to before `high`, and the row of a table that each is about."""

    low: pa.Array
    high: pa.Array
    row: pa.Array

    @property
    def lengths(self) -> pa.Array:
        """How many offsets each has."""
        return pc.subtract(self.high, self.low)

    def where(self, mask: pa.Array) -> Runs:
        """The runs that a mask chooses."""
        return Runs(*(column.filter(mask) for column in self))

    def clipped(self, low: int, high: int) -> Runs:
        """What lies from `low` to before `high`."""
        cut = Runs(pc.max_element_wise(self.low, low), pc.min_element_wise(self.high, high), self.row)
        return cut.where(pc.less(cut.low, cut.high))


NO_RUNS = Runs(_NOTHING, _NOTHING, _NOTHING)


def flat(column: pa.ChunkedArray) -> pa.Array:
    """A column in one piece."""
    found = column.combine_chunks()
    return found if isinstance(found, pa.Array) else pa.concat_arrays(found.chunks)


def joined(many: list[Runs]) -> Runs:
    """Several lists of runs as one."""
    return Runs(*(pa.concat_arrays(list(columns)) for columns in zip(*many, strict=True)))


def runs_of(events: pa.Table) -> Runs:
    """The runs that events speak of; `row` is the number of the event in the table."""
    rows = pa.arange(0, len(events))
    first, last, offsets = (events.column(name).combine_chunks() for name in ("offset", "last", "offsets"))
    plain = pc.and_(pc.is_null(offsets), pc.greater(events.column("count").combine_chunks(), 0))
    whole = Runs(first, pc.add(last, 1), rows).where(plain)
    scattered = rows.filter(pc.is_valid(offsets))
    if not len(scattered):
        return whole
    lists = offsets.drop_null()
    return joined([whole, islands(pc.list_flatten(lists), scattered.take(pc.list_parent_indices(lists)))])


def islands(places: pa.Array, rows: pa.Array) -> Runs:
    """Offsets, ascending for each row, as runs."""
    if not len(places):
        return NO_RUNS
    follows = pc.and_(pc.equal(pc.pairwise_diff(places), 1), pc.equal(pc.pairwise_diff(rows), 0))
    begins, ends = stretches(pc.invert(follows))
    low = places.take(begins)
    return Runs(low, pc.add(low, pc.subtract(ends, begins)), rows.take(begins))


def stretches(changes: pa.Array) -> tuple[pa.Array, pa.Array]:
    """From where to before where rows are alike, given which of them differ from the one before; null is the first."""
    begins = pc.cast(pc.indices_nonzero(pc.fill_null(changes, True)), pa.int64())  # noqa: FBT003
    ends = pa.concat_arrays([begins.slice(1), pa.array([len(changes)], pa.int64())]) if len(changes) else _NOTHING
    return begins, ends


def exploded(runs: Runs) -> tuple[pa.Array, pa.Array]:
    """Every offset of every run, and its row."""
    lengths = runs.lengths
    ends = pc.cumulative_sum(lengths)
    total = ends[-1].as_py() if len(ends) else 0
    if not total:
        return _NOTHING, _NOTHING
    starts = pc.subtract(ends, lengths)
    lists = pa.LargeListArray.from_arrays(
        pa.concat_arrays([starts, pa.array([total], pa.int64())]), pa.arange(0, total)
    )
    parents = pc.list_parent_indices(lists)
    inside = pc.subtract(pa.arange(0, total), starts.take(parents))
    return pc.add(runs.low.take(parents), inside), runs.row.take(parents)


def layer(runs: Runs, *, last: bool = False) -> Runs:
    """Runs that do not overlap: where some do, each offset has the lowest row, or the highest."""
    order = pc.array_sort_indices(runs.low)
    in_order = Runs(*(column.take(order) for column in runs))
    if len(order) < 2 or not pc.any(pc.less(in_order.low.slice(1), in_order.high.slice(0, len(order) - 1))).as_py():
        return in_order
    places, rows = exploded(in_order)
    table = pa.table({"place": places, "row": rows}).group_by("place").aggregate([("row", "max" if last else "min")])
    table = table.sort_by("place")
    chosen = table.column(f"row_{'max' if last else 'min'}").combine_chunks()
    return islands(table.column("place").combine_chunks(), chosen)


def laid_over(layers: Mapping[str, Runs]) -> pa.Table:
    """The pieces of all layers: `low`, `high`, and for each layer its row there, or null."""
    places, steps, owners = [], [], []
    for number, runs in enumerate(layers.values()):
        marks = pc.add(runs.row, 1)  # so that nothing is 0
        places += [runs.low, runs.high]
        steps += [marks, pc.negate(marks)]
        owners += [pa.repeat(pa.scalar(number, pa.int32()), 2 * len(runs.low))]
    place, step, owner = (pa.concat_arrays(parts) if parts else _NOTHING for parts in (places, steps, owners))
    if not len(place):
        return pa.table(dict.fromkeys(("low", "high", *layers), _NOTHING))
    order = pc.array_sort_indices(place)
    place, step, owner = place.take(order), step.take(order), owner.take(order)
    behind = pa.concat_arrays([place.slice(1), pa.array([None], pa.int64())])
    kept = pc.fill_null(pc.less(place, behind), False)  # noqa: FBT003 - the last border at a place knows all of them
    found = {"low": place.filter(kept), "high": behind.filter(kept)}
    for number, name in enumerate(layers):
        marks = pc.cumulative_sum(pc.if_else(pc.equal(owner, number), step, 0)).filter(kept)
        found[name] = pc.if_else(pc.greater(marks, 0), pc.subtract(marks, 1), None)
    return pa.table(found)
