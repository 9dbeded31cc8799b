"""`bound_by` names the resource that is worth most: raising it by 10 % gains most, or ties."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from sim.config import scenario_of
from sim.experiment import run
from sim.metrics.relief import saving_s
from sim.study.sensitivity import sensitivity
from sim.topology.scaling import Knob, knobs, scaled

BOX, DESKTOP = "epyc-9554p-2x4090", "desktop-rtx-4090"
#: name -> topology, workload, placement, what binds
CASES: dict[str, tuple[str, dict[str, Any], dict[str, Any], str]] = {
    "compute": (
        BOX,
        {"training": {"model": "llama-2-7b", "batch_size": 4, "parallelism": {"data": 2, "zero_stage": 3}}},
        {"weights": "dram", "optimizer_states": "dram"},
        "gpu0.sm",
    ),
    "decode": (
        DESKTOP,
        {"inference": {"model": "llama-2-7b", "prompt_length": 128, "output_length": 64}},
        {},
        "gpu0.gddr",
    ),
    "streamed weights": (
        DESKTOP,
        {"inference": {"model": "llama-2-7b", "prompt_length": 128, "output_length": 8}},
        {"weights": "dram"},
        "cpu0->gpu0.pcie",
    ),
    "cpu optimizer": (
        DESKTOP,
        {"training": {"model": "llama-2-7b", "sequence_length": 256, "optimizer": {"offload": True}}},
        {},
        "cpu0.dram",
    ),
    "storage": (
        BOX,
        {"training": {"model": "llama-2-7b", "sequence_length": 256, "parallelism": {"data": 2, "zero_stage": 3}}},
        {"optimizer_states": "nvme0"},
        "nvme0",
    ),
}


def is_about(knob: Knob, resource: str) -> bool:
    device, _, unit = resource.rpartition(".")
    if unit == "sm":
        return knob.quantity == "compute" and device in knob.devices
    return knob.quantity in ("bandwidth", "cores") and resource in knob.channels


@pytest.mark.parametrize("name", CASES)
def test_what_binds_is_worth_most(name: str) -> None:
    topology, workload, placement, expected = CASES[name]
    file = scenario_of({"topology": topology, "workload": workload, "placement": placement}, "case")
    resource = run(file.resolve(), with_penalty=False).summary.bound_by
    gains = {row.knob.name: (-row.high, row.knob) for row in sensitivity(file).rows}
    best = max(gain for gain, _knob in gains.values())
    own = [gain for gain, knob in gains.values() if is_about(knob, resource)]
    assert own, f"no sensitivity is about {resource}"
    assert max(own) >= best - 1e-3, f"{resource} binds, but {max(gains, key=lambda key: gains[key][0])} gains more"
    assert resource == expected


@pytest.mark.parametrize("name", CASES)
def test_twice_the_speed_saves_no_more_than_was_said_and_a_fair_part_of_it(name: str) -> None:
    topology, workload, placement, _ = CASES[name]
    scenario = scenario_of({"topology": topology, "workload": workload, "placement": placement}, "case").resolve()
    before = run(scenario, with_penalty=False).summary
    knob = next(knob for knob in knobs(scenario.machine) if is_about(knob, before.bound_by))
    after = run(replace(scenario, machine=scaled(scenario.machine, knob, 2.0)), with_penalty=False).summary
    promised = saving_s(before.owners_s[before.bound_by], 2.0)
    saved = before.step_time_s - after.step_time_s
    assert 0.3 * promised < saved < 1.02 * promised  # drives run into their PCIe links
