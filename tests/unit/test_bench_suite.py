"""`tiersim bench`: the panels of a machine, the measured values beside them, files, JSON, messages."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sim.cli import run
from sim.config import load_machine
from sim.errors import InputError
from sim.study.bench import measure
from sim.study.bench_findings import beside, finding
from sim.study.bench_matrices import reaches
from sim.study.bench_measured import canonical, rows_of_machine
from sim.study.bench_panels import Curve, Line, Matrix, median_error
from sim.study.bench_suite import PANELS, run_suite


def panel(machine: str, name: str) -> Curve | Matrix:
    suite = run_suite(load_machine(machine), rows_of_machine(machine), only=[name])
    assert not suite.skipped
    return suite.panels[0]


def line(curve: Curve | Matrix, name: str) -> Line:
    assert isinstance(curve, Curve)
    return next(item for item in curve.lines if item.name == name)


def test_every_measured_curve_of_a_server_stands_beside_its_line_with_its_own_prediction() -> None:
    shown = panel("xeon-8480-2s-1r", "loaded_latency")
    rows = {row.id: row for row in rows_of_machine("xeon-8480-2s-1r") if row.inputs["benchmark"] == "loaded_latency"}
    assert {item.row for item in shown.measurements} == set(rows)
    for item in shown.measurements[::9]:
        inputs = {key: value for key, value in rows[item.row].inputs.items() if key not in ("topology", "benchmark")}
        assert item.measured == rows[item.row].measured
        assert item.predicted == measure(load_machine("xeon-8480-2s-1r"), "loaded_latency", inputs)["latency"]


def test_a_loaded_latency_curve_starts_idle_and_ends_where_the_bus_is_full() -> None:
    shown = panel("xeon-8480-2s", "loaded_latency")
    assert isinstance(shown, Curve)
    machine = load_machine("xeon-8480-2s")
    for item in shown.lines:
        values = [latency for _load, latency in item.points]
        assert values == sorted(values)
        assert item.points[0][0] == 0.0
    most = measure(machine, "memory_bandwidth", {"device": "cpu0", "tier": "cpu0.dram"})["bandwidth"]
    assert line(shown, "100 % reads").points[-1][0] == pytest.approx(most)


def test_cells_of_a_matrix_carry_the_measured_value_of_the_same_pair() -> None:
    shown = panel("gh200-quad", "latency_matrix")
    assert isinstance(shown, Matrix)
    assert shown.measured["gpu0", "cpu1.lpddr"].measured == pytest.approx(1213.6e-9)
    assert shown.measured["gpu0", "cpu1.lpddr"].predicted == shown.cells["gpu0", "cpu1.lpddr"]
    assert len(shown.cells) == 64
    assert "8 measured values" in beside(shown)


def test_only_coherent_ways_are_loaded() -> None:
    workstation, superchip = load_machine("epyc-9554p-2x4090"), load_machine("gh200-quad")
    assert reaches(workstation, "gpu0", "cpu0.dram")
    assert not reaches(workstation, "cpu0", "gpu0.gddr")
    assert not reaches(workstation, "gpu0", "gpu1.gddr")
    assert reaches(superchip, "cpu0", "gpu0.hbm")
    assert ("cpu0", "gpu0.gddr") not in run_suite(workstation, only=["bandwidth_matrix"]).panels[0].cells  # type: ignore[union-attr]


@pytest.mark.parametrize(("machine", "gain"), [("a100-shared-uplink", 1.0), ("epyc-9554p-2x4090", 2.0)])
def test_gpus_behind_one_uplink_share_it_and_those_on_their_own_lanes_do_not(machine: str, gain: float) -> None:
    one, two = (y for _x, y in line(panel(machine, "host_copies_at_once"), "host to GPU").points)
    assert two == pytest.approx(gain * one, rel=1e-3)


def test_variants_that_were_measured_get_lines_of_their_own() -> None:
    shown = panel("dgx-2", "cpu_adam")
    assert len(line(shown, "bound false, implementation torch, sockets 2").measured) >= 4
    assert line(shown, "bound false, sockets 2").measured
    assert isinstance(shown, Curve)
    assert len(shown.lines) <= 8


def test_equal_inputs_have_one_form() -> None:
    machine = load_machine("dgx-h200")
    role = canonical(machine, "copy", {"source": "dram", "target": "gpu", "initiator": "gpu5", "size": "1 GiB"})
    name = canonical(machine, "copy", {"source": "cpu1.dram", "target": "gpu5.hbm", "initiator": "gpu5"})
    assert role == name
    assert canonical(machine, "collective", {"ranks": 8}) == canonical(machine, "collective", {})
    assert canonical(machine, "collective", {"ranks": 4}) != canonical(machine, "collective", {})
    assert canonical(machine, "cpu_adam", {"elements": 1e9, "shares": {"dram": 1}}) == canonical(
        machine, "cpu_adam", {"elements": 1e9}
    )


def test_what_a_machine_lacks_is_named_and_does_not_stop_the_rest() -> None:
    suite = run_suite(load_machine("xeon-8480-2s"))
    assert suite.skipped["collectives"] == "no GPU"
    assert suite.skipped["storage"] == "no drive"
    assert {item.name for item in suite.panels} >= {"bandwidth_matrix", "cpu_adam"}


def test_hosts_that_only_a_pool_joins_exchange_nothing_between_gpus() -> None:
    suite = run_suite(load_machine("cxl3-pool-4-hosts"), only=["gpu_copy", "collectives"])
    assert suite.skipped == {
        "gpu_copy": "no way between the GPUs", "collectives": "the GPUs belong to several hosts",
    }  # fmt: skip


def test_rows_over_several_drives_at_once_do_not_stop_the_suite() -> None:
    suite = run_suite(load_machine("dgx-2-drives"), rows_of_machine("dgx-2-drives"), only=["storage"])
    assert suite.panels


def test_findings_state_the_numbers_of_the_panel() -> None:
    shown = panel("dgx-h200", "gpu_copy")
    assert finding(shown) == "Copies between GPUs, one pair at a time: 373 GB/s for every pair"
    assert median_error(panel("dgx-h200", "gpu_copy")) is None
    assert "half writes" in finding(panel("xeon-8480-2s", "bandwidth_by_write_share"))


def test_the_command_writes_pictures_tables_and_a_manifest(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["bench", "gh200-quad", "--only", "latency_matrix", "--only", "host_device_copy", "--out", str(tmp_path)]) == 0
    folder = tmp_path / "bench" / "gh200-quad"
    found = {path.name for path in folder.iterdir()}
    assert found == {"latency_matrix.png", "host_device_copy.png", "bench.json", "points.csv", "manifest.json"}
    assert (folder / "latency_matrix.png").read_bytes().startswith(b"\x89PNG")
    printed = capsys.readouterr()
    assert "8 measured values" in printed.out
    assert "latency_matrix.png" in printed.err


def test_json_is_in_si_and_alone_on_standard_output(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["bench", "desktop-rtx-4090", "--only", "host_device_copy", "--no-plots", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    curve = found["benchmarks"][0]
    assert (curve["name"], curve["kind"], curve["y"]["dimension"]) == ("host_device_copy", "curve", "bandwidth")
    assert 20e9 < curve["lines"][0]["points"][-1]["y"] < 32e9
    assert found["skipped"] == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nosuch"], "unknown topology 'nosuch'; see `tiersim list topologies`, or give a path that ends in .yaml"),
        (["gh200", "--only", "latencymatrix"], "--only: unknown benchmark 'latencymatrix'; did you mean 'latency_matrix'?"),
    ],
)
def test_wrong_arguments_have_one_message(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["bench", *arguments, "--no-plots"]) == 2
    printed = capsys.readouterr()
    assert printed.err.strip() == message
    assert not printed.out


def test_a_scenario_is_not_a_topology(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "s.yaml"
    path.write_text("topology: gh200\nworkload: {training: {model: llama-2-7b}}\n")
    assert run(["bench", str(path), "--no-plots"]) == 2
    want = f"{path}:1: this is a scenario, a topology is expected; name its machine, or a topology file (`devices:`)"
    assert capsys.readouterr().err.strip() == want


def test_a_collective_needs_two_gpus() -> None:
    with pytest.raises(InputError, match="a collective of 1 GPUs, desktop-rtx-4090 has 1; at least two take part"):
        measure(load_machine("desktop-rtx-4090"), "collective", {})
    with pytest.raises(InputError, match="a collective of 9 GPUs, dgx-h200 has 8"):
        measure(load_machine("dgx-h200"), "collective", {"ranks": 9})


def test_every_benchmark_of_the_suite_runs_somewhere() -> None:
    found = {item.name for machine in ("gh200-quad", "rtx-5090-cxl") for item in run_suite(load_machine(machine)).panels}
    assert all(any(name in made for made in found) for name in PANELS)


def test_the_help_names_every_benchmark() -> None:
    from sim.cli.bench import command

    assert all(name in str(command.__doc__) for name in PANELS)
