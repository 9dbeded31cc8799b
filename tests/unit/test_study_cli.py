"""Sweeps through the command line: table, files, JSON, exit codes, resume."""

import csv
import dataclasses
import json

import pytest
import yaml

from sim.cli import run as tiersim
from sim.cli.sweep import exit_code
from sim.config import load_machine, scenario_of
from sim.report.tables import shortage
from sim.study import identity
from sim.study.export import write_csv, write_parquet
from sim.study.head import head_of, only_machine
from sim.study.identity import digest
from sim.study.names import short_names
from sim.study.study import Study, Tally

SWEEP = """# Which lanes?
name: tiny-sweep
topology: desktop-rtx-4090
workload:
  training:
    model: {layers: 2, hidden: 512, heads: 8, ffn: 2048, vocabulary: 32000}
    sequence_length: 256
sweep:
  workload.training.batch_size: [1, 2]
  placement.optimizer_states: [gpu, dram, cxl]
"""


def test_a_sweep_says_its_machines_and_what_it_assumes():
    data = {key: value for key, value in yaml.safe_load(SWEEP).items() if key != "sweep"}
    one = head_of(scenario_of(data | {"sweep": {"workload.training.batch_size": [1, 2]}}))
    assert one["machine"] == "desktop-rtx-4090"
    assert one["assumptions"]
    assert not any(text.startswith("desktop-rtx-4090: ") for text in one["assumptions"])
    two = scenario_of(data | {"sweep": {"topology": ["desktop-rtx-4090", "gh200"]}})
    assert head_of(two)["machine"] == "desktop-rtx-4090, gh200"
    assert any(text.startswith("gh200: ") for text in head_of(two)["assumptions"])
    assert only_machine(two) is None
    lanes = scenario_of(data | {"sweep": {"topology.gpu0.link.lanes": [8, 16, 1000]}})  # the last is a row with its reason
    assert only_machine(lanes) is not None


@pytest.fixture
def scenario(tmp_path):
    path = tmp_path / "tiny.yaml"
    path.write_text(SWEEP)
    return path


def test_a_sweep_prints_its_points_and_writes_its_files(scenario, tmp_path, capsys):
    assert tiersim(["run", str(scenario), "--out", str(tmp_path / "r"), "--workers", "1"]) == 0
    first = capsys.readouterr()
    assert "batch size" in first.out
    assert first.out.count("fits") == 4
    assert first.out.count("invalid") == 2
    assert "6 run now" in first.err
    assert first.err.count(" is invalid: ") == 1  # one line for each reason
    assert "tiny-sweep: batch size 1, optimizer states cxl is invalid: " in first.err
    assert "has no cxl tier" in first.err
    folder = tmp_path / "r" / "tiny-sweep"
    assert {path.name for path in folder.iterdir()} >= {
        "summary.json", "points.csv", "sweep.png", "manifest.json", "study.sqlite",
    }  # fmt: skip
    assert tiersim(["run", str(scenario), "--out", str(tmp_path / "r")]) == 0
    second = capsys.readouterr()
    assert second.out == first.out
    assert "0 run now" in second.err


