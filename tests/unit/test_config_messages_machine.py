# ruff: noqa: E501 - exact messages stay on one line
"""Machines that cannot exist, and bad numbers in them: the exact message of each."""

from __future__ import annotations

import pytest

from sim.config import builtins, load_machine, parse_yaml
from sim.config.scenario_file import scenario_from
from sim.errors import InputError, MachineError

SCENARIO = """\
topology: {base: epyc-9554p-2x4090, %s}
workload: {training: {model: llama-2-7b, parallelism: {data: 2, zero_stage: 3}}}
"""
INLINE = """\
topology:
  devices:
    cpu0: {part: epyc-9554p, memory: {part: ddr5-4800-2r, channels: 8, capacity: 512 GiB}}
    gpu0: {part: my-gpu, to: cpu0}
  sources: {mine: {kind: assumed, cite: a guess}}
  parts:
    my-gpu:
      kind: gpu
      title: my GPU
      source: mine
      vendor: other
      family: mine
      hypothetical: true
      basis: a guess
      compute: {bf16: 100 TFLOP/s}
      memory: {part: gddr6x, capacity: 24 GiB, bandwidth: 900 GB/s}
      pcie: {part: pcie4, lanes: 16}
workload: {training: {model: llama-2-7b}}
"""


def fault(text: str) -> str:
    with pytest.raises(InputError) as caught:
        scenario_from(parse_yaml(text, "f.yaml"))
    return str(caught.value)


@pytest.mark.parametrize(
    ("patch", "expected"),
    [
        (
            "add: {bridge: {part: nvlink3, lanes: 4, between: [gpu0, gpu1]}}",
            "f.yaml:1: topology.add.bridge.part: rtx-4090 (gpu0) has no NVLink; remove the link: copies between the devices go over PCIe",
        ),
        (
            "add: {gpu2: {part: rtx-4090}}",
            "f.yaml:1: topology.add.gpu2: 'gpu2' is connected to no CPU; hang it on a device with 'to:', or join it by a link",
        ),
        (
            "set: {gpu0.count: 4}",
            "f.yaml:1: topology.set.gpu0.count: 4 gpus as one device; count joins drives, memory modules or adapters; name each: gpu[0-3]",
        ),
        (
            "set: {gpu1.link.lanes: 32}",
            "f.yaml:1: topology.set.gpu1.link.lanes: 32 PCIe lanes at gpu1, rtx-4090 has 16; use at most 16",
        ),
        (
            "set: {gpu1.link.part: pcie5}",
            "f.yaml:1: topology.set.gpu1.link.part: pcie5 is faster than what rtx-4090 (gpu1) has; use pcie4",
        ),
        (
            "set: {cpu0.memory.channels: 16}",
            "f.yaml:1: topology.set.cpu0.memory.channels: 16 channels populated, epyc-9554p has 12; populate at most 12",
        ),
        (
            "set: {cpu0.memory.transfers: 5600 MT/s}",
            "f.yaml:1: topology.set.cpu0.memory.transfers: 5600 MT/s, ddr5-4800-2r is made for 4800 MT/s; use at most 4800 MT/s",
        ),
        (
            "set: {cpu0.memory.part: ddr5-6400-2r, cpu0.memory.transfers: 6400 MT/s}",
            "f.yaml:1: topology.set.cpu0.memory.transfers: 6400 MT/s, epyc-9554p drives 1 DIMM per channel at 4800 MT/s; use at most 4800 MT/s, or say overclocked: true",
        ),
        (
            "set: {cpu0.memory.part: mrdimm-8800}",
            "f.yaml:1: topology.set.cpu0.memory.part: epyc-9554p does not drive mrdimm; use a part of type ddr5",
        ),
        (
            "set: {cpu0.memory.part: ddr4-3200}",
            "f.yaml:1: topology.set.cpu0.memory.part: epyc-9554p does not drive ddr4; use a part of type ddr5",
        ),
        (
            "set: {cpu0.memory.capacity: 7 TiB}",
            "f.yaml:1: topology.set.cpu0.memory.capacity: 7 TiB of DRAM, epyc-9554p addresses 6 TiB; use at most 6 TiB",
        ),
        (
            "set: {cpu0.memory.capacity: 0 GiB}",
            "f.yaml:1: topology.set.cpu0.memory.capacity: must be greater than 0, got '0 GiB'",
        ),
    ],
)
def test_impossible_machines(patch: str, expected: str) -> None:
    assert fault(SCENARIO % patch) == expected


def test_an_impossible_machine_is_its_own_kind_of_error() -> None:
    with pytest.raises(InputError) as caught:
        scenario_from(parse_yaml(SCENARIO % "set: {gpu1.link.lanes: 32}", "f.yaml"))
    assert caught.value.exit_code == MachineError.exit_code == 2


def test_lane_count_both_sides() -> None:
    at_limit = (
        SCENARIO
        % "add: {gpu2: {part: rtx-4090, to: cpu0}, gpu3: {part: rtx-4090, to: cpu0}, gpu4: {part: rtx-4090, to: cpu0}, gpu5: {part: rtx-4090, to: cpu0}}"
    )
    scenario_from(parse_yaml(at_limit, "f.yaml"))  # 6 x 16 + 4 x 4 = 112 of 128 lanes
    too_many = at_limit.replace("add: {", "add: {gpu6: {part: rtx-4090, to: cpu0}, gpu7: {part: rtx-4090, to: cpu0}, ")
    assert fault(too_many) == ("f.yaml:1: topology.add.gpu5: 144 PCIe lanes at cpu0, epyc-9554p has 128; use at most 128")


