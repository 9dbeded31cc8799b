"""What `tiersim export` writes of a whole scenario, read back: the same step time, and no second lost on the way."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sim import cli, experiment
from sim.config import scenario_of
from sim.records import Kind

#: a CPU optimizer with costs before its work (casts, hooks), an expander, copies both ways
SCENARIO = """
name: box
topology: xeon-2s-cxl
workload: {training: {model: gpt2, sequence_length: 1024, batch_size: 4, precision: bf16, attention: flash}}
placement: {optimizer_states: {dram: 60%, cxl0: 40%}, master_weights: dram, gradients: dram}
"""


@pytest.fixture(scope="module")
def scenario(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("export") / "box.yaml"
    path.write_text(SCENARIO)
    return path


@pytest.fixture(scope="module")
def simulated(scenario: Path) -> experiment.Result:
    from sim.config import load_scenario

    (point,) = load_scenario(scenario).expand()
    return experiment.run(point, with_penalty=False)


def test_a_chakra_export_replays_in_the_time_of_its_scenario(
    scenario: Path, simulated: experiment.Result, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert any(op.kind is Kind.HOST_UPDATE and op.mapped_bytes > 0 for op in simulated.step.operations)
    assert cli.run(["export", "chakra", str(scenario), "-o", str(tmp_path)]) == 0
    assert "1 of 1 ranks" in capsys.readouterr().out
    files = [str(path) for path in (tmp_path / "box.0.et", tmp_path / "comm_groups.json")]
    trace = {"file": files, "source_part": "h100-pcie"}
    (back,) = scenario_of({"topology": "xeon-2s-cxl", "workload": {"trace": trace}}).expand()
    again = experiment.run(back, with_penalty=False)
    assert again.summary.step_time_s == pytest.approx(simulated.summary.step_time_s, rel=0.01)
    moved = [sum(op.size_bytes for op in r.step.operations if op.kind is Kind.TRANSFER) for r in (simulated, again)]
    assert moved[0] == pytest.approx(moved[1])


def test_a_pytorch_et_export_replays_in_the_time_of_its_scenario(
    scenario: Path, simulated: experiment.Result, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.run(["export", "pytorch-et", str(scenario), "-o", str(tmp_path)]) == 0
    assert "1 of 1 ranks" in capsys.readouterr().out
    file = tmp_path / "box.0.json"
    nodes = json.loads(file.read_text())["nodes"]
    assert [node["id"] for node in nodes] == list(range(1, len(nodes) + 1))
    assert all(node["ctrl_deps"] < node["id"] or node["id"] == 1 for node in nodes)
    trace = {"file": str(file), "source_part": "h100-pcie"}
    (back,) = scenario_of({"topology": "xeon-2s-cxl", "workload": {"trace": trace}}).expand()
    again = experiment.run(back, with_penalty=False)
    assert again.summary.step_time_s == pytest.approx(simulated.summary.step_time_s, rel=0.01)
    steps = (simulated.step, again.step)
    moved = [sum(op.size_bytes for op in step.operations if op.kind is Kind.TRANSFER) for step in steps]
    assert moved[0] == pytest.approx(moved[1])
    for amount in ("flops", "read_bytes"):
        held = [sum(k.count * getattr(k, amount) for op in step.operations for k in op.kernels) for step in steps]
        assert held[1] == pytest.approx(held[0], rel=1e-3)
    assert {op.target for op in again.step.operations if op.kind is Kind.TRANSFER} == {"dram", "gpu"}


def test_collectives_of_a_pytorch_et_export_keep_their_groups_and_sizes(tmp_path: Path) -> None:
    (tmp_path / "split.yaml").write_text(
        "name: split\ntopology: dgx-a100\nworkload: {training: {model: gpt2, sequence_length: 1024, batch_size: 2, "
        "precision: bf16, attention: flash, framework: megatron, parallelism: {data: 4, tensor: 2}}}\n"
    )
    from sim.config import load_scenario

    (point,) = load_scenario(tmp_path / "split.yaml").expand()
    simulated = experiment.run(point, with_penalty=False)
    assert cli.run(["export", "pytorch-et", str(tmp_path / "split.yaml"), "-o", str(tmp_path), "--ranks", "3"]) == 0
    assert len(list(tmp_path.glob("split.*.json"))) == 3
    trace = {"file": str(tmp_path / "split.1.json"), "source_part": "a100-80gb-sxm", "ranks": 8}
    (back,) = scenario_of({"topology": "dgx-a100", "workload": {"trace": trace}}).expand()
    again = experiment.run(back, with_penalty=False)
    assert again.summary.step_time_s == pytest.approx(simulated.summary.step_time_s, rel=0.02)

    def moved(result: experiment.Result) -> dict[tuple[str, int], float]:
        found: dict[tuple[str, int], float] = {}
        for op in result.step.operations:
            if op.kind is Kind.COLLECTIVE:
                key = str(op.collective), result.step.group_sizes[str(op.group)]
                found[key] = found.get(key, 0.0) + op.size_bytes * op.num_calls
        return found

    assert moved(again) == pytest.approx(moved(simulated), rel=1e-6)


def test_a_timeline_shows_every_second_of_every_operation(scenario: Path, simulated: experiment.Result, tmp_path: Path) -> None:
    output = tmp_path / "t.json"
    assert cli.run(["export", "timeline", str(scenario), "-o", str(output)]) == 0
    bars = {e["args"]["id"]: e for e in json.loads(output.read_text())["traceEvents"] if e["ph"] == "X"}
    operations = {operation.id: operation for operation in simulated.program.operations}
    assert bars.keys() == operations.keys()
    for record in simulated.replay.operations:
        operation, bar = operations[record.id], bars[record.id]
        assert bar["dur"] / 1e6 == pytest.approx(record.end_s - record.start_s + operation.latency_s, abs=2e-9)
        assert (bar["ts"] + bar["dur"]) / 1e6 == pytest.approx(record.end_s, abs=2e-9)
