"""`tiersim report`: one page of what a run wrote, with hostile names kept as text."""

import json
import re
import shutil

import pytest
from test_html_page import CHROMIUM, in_browser

from sim.cli import run
from sim.cli.outputs import write_run
from sim.config.results_folder import ResultsFolder
from sim.config.scenario_file import scenario_of
from sim.errors import InputError
from sim.experiment import run as simulate
from sim.study.page import report_page

HOSTILE = "<script>alert(1)</script><img src=x onerror=alert(2)>"
SHAPE = {"layers": 4, "hidden": 1024, "heads": 16, "ffn": 4096, "vocabulary": 32000}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("results") / "tiny"
    file = scenario_of(
        {
            "topology": "desktop-rtx-4090",
            "workload": {"training": {"model": SHAPE, "sequence_length": 512}},
            "options": {"level": "full"},
            "assumptions": [HOSTILE],
        },
        "tiny",
    )
    result = simulate(file.resolve())
    write_run(result, result.point(), file, ResultsFolder(path), has_plots=True, seconds={})
    return path


def test_the_page_says_what_the_summary_says(folder):
    point = json.loads((folder / "summary.json").read_text())["points"][0]
    text = report_page([folder])
    assert f">{point['bound_by']}<" in text
    assert "Fits." in text
    assert text.count('<img src="data:image/png;base64,') == 6  # machine, step, breakdown, memory, occupancy, channels
    for section in ("verdict", "machine", "memory", "time", "channels", "pictures", "assumptions", "inputs", "validation"):
        assert f'id="{section}"' in text


def test_hostile_names_stay_text(folder):
    text = report_page([folder])
    assert "<script" not in text
    assert "&lt;script&gt;" in text
    assert not re.search(r"<img src=x", text)


def test_two_folders_are_compared_with_the_first(folder, tmp_path):
    other = tmp_path / "other"
    shutil.copytree(folder, other)
    summary = json.loads((other / "summary.json").read_text())
    summary["scenario"] = "other"
    point = summary["points"][0]
    point |= {"fits": False, "reason": "gpu0.gddr is too small", "step_time_s": None}
    (other / "summary.json").write_text(json.dumps(summary))
    text = report_page([folder, other])
    assert "tiny is the baseline" in text
    assert "Does not fit: gpu0.gddr is too small" in text


def test_the_difference_of_two_results_is_drawn(folder, tmp_path):
    other = tmp_path / "other"
    shutil.copytree(folder, other)
    summary = json.loads((other / "summary.json").read_text())
    point = summary["points"][0]
    point["step_time_s"] *= 2
    point["tokens_per_s"] /= 2
    point["breakdown_s"]["idle"] += point["step_time_s"] / 2
    (other / "summary.json").write_text(json.dumps(summary))
    text = report_page([folder, other])
    assert "tiny against tiny: 2 x slower" in text


def test_sensitivities_are_drawn_and_listed(folder):
    from sim.study.sensitivity import sensitivity

    data = {"topology": "desktop-rtx-4090", "workload": {"training": {"model": SHAPE, "sequence_length": 512}}}
    study = sensitivity(scenario_of(data, "tiny"))
    text = report_page([folder], study)
    assert text.count('<img src="data:image/png;base64,') == 7
    assert "gpu0 compute" in text


def test_a_folder_without_results_is_an_input_error(tmp_path):
    with pytest.raises(InputError, match="no results"):
        report_page([tmp_path])
    assert run(["report", str(tmp_path)]) == 2
    assert list(tmp_path.iterdir()) == []


@pytest.mark.browser
@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine")
@pytest.mark.parametrize("width", [360, 1440])
def test_a_browser_shows_the_report(folder, tmp_path, width):
    document = report_page([folder])
    light = in_browser(document, tmp_path, width=width, scheme=1)
    dark = in_browser(document, tmp_path, width=width, scheme=0)
    assert light[0] <= width
    assert light[3] == dark[3] == []
    assert light[1:3] != dark[1:3]


def test_watch_shows_the_machine_over_the_step(tmp_path, capsys):
    scenario = tmp_path / "tiny.yaml"
    body = {"topology": "desktop-rtx-4090", "workload": {"training": {"model": SHAPE, "sequence_length": 512}}}
    scenario.write_text(json.dumps(body))
    assert run(["run", str(scenario), "--watch", "--no-plots", "--json", "--out", str(tmp_path / "r")]) == 0
    captured = capsys.readouterr()
    lines = [line for line in captured.err.splitlines() if " gpu0 " in line]
    assert len(lines) == 10
    step_s = json.loads(captured.out)["points"][0]["step_time_s"]
    assert lines[-1].split()[:2] == [f"{1000 * step_s:.4g}", "ms"]


def test_watch_refuses_a_sweep(tmp_path, capsys):
    assert run(["run", "which-machine", "--watch", "--out", str(tmp_path / "r")]) == 2
    assert "this is a sweep" in capsys.readouterr().err
    assert not (tmp_path / "r").exists()
