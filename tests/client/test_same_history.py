"""One history, lived by an embedded broker, through a plain client and through an asyncio client: nothing differs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.client.faces import FACES, face_of
from tests.client.histories import HISTORIES, LIMITS, History, lived


def lived_on(face: str, history: History, path: Path) -> dict[str, Any]:
    with face_of(face, path, broker=LIMITS) as broker:
        return lived(history, broker)


@pytest.mark.parametrize("history", HISTORIES, ids=lambda history: history.__name__)
def test_TR2_the_same_history_gives_the_same_results_on_every_face(history: History, tmp_path: Path) -> None:
    expected = lived_on("embedded", history, tmp_path / "embedded")
    for face in FACES[1:]:
        found = lived_on(face, history, tmp_path / face)
        assert found.keys() == expected.keys()
        different = {label: (found[label], expected[label]) for label in expected if found[label] != expected[label]}
        assert not different, f"{face}: " + "".join(
            f"\n{label}: {a}\n    not {b}" for label, (a, b) in different.items()
        )
