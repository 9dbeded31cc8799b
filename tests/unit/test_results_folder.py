"""The results folder: whole files or none, a manifest last, foreign files untouched."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from sim.config.results_folder import MANIFEST, ResultsFolder, digest, point_rows, versions
from sim.errors import InputError


def test_files_appear_whole(tmp_path: Path) -> None:
    results = ResultsFolder(tmp_path / "deep" / "run")

    def fail(path: Path) -> None:
        path.write_text("half")
        raise RuntimeError("killed")

    with pytest.raises(RuntimeError):
        results.draw("picture.png", fail)
    assert list((tmp_path / "deep" / "run").iterdir()) == []
    assert results.written == []


def test_a_failed_rewrite_keeps_the_old_file(tmp_path: Path) -> None:
    results = ResultsFolder(tmp_path)
    results.text("a.txt", "old")

    def fail(path: Path) -> None:
        path.write_text("half of the ne")
        raise RuntimeError("killed")

    with pytest.raises(RuntimeError):
        results.draw("a.txt", fail)
    assert (tmp_path / "a.txt").read_text() == "old"


def test_manifest_lists_files_and_removes_what_an_earlier_run_left(tmp_path: Path) -> None:
    first = ResultsFolder(tmp_path)
    first.text("old.png", "x")
    first.text("kept.csv", "x")
    first.finish({"scenario": "s"})
    (tmp_path / "study.sqlite").write_text("not ours")
    second = ResultsFolder(tmp_path)
    second.text("kept.csv", "y")
    second.finish({"scenario": "s"})
    assert sorted(path.name for path in tmp_path.iterdir()) == ["kept.csv", MANIFEST, "study.sqlite"]
    assert json.loads((tmp_path / MANIFEST).read_text())["files"] == ["kept.csv"]


def test_a_manifest_cannot_name_files_elsewhere(tmp_path: Path) -> None:
    victim = tmp_path / "victim.txt"
    victim.write_text("precious")
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / MANIFEST).write_text(json.dumps({"files": ["../victim.txt", str(victim)]}))
    ResultsFolder(folder).finish({})
    assert victim.read_text() == "precious"


@pytest.mark.parametrize("how", ["a file is in the way", "permission"])
def test_unwritable_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str) -> None:
    folder = tmp_path / "results"
    if how == "permission":

        def denied(*_args: object, **_kwargs: object) -> None:
            raise PermissionError(13, "Permission denied")

        monkeypatch.setattr(Path, "mkdir", denied)
        reason = "permission denied"
    else:
        folder.write_text("")
        reason = os.strerror(17).lower()
    with pytest.raises(InputError) as caught:
        ResultsFolder(folder)
    assert str(caught.value) == f"{folder}: the results folder cannot be written: {reason}; choose another with --out"


def test_digest_ignores_the_order_of_keys() -> None:
    assert digest({"a": 1, "b": [1, 2]}) == digest({"b": [1, 2], "a": 1})
    assert digest({"a": 1}) != digest({"a": 2})


def test_points_become_rows_with_dotted_columns() -> None:
    columns, rows = point_rows(
        [
            {"parameters": {"batch": 1}, "fits": True, "breakdown_s": {"compute": 1.5}},
            {"parameters": {"batch": 2}, "fits": False, "breakdown_s": None, "reason": "too large"},
        ]
    )
    assert columns == ["parameters.batch", "fits", "breakdown_s.compute", "breakdown_s", "reason"]
    assert rows == [[1, True, 1.5, "", ""], [2, False, "", "", "too large"]]


def test_versions_name_the_program_and_python() -> None:
    assert {"tiersim", "python", "simpy"} <= set(versions())
