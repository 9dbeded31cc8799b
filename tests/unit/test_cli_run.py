# ruff: noqa: E501 - exact messages stay on one line
"""The command line: exit codes, streams, files, stable JSON names, speed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from sim.cli import COMMANDS, run
from sim.config.results_folder import ResultsFolder
from sim.interchange.step_file import read_step

TINY = """\
# How fast is a tiny model on a desktop?
topology: desktop-rtx-4090
workload:
  training:
    model: {layers: 2, hidden: 256, heads: 4, ffn: 512, vocabulary: 1000}
    sequence_length: 128
    batch_size: 1
    optimizer: {offload: true}
"""
KEYS = {"compute", "exposed_transfer", "exposed_collective", "cpu_optimizer", "storage", "paging", "data", "idle"}


@pytest.fixture
def tiny(tmp_path: Path) -> Path:
    path = tmp_path / "tiny.yaml"
    path.write_text(TINY)
    return path


def test_json_has_stable_names_and_nothing_else_on_standard_output(
    tiny: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["run", str(tiny), "--out", str(tmp_path / "r"), "--json", "--no-plots"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["scenario"] == "tiny"
    (point,) = answer["points"]
    assert set(point) >= {
        "parameters", "fits", "step_time_s", "tokens_per_s", "mfu", "offload_penalty", "bound_by", "uncertainty",
        "breakdown_s", "tiers", "channels",
    }  # fmt: skip
    assert point["fits"] is True
    assert set(point["breakdown_s"]) == KEYS
    assert sum(point["breakdown_s"].values()) == pytest.approx(point["step_time_s"], abs=1e-9)
    assert set(point["uncertainty"]) == {"low_s", "high_s", "basis"}
    assert point["uncertainty"]["low_s"] < point["step_time_s"] < point["uncertainty"]["high_s"]
    assert all({"capacity_bytes", "peak_bytes"} <= set(tier) for tier in point["tiers"].values())
    assert all(set(use) == {"bandwidth_bytes_per_s", "bytes", "utilisation"} for use in point["channels"].values())
    assert 0 < point["mfu"] < 1
    assert point["offload_penalty"] > 1


def test_results_folder(tiny: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["run", str(tiny), "--out", str(tmp_path / "r")]) == 0
    out = capsys.readouterr().out
    for words in (
        "tiny  fits",
        "How fast is a tiny model on a desktop?",
        "Step time",
        "tokens/s",
        "MFU",
        "Offload penalty",
        "Binds",
    ):
        assert words in out
    folder = tmp_path / "r" / "tiny"
    names = {path.name for path in folder.iterdir()}
    assert names == {
        "manifest.json", "summary.json", "points.csv", "records.csv", "timeline.json",
        "machine.png", "step.png", "breakdown.png", "memory.png", "occupancy.png", "channels.png",
    }  # fmt: skip
    manifest = json.loads((folder / "manifest.json").read_text())
    assert set(manifest) == {"scenario", "file", "inputs", "hash", "versions", "seconds", "files"}
    assert set(manifest["files"]) == names - {"manifest.json"}
    assert (folder / "step.png").read_bytes().startswith(b"\x89PNG")
    assert "traceEvents" in json.loads((folder / "timeline.json").read_text())
    first = {name: (folder / name).read_bytes() for name in names - {"manifest.json"}}  # that one holds what the run cost
    assert run(["run", str(tiny), "--out", str(tmp_path / "r")]) == 0
    assert {name: (folder / name).read_bytes() for name in first} == first


def test_a_saved_trace_replays_to_the_same_step_time(tiny: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trace = tmp_path / "step.jsonl.gz"
    arguments = ["--out", str(tmp_path / "r"), "--json", "--no-plots"]
    assert run(["run", str(tiny), "--save-trace", str(trace), *arguments]) == 0
    first = json.loads(capsys.readouterr().out)["points"][0]
    assert read_step(trace).num_tokens == 128
    again = tmp_path / "again.yaml"
    again.write_text("topology: desktop-rtx-4090\nworkload: {trace: step.jsonl.gz}\n")
    assert run(["run", str(again), *arguments]) == 0
    second = json.loads(capsys.readouterr().out)["points"][0]
    assert second["step_time_s"] == first["step_time_s"]
    assert second["breakdown_s"] == first["breakdown_s"]
    assert second["offload_penalty_base"] == "the same operations with every tensor in the fastest tier"
    again.write_text(again.read_text() + "placement: {optimizer_states: gpu, master_weights: gpu, gradients: gpu}\n")
    assert run(["run", str(again), *arguments]) == 0
    moved = json.loads(capsys.readouterr().out)["points"][0]
    assert moved["step_time_s"] < first["step_time_s"]


def test_verify_and_explain(tiny: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["run", str(tiny), "--out", str(tmp_path), "--verify", "--explain", "--no-plots"]) == 0
    assert "Critical path, by owner" in capsys.readouterr().out


def test_a_misfit_exits_1_and_says_where(tiny: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tiny.write_text(TINY.replace("{layers: 2, hidden: 256, heads: 4, ffn: 512, vocabulary: 1000}", "llama-2-70b"))
    assert run(["run", str(tiny), "--out", str(tmp_path), "--json", "--no-plots"]) == 1
    (point,) = json.loads(capsys.readouterr().out)["points"]
    assert point["fits"] is False
    assert point["step_time_s"] is None
    assert point["tiers"]["gpu0.gddr"]["verdict"] == "does_not_fit"
    assert "gpu0.gddr needs " in point["reason"]
    assert run(["run", str(tiny), "--out", str(tmp_path), "--no-plots"]) == 1
    assert "Does not fit: " in capsys.readouterr().out


def test_a_sweep_exits_1_only_if_no_point_fits(tiny: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    models = "sweep: {workload.training.model: [%s]}\n"
    tiny.write_text(TINY + models % "llama-2-70b, opt-125m")
    assert run(["run", str(tiny), "--out", str(tmp_path / "a"), "--json", "--no-plots"]) == 0
    assert [point["fits"] for point in json.loads(capsys.readouterr().out)["points"]] == [False, True]
    tiny.write_text(TINY + models % "llama-2-70b, llama-2-13b")
    assert run(["run", str(tiny), "--out", str(tmp_path / "b"), "--json", "--no-plots"]) == 1


def test_bad_input_exits_2_on_standard_error(tiny: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tiny.write_text(TINY.replace("batch_size", "batchsize"))
    assert run(["run", str(tiny)]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err == f"{tiny}:7: workload.training.batchsize: unknown key 'batchsize'; did you mean 'batch_size'?\n"
    assert run(["run"]) == 2
    assert run(["rnu"]) == 2
    assert run(["list", "modls"]) == 2
    assert "did you mean 'models'?" in capsys.readouterr().err


def test_unwritable_results_exit_2_before_any_work(tiny: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "r").write_text("a file is in the way")
    assert run(["run", str(tiny), "--out", str(tmp_path / "r")]) == 2
    err = capsys.readouterr().err
    assert (
        err == f"{tmp_path / 'r' / 'tiny'}: the results folder cannot be written: not a directory; choose another with --out\n"
    )
    assert (
        run(["run", str(tiny), "--out", str(tmp_path / "o"), "--no-plots", "--save-trace", str(tmp_path / "no" / "t.jsonl")])
        == 2
    )
    assert "no such file or directory" in capsys.readouterr().err


def test_equal_names_are_refused(tiny: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "tiny.yaml").write_text(TINY)
    assert run(["run", str(tiny), str(tmp_path / "sub" / "tiny.yaml"), "--out", str(tmp_path)]) == 2
    assert "is taken by" in capsys.readouterr().err


def test_a_defect_is_one_friendly_line_and_exits_3(
    tiny: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr(ResultsFolder, "finish", lambda *_args: 1 / 0)
    assert run(["run", str(tiny), "--out", str(tmp_path), "--no-plots", "--json"]) == 3
    err = capsys.readouterr().err.splitlines()[-1]
    assert err == (
        "internal error, a defect of tiersim and not of your input: ZeroDivisionError: division by zero (TIERSIM_DEBUG=1 shows where)"
    )


def test_every_command_has_help_with_an_example(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--help"]) == 0
    listed = capsys.readouterr().out
    for name in ("run", "check", "show", "list"):
        assert name in listed
        assert run([name, "--help"]) == 0
        assert f"tiersim {name}" in capsys.readouterr().out
    assert next(iter(COMMANDS)) == "run"


def test_check_show_and_list(tiny: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["check", str(tiny), "dgx-a100"]) == 0
    out = capsys.readouterr().out
    assert "tiny.yaml  ok" in out
    assert "model.layers" in out
    assert "numbers with a source" in out
    assert run(["check", "dgx-a100", "--sources"]) == 0
    assert "data sheet" in capsys.readouterr().out
    assert run(["check", str(tiny), "--json"]) == 0
    resolved = json.loads(capsys.readouterr().out)
    assert resolved["jobs"][0]["workload"]["optimizer"]["offload"] is True
    assert run(["check", "--schema"]) == 0
    assert json.loads(capsys.readouterr().out)["title"] == "tiersim scenario"
    assert run(["show", "epyc-9554p-2x4090", "--out", str(tmp_path)]) == 0
    out = capsys.readouterr().out
    assert "cpu0.dram -> gpu0.gddr  (and 1 like it)" in out
    assert (tmp_path / "machines" / "epyc-9554p-2x4090.png").is_file()
    assert run(["show", "epyc-9554p-2x4090", "--no-plots", "--json"]) == 0
    paths = json.loads(capsys.readouterr().out)["paths"]
    assert {path["narrowest"] for path in paths if path["source"] == "gpu0.gddr"} >= {"gpu0->cpu0.pcie"}
    assert run(["list", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)
    assert "epyc-9554p-2x4090" in listed["topologies"]
    assert "a12-reference-box" in listed["scenarios"]
    assert "llama-2-13b" in listed["models"]
    assert "rtx-4090" in listed["parts"]


def cpu_seconds(*command: str) -> float:
    """CPU seconds of a fresh process that may keep its bytecode, as an installed package has it."""
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    before = os.times()
    subprocess.run([sys.executable, *command], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=kept)
    after = os.times()
    return after.children_user + after.children_system - before.children_user - before.children_system


def slowness() -> float:
    """How much slower than the machine of the limits this one is right now (it took 0.165 s for this work when idle)."""
    return max(1.0, cpu_seconds("-c", "import typer.main, rich.table, pydantic.dataclasses") / 0.165)


@pytest.mark.parametrize(
    ("arguments", "limit_s"),
    [
        (["--help"], 0.5),
        (["check", "a12-reference-box"], 0.5),
        (["run", "a12-reference-box", "--no-plots", "--out", "{folder}"], 2.0),
    ],
)
def test_answers_are_fast(arguments: list[str], limit_s: float, tmp_path: Path) -> None:
    command = ["-m", "sim.cli", *(word.replace("{folder}", str(tmp_path)) for word in arguments)]
    taken = min(cpu_seconds(*command) / slowness() for _ in range(3))
    assert taken < limit_s


def test_heavy_packages_stay_out_of_help_and_check() -> None:
    script = (
        "import sys; from sim.cli import run; run(['check', 'a12-reference-box']); print(sorted(sys.modules), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True)
    loaded = done.stderr
    for package in ("matplotlib", "numpy", "networkx", "numba", "simpy", "pandas", "pyarrow", "dask", "scipy"):
        assert f"'{package}'" not in loaded, package


def test_a_data_set_turns_the_step_into_hours_and_energy(
    tiny: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tiny.write_text(TINY + "    dataset: {samples: 1000, epochs: 3, packing: false}\n")
    assert run(["run", str(tiny), "--out", str(tmp_path / "r"), "--json", "--no-plots"]) == 0
    (point,) = json.loads(capsys.readouterr().out)["points"]
    assert point["budget"]["num_steps"] == 3000
    assert point["budget"]["duration_s"] == pytest.approx(3000 * point["step_time_s"])
    assert point["budget"]["energy_kwh"] == pytest.approx(point["budget"]["power_w"] * point["budget"]["duration_s"] / 3.6e6)
    assert point["budget"]["rent"] is None  # no overlay, no money
    assert run(["run", str(tiny), "--out", str(tmp_path / "r"), "--no-plots"]) == 0
    printed = capsys.readouterr().out
    assert "for 3,000 steps" in printed
    assert "kWh (every device at its rated power" in printed


def test_assumptions_that_differ_in_the_index_of_the_device_are_one(tmp_path: Path) -> None:
    from sim.cli.terminal import grouped

    notes = [
        "gpu0.latency: assumed: by analogy",
        "gpu1.latency: assumed: by analogy",
        "cpu0.cores: assumed: by analogy",
        "stated",
    ]
    assert grouped(notes) == ["gpu0.latency (x2), cpu0.cores: assumed, by analogy", "stated"]


def test_rows_that_differ_in_an_index_only_are_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    job = "workload: {training: {model: gpt2, parallelism: {data: 2}}}"
    path = tmp_path / "two.yaml"
    path.write_text(f"topology: epyc-9554p-2x4090\njobs:\n  - {{{job}}}\n  - {{{job}}}\n", encoding="utf-8")
    assert run(["run", str(path), "--no-plots", "--out", str(tmp_path / "r")]) in (0, 1)
    printed = capsys.readouterr().out
    assert "gpu0.gddr (x2)" in printed
    assert "gpu1.gddr" not in printed


def test_a_fault_that_only_a_run_shows_has_its_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "late.yaml"
    path.write_text(
        "topology: desktop-rtx-4090\nworkload:\n  inference:\n    model: llama-2-7b\n    gpu_layers: 99\n", encoding="utf-8"
    )
    assert run(["run", str(path), "--no-plots", "--out", str(tmp_path / "r")]) == 2
    assert capsys.readouterr().err.startswith(
        f"{path}:5: workload.inference.gpu_layers: gpu_layers 99 of a model with 32 layers; leave it out"
    )
