"""What the pages show as printed is what is printed."""

import re
from pathlib import Path

import pytest

from sim.cli import run

PAGE = Path(__file__).parents[2] / "docs" / "fit.md"


@pytest.mark.parametrize("name", ["out-of-memory-host", "out-of-memory-gpu", "out-of-memory-buffers"])
def test_the_page_about_fits_shows_what_fit_prints(name, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")
    shown = re.search(rf"```text\n({name}  .*?)\n```", PAGE.read_text(), re.DOTALL)
    assert shown
    assert run(["fit", name]) == 1
    assert capsys.readouterr().out.split("\n\n- ")[0].rstrip() == shown[1]