def test_json_holds_every_point_and_equals_summary_json(scenario, tmp_path, capsys):
    assert tiersim(["run", str(scenario), "--out", str(tmp_path), "--json", "--no-plots", "--workers", "1"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert [point["status"] for point in printed["points"]] == ["fits", "fits", "invalid"] * 2
    assert printed["points"][1]["parameters"] == {"workload.training.batch_size": 1, "placement.optimizer_states": "dram"}
    assert json.loads((tmp_path / "tiny-sweep" / "summary.json").read_text())["points"] == printed["points"]


def test_csv_and_parquet_are_the_same_table(scenario, tmp_path):
    study = Study(scenario, tmp_path / "s")
    study.run()
    path = write_csv(study.outcomes, tmp_path / "points.csv")
    rows = list(csv.DictReader(path.read_text().splitlines()))
    assert [row["status"] for row in rows] == ["fits", "fits", "invalid"] * 2
    exact = [outcome.summary.get("step_time_s") for outcome in study.outcomes()]
    assert [float(row["step_time_s"]) if row["step_time_s"] else None for row in rows] == exact
    assert "cxl" in rows[2]["reason"]
    parquet = pytest.importorskip("pyarrow.parquet")
    table = parquet.read_table(write_parquet(study.outcomes, tmp_path / "points.parquet")).to_pylist()
    assert [row["step_time_s"] for row in table] == exact
    assert [row["parameters.workload.training.batch_size"] for row in table] == [1, 1, 1, 2, 2, 2]


def test_points_are_exported_from_the_command_line(scenario, tmp_path, capsys):
    asked = ["export", "points", str(scenario), "--folder", str(tmp_path / "s"), "-o"]
    csv_file, other = tmp_path / "points.csv", tmp_path / "points.xlsx"
    assert tiersim([*asked, str(csv_file)]) == 2  # the sweep was not run
    assert "run the scenario's sweep first" in capsys.readouterr().err
    study = Study(scenario, tmp_path / "s")
    study.run()
    assert tiersim([*asked, str(other)]) == 2
    assert not other.exists()
    assert tiersim([*asked, str(csv_file)]) == 0
    assert "6 points" in capsys.readouterr().out
    assert len(csv_file.read_text().splitlines()) == 7


@pytest.mark.parametrize(
    ("counts", "code"),
    [
        ({"fits": 1, "failed": 5}, 0),
        ({"does_not_fit": 2}, 1),
        ({"does_not_fit": 2, "invalid": 1}, 1),
        ({"invalid": 3}, 2),
        ({"does_not_fit": 2, "failed": 1}, 3),
        ({"lost": 1}, 3),
    ],
)
def test_exit_codes(counts, code):
    assert exit_code(Tally(sum(counts.values()), 0, 0, counts, 0.0)) == code


def test_short_names_tell_parameters_apart():
    names = short_names(["workload.training.batch_size", "topology.gpu1.link.lanes", "a.x", "b.x", "machine"])
    assert names == {
        "workload.training.batch_size": "batch size",
        "topology.gpu1.link.lanes": "gpu1.link.lanes",
        "a.x": "a.x",
        "b.x": "b.x",
        "machine": "machine",
    }


def test_a_point_that_does_not_fit_names_its_tier(tmp_path, capsys):
    path = tmp_path / "big.yaml"
    path.write_text(SWEEP.replace("[gpu, dram, cxl]", "[gpu]").replace("batch_size: [1, 2]", "batch_size: [1, 4096]"))
    assert tiersim(["run", str(path), "--out", str(tmp_path / "r"), "--workers", "1", "--no-plots"]) == 0
    rows = [line for line in capsys.readouterr().out.splitlines() if "does not fit" in line]
    assert len(rows) == 1
    assert "gpu0.gddr " in rows[0]
    assert shortage({"tiers": {"a": {"verdict": "fits", "peak_bytes": 2, "capacity_bytes": 3}}}) == ""


def test_a_machine_that_was_walked_has_the_same_digest():
    machine = load_machine("desktop-rtx-4090")
    before = digest(dataclasses.replace(machine))
    machine.route("cpu0.dram", "gpu0.gddr", initiator="gpu0")
    assert identity._machine_digest(machine) == before


def test_a_swept_machine_is_named_with_what_the_sweep_changes() -> None:
    from sim.config.scenario_file import scenario_of
    from sim.study.head import head_of, only_machine

    data = {"training": {"model": "gpt2", "batch_size": 1, "sequence_length": 64}, "topology": "epyc-9554p-2x4090"}
    swept = scenario_of(data | {"sweep": {"topology.gpu0.link.lanes": [16, 8], "workload.training.batch_size": [1, 2]}})
    assert head_of(swept)["machine"].endswith("(changed); the sweep changes gpu0.link.lanes")
    first, note = only_machine(swept) or (None, "")
    assert note == "the first point, gpu0.link.lanes 16, batch size 1"
    assert first is not None
    assert first.machine.title.endswith(", changed")
    still = scenario_of(data | {"sweep": {"workload.training.batch_size": [1, 2]}})
    assert head_of(still)["machine"] == "epyc-9554p-2x4090"
    assert (only_machine(still) or (None, "?"))[1] == ""
