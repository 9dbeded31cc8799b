"""A recording as the workload of a scenario: which step, on what it was recorded, which of its copies a placement moves."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from sim import engine, experiment
from sim.config import scenario_of
from sim.errors import InputError
from sim.experiment import Result
from sim.interchange.load import load_trace
from sim.interchange.rules import parse_rules
from sim.records import Kind, Program, Replay
from sim.scenario import Trace
from tests.kineto_sample import Sample

A100 = {"deviceProperties": [{"name": "NVIDIA A100-SXM4-80GB", "totalGlobalMem": 85_000_000_000}]}


def write(folder: Path, name: str = "t.json", **header: Any) -> Path:
    """Two steps of 20 and 40 ms: a kernel, then a copy of 100 MB to the GPU, waited for."""
    sample = Sample(**(A100 | header))
    for number, length in enumerate((20_000, 40_000)):
        at = number * 20_000.0
        sample.step(number, at, length)
        sample.launch(at + 100, at + 110, length / 2, name="ampere_sgemm")
        sample.copy(at + 200, 10, at + 111 + length / 2, 4000, name="HtoD (Pinned -> Device)", size=100_000_000)
        sample.call("cudaDeviceSynchronize", at + 300, length - 1000)
    path = folder / name
    path.write_bytes(sample.to_bytes())
    return path


def seconds(trace: Any, topology: str, **more: Any) -> float:
    (point,) = scenario_of({"topology": topology, "workload": {"trace": trace}, **more}, file="/x/s.yaml").expand()
    return experiment.run(point, with_penalty=False).summary.step_time_s


def test_a_step_is_picked_by_its_number(tmp_path: Path) -> None:
    path = str(write(tmp_path))
    assert seconds({"file": path, "step": 1}, "dgx-a100") - seconds({"file": path, "step": 0}, "dgx-a100") == pytest.approx(
        20e-3, rel=0.1
    )
    with pytest.raises(InputError, match="there is no step 2; steps 0 to 1 exist"):
        seconds({"file": path, "step": 2}, "dgx-a100")


def test_a_rule_lets_a_placement_move_recorded_copies(tmp_path: Path) -> None:
    path = str(write(tmp_path))
    trace = {"file": path, "step": 0, "rules": ["h2d min=1MB = optimizer_states"], "source_part": "h100-pcie"}
    here = seconds(trace, "xeon-2s-cxl", placement={"optimizer_states": "dram"})
    cxl = seconds(trace, "xeon-2s-cxl", placement={"optimizer_states": "cxl0"})
    # 100 MB at the rate of one x8 expander instead of the card's 16 lanes
    assert 1e-3 < cxl - here < 6e-3
    plain = {key: value for key, value in trace.items() if key != "rules"}
    assert seconds(plain, "xeon-2s-cxl", placement={"optimizer_states": "cxl0"}) == pytest.approx(here, rel=1e-6)


@pytest.mark.parametrize(
    ("rules", "placed", "warning"),
    [
        (["h2d min=1MB = optimizer_states"], "optimizer_states", ""),
        ([], "optimizer_states", "placement of optimizer_states: no effect, no recorded copy is known to carry them; name "
         "theirs (1 recorded, 95.4 MiB) with rules of the trace, such as 'h2d phase=update min=1MB = optimizer_states'"),
        (["h2d min=1MB = optimizer_states"], "activations", "placement of activations: no effect"),
        ([], "", ""),
    ],
)  # fmt: skip
def test_a_placement_that_moves_nothing_is_told(rules: list[str], placed: str, warning: str, tmp_path: Path) -> None:
    trace = {"file": str(write(tmp_path)), "step": 0, "rules": rules, "source_part": "h100-pcie"}
    block = {"topology": "xeon-2s-cxl", "workload": {"trace": trace}, "placement": {placed: "cxl0"} if placed else {}}
    (point,) = scenario_of(block, file="/x/s.yaml").expand()
    told = [line for line in experiment.run(point, with_penalty=False).warnings if line.startswith("placement of")]
    assert len(told) == bool(warning)
    assert all(line.startswith(warning) for line in told)


def test_a_recording_without_copies_cannot_be_placed_elsewhere(tmp_path: Path) -> None:
    sample = Sample(**A100)
    sample.step(0, 0, 1000)
    sample.launch(100, 110, 100)
    (tmp_path / "t.json").write_bytes(sample.to_bytes())
    block = {"topology": "dgx-a100", "workload": {"trace": str(tmp_path / "t.json")}, "placement": {"gradients": "dram"}}
    (point,) = scenario_of(block, file="/x/s.yaml").expand()
    told = "placement of gradients: no effect, the recording has no copies between host and GPU"
    assert any(line.startswith(told) for line in experiment.run(point, with_penalty=False).warnings)


def test_an_unknown_part_is_named_by_the_scenario(tmp_path: Path) -> None:
    path = str(write(tmp_path, deviceProperties=[{"name": "Some GPU"}]))
    with pytest.raises(InputError, match="recorded on Some GPU, which is not in the part catalogue"):
        seconds({"file": path}, "dgx-a100")
    slow = seconds({"file": path, "step": 0, "source_part": "v100-32gb-sxm"}, "dgx-1-v100")
    fast = seconds({"file": path, "step": 0, "source_part": "v100-32gb-sxm"}, "dgx-a100")
    assert fast < slow


@pytest.mark.parametrize(
    ("trace", "message"),
    [
        (3, "expected the path of a trace file, got 3"),
        ([], "expected the path of a trace file"),
        ({"file": "missing.json"}, "no such trace file"),
        ({"file": "t.json", "steps": 1}, "unknown key 'steps'.*did you mean 'step'"),
        ({"file": "t.json", "step": -1}, "step"),
        ({"file": "t.json", "stamp": ["1"]}, "unknown key 'stamp'"),
    ],
)
def test_wrong_blocks_say_what_is_wrong(tmp_path: Path, trace: Any, message: str) -> None:
    write(tmp_path)
    with pytest.raises(InputError, match=message):
        list(scenario_of({"topology": "dgx-a100", "workload": {"trace": trace}}, file=str(tmp_path / "s.yaml")).expand())


def test_a_changed_file_is_another_workload(tmp_path: Path) -> None:
    path = write(tmp_path)

    def workload() -> Trace:
        (point,) = scenario_of({"topology": "dgx-a100", "workload": {"trace": str(path)}}).expand()
        assert isinstance(point.job.workload, Trace)
        return point.job.workload

    before = workload()
    assert workload() == before
    os.utime(path, ns=(1, 1))
    assert workload() != before


def test_a_machine_without_a_gpu_says_so() -> None:
    training = {"model": "gpt2", "sequence_length": 128, "batch_size": 1, "precision": "bf16"}
    cpu_only = {"devices": {"cpu0": {"part": "grace-480gb"}}}
    data = {"topology": cpu_only, "workload": {"training": training}, "placement": {"optimizer_states": "dram"}}
    with pytest.raises(InputError, match="has no GPU to run on; add one"):
        list(scenario_of(data).expand())


def test_equal_ranks_of_a_recording_are_replayed_as_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    info = {"backend": "nccl", "world_size": 4}
    files = [str(write(tmp_path, f"{rank}.json", distributedInfo={**info, "rank": rank})) for rank in range(4)]
    sizes: list[int] = []
    plain = engine.replay

    def counting(program: Program, **options: Any) -> Replay:
        sizes.append(len(program.operations))
        return plain(program, **options)

    monkeypatch.setattr(engine, "replay", counting)

    def run(is_folded: bool) -> Result:
        data = {"topology": "dgx-a100", "workload": {"trace": {"file": files}}, "options": {"is_folded": is_folded}}
        (point,) = scenario_of(data, file="/x/s.yaml").expand()
        return experiment.run(point, with_penalty=False)

    folded, whole = run(True), run(False)
    assert sizes[0] * 4 == sizes[1]
    assert [record.id for record in folded.replay.operations] == [record.id for record in whole.replay.operations]
    assert [record.end_s for record in folded.replay.operations] == pytest.approx(
        [record.end_s for record in whole.replay.operations], rel=1e-9
    )
    assert folded.summary.breakdown_s == pytest.approx(whole.summary.breakdown_s, rel=1e-9, abs=1e-12)
    assert {name: use.bytes for name, use in folded.summary.channels.items()} == pytest.approx(
        {name: use.bytes for name, use in whole.summary.channels.items()}
    )


def test_ranks_are_taken_where_a_recording_does_not_say(tmp_path: Path) -> None:
    def ranks(asked: int, **header: Any) -> int:
        step = load_trace(write(tmp_path, **header), num_ranks=asked)
        return sum(item.num_ranks for item in step.rank_classes)

    assert [ranks(0), ranks(8), ranks(8, distributedInfo={"rank": 0, "world_size": 8})] == [1, 8, 8]
    with pytest.raises(InputError, match="is of a job of 8 ranks, 4 are asked for; leave out the number of ranks"):
        ranks(4, distributedInfo={"rank": 0, "world_size": 8})
    with pytest.raises(InputError, match="only Chakra files count elements"):
        load_trace(write(tmp_path), element_bytes=2.0)


def test_rules_place_the_copies_of_any_kind_of_trace(tmp_path: Path) -> None:
    nodes = [
        {"id": 1, "name": "aten::copy_", "parent": 0, "inputs": [[1, 1, 0, 2**20, 4, "cuda:0"], [2, 2, 0, 2**20, 4, "cpu"]],
         "input_shapes": [[2**20], [2**20]], "input_types": ["Tensor(float)", "Tensor(float)"],
         "outputs": [[1, 1, 0, 2**20, 4, "cuda:0"]]},
        {"id": 2, "name": "aten::mm", "parent": 0, "inputs": [[1, 1, 0, 64, 4, "cuda:0"], [3, 3, 0, 64, 4, "cuda:0"]],
         "input_shapes": [[8, 8], [8, 8]], "input_types": ["Tensor(float)", "Tensor(float)"],
         "outputs": [[4, 4, 0, 64, 4, "cuda:0"]]},
    ]  # fmt: skip
    path = tmp_path / "et.json"
    path.write_text(json.dumps({"schema": "1.0.1", "nodes": nodes}))
    step = load_trace(path, rules=parse_rules(["h2d min=1MB = weights"]))
    (copy,) = [op for op in step.operations if op.kind is Kind.TRANSFER]
    assert (copy.source, copy.target) == ("home:weights", "gpu")
    assert "copies placed as weights by rule: 1" in step.notes
    assert load_trace(path, rules=parse_rules(["d2h = weights"])).notes == load_trace(path).notes
