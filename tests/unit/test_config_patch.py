"""Changing a machine from a scenario: a mapping is laid over what is there, null removes, inline machines can be changed."""

from __future__ import annotations

from typing import Any

import pytest

from sim.config import load_machine, parse_yaml
from sim.config.scenario_file import scenario_from
from sim.errors import InputError
from sim.topology.machine import Machine

WORK = "workload: {training: {model: llama-2-7b}}\n"
INLINE = """\
topology:
  devices:
    cpu0: {part: epyc-9554p, memory: {part: ddr5-4800-2r, channels: 12, capacity: 768 GiB}}
    gpu[0-1]: {part: rtx-4090, to: cpu0}
"""


def machine(topology: str) -> Machine:
    return scenario_from(parse_yaml(topology + WORK, "f.yaml")).resolve().machine


def changed(change: str) -> Machine:
    return machine(f"topology: {{base: epyc-9554p-2x4090, set: {{{change}}}}}\n")


def dram(built: Machine) -> tuple[float, float]:
    return built.tiers["cpu0.dram"].capacity_bytes, built.channels["cpu0.dram"].bandwidth_per_s


def test_a_nested_mapping_changes_what_it_names_and_keeps_the_rest() -> None:
    capacity, bandwidth = dram(load_machine("epyc-9554p-2x4090"))
    for change in ("cpu0: {memory: {channels: 4}}", "cpu0.memory: {channels: 4}", "cpu0.memory.channels: 4"):
        assert dram(changed(change)) == (capacity, bandwidth / 2)


def test_a_short_link_is_opened_before_it_is_changed() -> None:
    built = changed("gpu1: {link: {lanes: 8}}")
    edge = next(edge for edge in built.edges if edge.target == "gpu1")
    assert (edge.link, edge.lanes) == ("pcie", 8)


def test_null_removes_a_device_or_a_key() -> None:
    assert "gpu1" not in changed("gpu1: null").devices
    full = changed("cpu0: {memory: {dimms_per_channel: 2, transfers: 3600 MT/s}}")
    assert dram(full)[1] == pytest.approx(dram(load_machine("epyc-9554p-2x4090"))[1] * 3600 / 4800)


def test_a_machine_written_inline_can_be_changed_and_swept() -> None:
    assert dram(machine(INLINE + "  set: {cpu0.memory.channels: 6}\n"))[1] == pytest.approx(dram(machine(INLINE))[1] / 2)
    added = machine(INLINE + "  add: {cxl0: {part: cxl-expander-asic-x8, to: cpu0}}\n  set: {gpu1: null}\n")
    assert "cxl0" in added.tiers
    assert added.gpus() == ("gpu0",)
    file = scenario_from(parse_yaml(INLINE + WORK + "sweep: {topology.cpu0.memory.channels: [3, 6, 12]}\n", "f.yaml"))
    rates = [dram(scenario.machine)[1] for scenario in file.expand()]
    assert rates == pytest.approx([rates[2] / 4, rates[2] / 2, rates[2]])


@pytest.mark.parametrize(
    ("topology", "message"),
    [
        (
            "topology: {base: epyc-9554p-2x4090, set: {cpu0: {memory: {chanels: 4}}}}\n",
            "f.yaml:1: topology.set.cpu0.memory.chanels: unknown key 'chanels'; did you mean 'channels'?",
        ),
        (
            "topology: {base: epyc-9554p-2x4090, shared_gpu_memory: 16 GiB}\n",
            "f.yaml:1: topology.shared_gpu_memory: 'shared_gpu_memory' does not stand beside 'base'; "
            "write set: {shared_gpu_memory: ...}",
        ),
        (
            "topology: {base: epyc-9554p-2x4090, gpu0: {power_cap: 250 W}}\n",
            "f.yaml:1: topology.gpu0: unknown key 'gpu0'; known: add, base, parts, set, sources; "
            "a field of a device is changed by set: {gpu0.power_cap: 250 W}",
        ),
        (
            "topology: {base: mac-m2-ultra, set: {gpu0.memory.bandwidth: 400 GB/s}}\n",
            "f.yaml:1: topology.set.gpu0.memory.bandwidth: gpu0 has no memory modules, its memory is part of it; "
            "write topology.parts: {mine: {base: m2-ultra, memory.bandwidth: ...}} and set gpu0.part: mine",
        ),
        (
            "topology: {base: dgx-a100, set: {gpu0.ecc: false}}\n",
            "f.yaml:1: topology.set.gpu0.ecc: a100-80gb-sxm keeps no check bits among its data; leave it out: only NVIDIA's "
            "boards with GDDR6 can turn it on or off",
        ),
        (INLINE + "  set: [1]\n", "f.yaml:5: topology.set: expected a mapping, got the list [1]"),
        (INLINE + "  set: {gpu7.link.lanes: 8}\n", "f.yaml:5: topology.set.gpu7.link.lanes: unknown device or link 'gpu7'"),
    ],
)
def test_faults_of_a_change_stand_where_it_was_written(topology: str, message: str) -> None:
    with pytest.raises(InputError) as caught:
        machine(topology)
    faults: Any = caught.value.faults
    assert str(faults[0]).startswith(message)


@pytest.mark.parametrize(
    ("change", "tier", "size"),
    [
        ("cpu0.dram.capacity: 94 GiB", "cpu0.dram", 94),
        ("cpu0.dram: 94 GiB", "cpu0.dram", 94),
        ("gpu0.gddr.capacity: 48 GiB", "gpu0.gddr", 48),
        ("gpu0.memory.capacity: 48 GiB", "gpu0.gddr", 48),
    ],
)
def test_a_tier_is_set_by_the_name_that_results_give_it(change: str, tier: str, size: int) -> None:
    assert changed(change).tiers[tier].capacity_bytes == size * 2**30


def faults_of(topology: str) -> list[str]:
    with pytest.raises(InputError) as error:
        scenario_from(parse_yaml(WORK + topology, "f.yaml"))
    return [str(fault) for fault in error.value.faults]


def test_every_fault_of_set_stands_at_its_own_line() -> None:
    lines = [
        "topology:",
        "  base: epyc-9554p-2x4090",
        "  set:",
        "    gpu0.lnk.lanes: 8",
        "    cpu0.memory.capcity: 32 GB",
        "    gpu9.capacity: 3 GB",
    ]
    assert sorted(faults_of("\n".join(lines))) == [
        "f.yaml:5: topology.set.gpu0.lnk.lanes: unknown key 'lnk'; did you mean 'link'?",
        "f.yaml:6: topology.set.cpu0.memory.capcity: unknown key 'capcity'; did you mean 'capacity'?",
        "f.yaml:7: topology.set.gpu9.capacity: unknown device or link 'gpu9'; did you mean 'gpu1'?",
    ]


def test_hardware_that_a_change_makes_impossible_is_told_at_the_change() -> None:
    (fault,) = faults_of("topology:\n  base: epyc-9554p-2x4090\n  set: {cpu0.memory.capacity: 400 TB}\n")
    assert fault.startswith("f.yaml:4: topology.set.cpu0.memory.capacity: 363.8 TiB of DRAM, epyc-9554p addresses 6 TiB")


def test_hardware_that_shows_elsewhere_is_told_at_the_topology() -> None:
    (fault,) = faults_of("topology: {base: dgx-a100, set: {'gpu*.part': rtx-4090}}\n")
    what = "f.yaml:2: topology: dgx-a100 as changed here: links.nvlink.part: rtx-4090 (gpu0) has no NVLink; "
    assert fault == what + "remove the link: copies between the devices go over PCIe"
