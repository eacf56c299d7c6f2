"""`penstock check`: is a data directory whole, and if not, what is damaged, what is lost, what can be done."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict
from datetime import UTC, datetime
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.errors import CommandError
from penstock.cli.output import show_json
from penstock.cli.target import flaw_of
from penstock.cli.terminal import echo, new_console
from penstock.model.errors import DirectoryLocked, PenstockError
from penstock.model.units import format_size
from penstock.storage.buckets import is_bucket

if TYPE_CHECKING:
    from rich.console import Console

    from penstock.shard.checking import CheckReport, Problem, RepairReport
    from penstock.storage import FileStorage

_SHOWN_MAX = 10


class Output(StrEnum):
    """How to show what was found."""

    TEXT = "text"
    JSON = "json"


def check(
    directory: Annotated[
        str,
        typer.Argument(metavar="DIR", help="The data directory, or the address of a bucket.", show_default=False),
    ],
    repair: Annotated[bool, typer.Option("--repair", help="Set damaged files aside and make the rest usable.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Repair without asking first.")] = False,
    output: Annotated[Output, typer.Option("--output", "-o", help="For people, or for machines.")] = Output.TEXT,
) -> None:
    """Read every byte that a data directory needs, and tell what is damaged.

    Nothing is changed without `--repair`, and no broker may have the directory open. A torn tail, the rest of a
    write that was never acknowledged, is no damage.

    A bucket may be in use. Its chains are checked too: every epoch must end with its seal, and no piece may be missing.
    It is not repaired.

    A repair first copies each damaged file to `DIR/quarantine/<time>/`. Then it steps over what is damaged in the
    journal, takes damaged segments out of the checkpoint, and tells every loss. All other messages stay.

    For example:

        penstock check ./data
        penstock check ./data -o json
        penstock check ./data --repair
        penstock check s3://bucket/orders

    Exit codes:

    * 0: the directory is whole, or was repaired and nothing is lost

    * 1: there are problems, or it was repaired and something is lost

    * 2: wrong usage, or the directory cannot be read
    """
    if repair and not yes and (output is Output.JSON or not sys.stdin.isatty()):
        raise CommandError("--repair changes files and asks first", "add --yes to repair without being asked")
    if is_bucket(directory) and repair:
        raise CommandError("a bucket is not repaired", "restore it from a copy, which `penstock copy` makes")
    try:
        if is_bucket(directory):
            code = _run_bucket(directory, output)
        else:
            with _locked(Path(directory)) as storage:
                code = _run_all(Path(directory), storage, repair, yes, output)
    except (PenstockError, OSError) as error:
        what = "bucket's name and permissions" if is_bucket(directory) else "directory's permissions and at the disk"
        hint = f"look at the {what}, then check again"
        raise CommandError(str(error), hint) from None
    raise typer.Exit(code)


def _run_all(directory: Path, storage: FileStorage, repair: bool, yes: bool, output: Output) -> int:
    """Check the directory, or each of the shards that it is divided into; the worst exit code."""
    from penstock.cluster.directory import part_name, shards_of

    count = shards_of(storage)
    if count is None:
        code, answer = _run(directory, storage, repair, yes, output)
    else:
        codes, answers = [], []
        for number in range(count):
            if output is Output.TEXT:
                echo(f"shard {number} of {count}")
            place = directory / part_name(number)
            with _locked(place, base=directory) as part:
                code, answer = _run(place, part, repair, yes, output)
            codes.append(code)
            answers.append(answer)
        code, answer = max(codes), {"directory": str(directory), "shards": answers}
    if output is Output.JSON:
        show_json(answer)
    return code


def _run_bucket(address: str, output: Output) -> int:
    """Check each shard of a bucket; the worst exit code."""
    from penstock.cluster.directory import part_name, shards_of
    from penstock.journal.bucket_reading import open_root_for_reading, open_to_read
    from penstock.shard.checking import check_bucket

    root, objects = open_root_for_reading(address), open_to_read(address)
    root.check_readable()
    count = shards_of(root) or 0
    codes, answers, console = [0], [], new_console()
    for number in range(count):
        if output is Output.TEXT:
            echo(f"shard {number} of {count}")
        place = f"{part_name(number)}/"
        found = _look(partial(check_bucket, objects.part(place), number, objects), output)
        verdict, code = _verdict(found, None)
        if output is Output.TEXT:
            _show(console, found)
            _show_advice(console, _advice(address, verdict, found, repair=False), code)
        codes.append(code)
        answers.append(_answer(f"{address}/{part_name(number)}", verdict, found, None, found))
    if output is Output.JSON:
        show_json({"directory": address, "shards": answers})
    return max(codes)


@contextlib.contextmanager
def _locked(directory: Path, base: Path | None = None) -> Iterator[FileStorage]:
    """The storage of a directory that is there and that nobody else uses, while it is checked."""
    from penstock.storage import FileStorage

    class Existing(FileStorage):
        """Looks at directories and makes none."""

        def elsewhere(self, path: str) -> FileStorage:
            os.listdir(os.path.join(self.base_path, path))
            return super().elsewhere(path)

    flaw = flaw_of(directory)
    if flaw is not None:
        raise CommandError(flaw, "give the directory that the broker was opened with")
    storage = Existing(directory, base=base)
    try:
        storage.lock()
    except DirectoryLocked as error:
        raise CommandError(
            str(error).partition(": a data directory")[0],
            "a check needs the directory for itself: close that broker first",
        ) from None
    try:
        yield storage
    finally:
        storage.close()


def _run(
    directory: Path, storage: FileStorage, repair: bool, yes: bool, output: Output
) -> tuple[int, dict[str, object]]:
    """Check, and repair if that is wanted; the exit code, and what there is to say."""
    from penstock.shard.checking import check_directory, repair_directory

    console = new_console()
    look = partial(check_directory, storage)
    found = _look(look, output)
    if output is Output.TEXT:
        _show(console, found)
    repaired: RepairReport | None = None
    left = found
    if repair and any(problem.repairable for problem in found.problems):
        if not yes:
            typer.confirm("Repair it now?", abort=True)
        repaired = repair_directory(storage, found, datetime.now(UTC))
        left = _look(look, output)
        if output is Output.TEXT:
            _show_repair(console, directory, repaired, left)
    verdict, code = _verdict(left, repaired)
    if output is Output.TEXT:
        _show_advice(console, _advice(str(directory), verdict, left, repair), code)
    return code, _answer(str(directory), verdict, found, repaired, left)


def _look(check: Callable[[Callable[[str, int, int], None]], CheckReport], output: Output) -> CheckReport:
    """Check, with a bar on the terminal while it takes long."""
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

    terminal = new_console(stderr=True)
    name = TextColumn("{task.description}", markup=False)
    quiet = output is Output.JSON or not terminal.is_terminal
    with Progress(
        name, BarColumn(), TaskProgressColumn(), TimeRemainingColumn(), console=terminal, transient=True, disable=quiet
    ) as progress:
        task = progress.add_task("checking")
        return check(lambda name, done, total: progress.update(task, description=name, completed=done, total=total))


def _verdict(left: CheckReport, repaired: RepairReport | None) -> tuple[str, int]:
    if left.problems:
        return "damaged", 1
    if repaired is None:
        return "whole", 0
    return ("repaired with losses", 1) if repaired.losses else ("repaired", 0)


def _show_advice(console: Console, advice: str, code: int) -> None:
    console.print(advice, style="green" if code == 0 else "red", markup=False, soft_wrap=True)


def _advice(directory: str, verdict: str, left: CheckReport, repair: bool) -> str:
    """The last line: the verdict, and what to do now."""
    if verdict == "whole":
        return "whole: every byte that is needed is as it was written"
    if verdict == "repaired":
        return "repaired: nothing is lost, and the directory can be opened"
    if verdict == "repaired with losses":
        return "repaired with losses: everything else is there, and the directory can be opened"
    count = f"{len(left.problems)} problem{'s' if len(left.problems) > 1 else ''}"
    if not any(problem.repairable for problem in left.problems):
        return f"damaged: {count}, and no repair is possible; each problem says what can be done"
    if repair:
        return f"damaged: {count} could not be repaired"
    return f"damaged: {count}; to set aside what is damaged and keep the rest: penstock check {directory} --repair"


def _show(console: Console, report: CheckReport) -> None:
    from rich.table import Table

    table = Table("looked at", "", box=None, pad_edge=False)
    table.columns[1].justify = "right"
    for name, count in (
        ("topics", report.topics),
        ("partitions", report.partitions),
        ("messages", report.messages),
        ("segments", report.segments),
        ("journal files", report.journal_files),
        ("groups in them", report.groups),
    ):
        table.add_row(name, f"{count:,}")
    if report.chain is not None:
        table.add_row("epochs", f"{report.chain.epoch:,}")
        table.add_row("pieces", f"{report.chain.pieces:,}")
        table.add_row("bundles", f"{report.chain.bundles:,}")
    table.add_row("size", format_size(report.size_bytes))
    console.print(table)
    console.print()
    for note in report.notes:
        console.print(f"note: {note}\n", markup=False, soft_wrap=True)
    for number, problem in enumerate(report.problems, 1):
        _show_problem(console, number, problem)


def _show_problem(console: Console, number: int, problem: Problem) -> None:
    heading = f"{number}. {problem.file} at byte {problem.position}: {problem.wrong}"
    console.print(heading, style="bold", markup=False, soft_wrap=True)
    for line in _shortened(problem.affected) or ["nothing that is not found elsewhere"]:
        console.print(f"   affected: {line}", markup=False, soft_wrap=True)
    console.print(f"   repair: {problem.repair}\n", markup=False, soft_wrap=True)


def _show_repair(console: Console, directory: Path, repaired: RepairReport, left: CheckReport) -> None:
    for file in repaired.done:
        console.print(f"repaired: {file}", markup=False, soft_wrap=True)
    for failure in repaired.failed:
        console.print(f"not repaired: {failure}", style="red", markup=False, soft_wrap=True)
    for loss in _shortened(repaired.losses):
        console.print(f"lost: {loss}", style="red", markup=False, soft_wrap=True)
    aside = directory / (repaired.quarantine or "")
    console.print(f"what was damaged is in {aside}, with report.json\n", markup=False, soft_wrap=True)
    for number, problem in enumerate(left.problems, 1):
        _show_problem(console, number, problem)


def _shortened(lines: list[str]) -> list[str]:
    """The first few; the report for machines has them all."""
    more = len(lines) - _SHOWN_MAX
    return lines if more <= 0 else [*lines[:_SHOWN_MAX], f"and {more} more (-o json lists them all)"]


def _answer(
    directory: str, verdict: str, found: CheckReport, repaired: RepairReport | None, left: CheckReport
) -> dict[str, object]:
    """The same, for machines."""
    answer: dict[str, object] = {"directory": directory, "verdict": verdict, "found": asdict(found)}
    if repaired is not None:
        answer |= {"repair": asdict(repaired), "left": asdict(left)}
    return answer
