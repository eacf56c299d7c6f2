"""What `make results` reads of the main job's table: what Spark's list of it says, and nothing else."""

from __future__ import annotations

import json
from pathlib import Path

from examples.orders.results import _files_of


def test_a_list_that_has_all_before_it_replaces_them(tmp_path: Path) -> None:
    lists = tmp_path / "_spark_metadata"
    lists.mkdir()

    def write(name: str, *numbers: int) -> None:
        lines = [json.dumps({"path": f"file://{tmp_path}/date=2026-11-16/part%20{n}.parquet"}) for n in numbers]
        (lists / name).write_text("\n".join(["v1", *lines]))

    write("0", 0)
    write("1", 1)
    assert [file.name for file in _files_of(tmp_path)] == ["part 0.parquet", "part 1.parquet"]
    write("2.compact", 0, 1, 2)
    write("3")
    write("10", 10)
    files = _files_of(tmp_path)
    assert [file.name for file in files] == [f"part {n}.parquet" for n in (0, 1, 2, 10)]
    assert files[0].parent == tmp_path / "date=2026-11-16"


def test_a_table_that_is_not_there_yet_has_no_files(tmp_path: Path) -> None:
    assert _files_of(tmp_path / "minutes") == []
