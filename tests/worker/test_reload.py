"""Which files a worker that reloads looks at; tests/cli/test_worker.py sees it happen."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.worker.reload import find_files, sources_of


def test_sources_are_python_files_of_the_project_and_nothing_else(tmp_path: Path) -> None:
    wanted = ["app.py", "shop/__init__.py", "shop/deep/orders.py"]
    others = ["shop/data.json", ".git/hook.py", ".venv/lib/a.py", "env/lib/a.py", "shop/__pycache__/a.py", "x.pyc"]
    for name in [*wanted, *others, "env/pyvenv.cfg"]:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    before = find_files([tmp_path])
    assert sorted(before) == sorted(str(tmp_path / name) for name in wanted)
    (tmp_path / "shop/deep/orders.py").write_text("x = 1\n")
    (tmp_path / "app.py").unlink()
    after = find_files([tmp_path])
    assert {Path(name).name for name, _ in before.items() ^ after.items()} == {"orders.py", "app.py"}


def test_a_package_that_lies_elsewhere_is_looked_at_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    for path in (here / "near", there / "far_package"):
        path.mkdir(parents=True)
        (path / "__init__.py").touch()
    (there / "far_module.py").touch()
    monkeypatch.chdir(here)
    monkeypatch.syspath_prepend(there)
    monkeypatch.syspath_prepend(here)
    assert sources_of("near.orders") == [here]
    assert sources_of("nowhere") == [here]
    assert sources_of("far_package.orders") == [here, there / "far_package"]
    assert sources_of("far_module") == [here, there / "far_module.py"]
    assert str(there / "far_module.py") in find_files(sources_of("far_module"))