@pytest.mark.parametrize(
    ("bandwidth", "expected"),
    [
        ("-1 GB/s", "f.yaml:16: parts.my-gpu.memory.bandwidth: must be greater than 0, got '-1 GB/s'"),
        ("0 GB/s", "f.yaml:16: parts.my-gpu.memory.bandwidth: must be greater than 0, got '0 GB/s'"),
        ("900", "f.yaml:16: parts.my-gpu.memory.bandwidth: missing unit: got 900; write a bandwidth such as '64 GB/s'"),
        (
            "900 GiB",
            "f.yaml:16: parts.my-gpu.memory.bandwidth: wrong unit: 'GiB' is a unit of bytes in '900 GiB'; write a bandwidth such as '64 GB/s'",
        ),
    ],
)
def test_bad_numbers_in_a_part(bandwidth: str, expected: str) -> None:
    assert scenario_from(parse_yaml(INLINE, "f.yaml")).resolve().machine.devices["gpu0"].is_hypothetical
    assert fault(INLINE.replace("900 GB/s", bandwidth)) == expected


POOL = """\
topology:
  base: cxl3-pool-4-hosts
  set: {pool0.grants: %s}
workload: {training: {model: llama-2-7b}}
"""


def test_a_pool_grants_what_it_has_and_no_more() -> None:
    scenario_from(parse_yaml(POOL % "{host0: 1024 GiB, host1: 1024 GiB}", "f.yaml"))
    assert fault(POOL % "{host0: 1024 GiB, host1: 1025 GiB}") == (
        "f.yaml:3: topology.set.pool0.grants: 2.001 TiB granted, the pool holds 2 TiB; grant less, or add capacity"
    )
    assert fault(POOL % "{host9: 1 GiB}") == (
        "f.yaml:3: topology.set.pool0.grants.host9: no host 'host9'; hosts are host0, host1, host2, host3"
    )


EXPANDER = """\
topology:
  base: xeon-8480-2s
  add: {gpu0: {part: h100-pcie, to: cpu0}, cxl0: {part: mine, to: cpu0}}
  sources: {mine: {kind: assumed, cite: a guess}}
  parts:
    mine: {kind: cxl, title: mine, source: mine, link: {part: cxl2-pcie5, lanes: 8}, memory: ddr5-4800-2r, channels: 2, capacity: 256 GiB, latency: {idle: 200 ns}, read_bandwidth: %s, hypothetical: %s}
workload: {training: {model: llama-2-7b}}
"""


def test_a_controller_is_not_faster_than_its_link() -> None:
    scenario_from(parse_yaml(EXPANDER % ("31.5 GB/s", "false"), "f.yaml"))
    assert fault(EXPANDER % ("32 GB/s", "false")) == (
        "f.yaml:3: topology.add.cxl0.part: read_bandwidth of mine is 32 GB/s, its cxl2-pcie5 x8 carries 31.51 GB/s; lower it, or give the part a wider link"
    )


def test_a_hypothetical_controller_may_be_ahead_of_its_time_and_not_of_its_link() -> None:
    ahead = EXPANDER.replace("hypothetical: %s", "hypothetical: true, basis: next year")
    assert "read_bandwidth of mine is 32 GB/s, its cxl2-pcie5 x8 carries 31.51 GB/s" in fault(ahead % "32 GB/s")
    faster = (
        ahead.replace("cxl2-pcie5", "cxl3-pcie6")
        .replace("xeon-8480-2s", "2028-hbm4")
        .replace("gpu0: {part: h100-pcie, to: cpu0}, ", "")
        .replace("cxl0:", "cxl1:")
    )
    assert "cxl1" in scenario_from(parse_yaml(faster % "60 GB/s", "f.yaml")).resolve().machine.tiers


def test_a_hypothetical_part_says_why() -> None:
    assert "parts.mine: a hypothetical part has no basis; say why it is believed possible: basis: ..." in fault(
        EXPANDER % ("20 GB/s", "true")
    )


def test_overclocked_modules_run_above_the_socket() -> None:
    patch = "set: {cpu0.memory.part: ddr5-6400-2r, cpu0.memory.transfers: 6400 MT/s, cpu0.memory.overclocked: true}"
    machine = scenario_from(parse_yaml(SCENARIO % patch, "f.yaml")).resolve().machine
    rated = load_machine("epyc-9554p-2x4090")
    tier = "cpu0.dram"
    assert machine.channels[tier].bandwidth_per_s == pytest.approx(rated.channels[tier].bandwidth_per_s * 6400 / 4800)


def test_every_number_of_a_part_needs_a_source() -> None:
    assert "has no source" in fault(INLINE.replace("      source: mine\n", ""))


@pytest.mark.parametrize("name", sorted(builtins("topologies")))
def test_shipped_machines_can_exist(name: str) -> None:
    assert load_machine(name).tiers
