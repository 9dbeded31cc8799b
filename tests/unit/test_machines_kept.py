"""Points of a sweep share what they have in common, and nothing else: machines, flows, times of kernels."""

from __future__ import annotations

import os
from pathlib import Path

from sim.config import load_scenario, scenario_of
from sim.experiment import run
from sim.held_out import hold_out

DATA = {"training": {"model": "llama-2-7b", "batch_size": 1, "sequence_length": 512}, "topology": "epyc-9554p-2x4090"}
MACHINE = (
    "devices:\n  cpu0: {part: epyc-9554p, memory: {part: ddr5-4800-2r, channels: 12, capacity: CAP}}\n"
    "  gpu0: {part: rtx-4090, link: {part: pcie4, lanes: 16}, to: cpu0}\n"
)
SCENARIO = "topology: {base: ./box.yaml, set: {cpu0.cores: 32}}\ntraining: {model: gpt2, batch_size: 1, sequence_length: 64}\n"


def test_points_on_equal_machines_share_the_machine_and_others_do_not() -> None:
    file = scenario_of(DATA)
    one, two = (file.resolve({"workload.training.batch_size": batch}).machine for batch in (1, 2))
    assert one is two
    slower = file.resolve({"topology": {"base": "epyc-9554p-2x4090", "set": {"cpu0.taken": "10%"}}}).machine
    assert slower is not one
    assert slower.channels["cpu0.dram"].bandwidth_per_s < one.channels["cpu0.dram"].bandwidth_per_s


def test_a_machine_whose_file_was_changed_is_read_again(tmp_path: Path) -> None:
    box, scenario = tmp_path / "box.yaml", tmp_path / "job.yaml"
    scenario.write_text(SCENARIO, encoding="utf-8")
    sizes = []
    for step, capacity in enumerate(("384 GB", "768 GB")):
        box.write_text(MACHINE.replace("CAP", capacity), encoding="utf-8")
        os.utime(box, ns=(step * 10**9, step * 10**9))
        sizes.append(load_scenario(scenario).resolve().machine.tiers["cpu0.dram"].capacity_bytes)
    assert sizes == [384e9, 768e9]


def test_what_is_held_out_is_another_machine() -> None:
    file = scenario_of(DATA)
    known = file.resolve({"workload.training.batch_size": 1}).machine
    hold_out(["some/table"])
    try:
        assert file.resolve({"workload.training.batch_size": 1}).machine is not known
    finally:
        hold_out([])


def test_company_changes_no_result() -> None:
    file = scenario_of(DATA | {"placement": {"optimizer_states": "dram"}})
    overlays = [{"workload.training.batch_size": batch, "workload.training.sequence_length": 256} for batch in (1, 2, 3)]
    first = [run(file.resolve(overlay)).point() for overlay in overlays]
    again = [run(file.resolve(overlay)).point() for overlay in reversed(overlays)]
    assert first == again[::-1]
