"""The part catalogue: what must be in it, sources, dense peaks, numbers that follow from one another."""

from __future__ import annotations

import re
from itertools import pairwise

import pytest

from sim.config import load_machine, parse_yaml, scenario_of
from sim.config.machine import machine_from
from sim.config.parts import Catalogue, load_parts
from sim.errors import InputError
from sim.topology import parts as p
from sim.topology.wires import raw_rate

#: every part that the catalogue promises
_PROMISED = """
ddr4-2666 ddr4-3200 ddr5-4800-1r ddr5-4800-2r ddr5-5600-1r ddr5-5600-2r ddr5-6000-2r ddr5-6400-2r mrdimm-8800 mrdimm-12800
lpddr5x-grace lpddr5x-8533-soc hbm2 hbm2e hbm3 hbm3e hbm4 gddr6 gddr6x gddr7
pcie3 pcie4 pcie5 pcie6 pcie7 cxl1-pcie5 cxl2-pcie5 cxl3-pcie6 cxl3.1-pcie6 nvlink1 nvlink2 nvlink3 nvlink4 nvlink5
nvlink-c2c xgmi-socket-18 xgmi-socket-32 xgmi-mi300x upi-10.4 upi-16 upi-24 ethernet-100g ethernet-400g ethernet-800g
infiniband-hdr infiniband-ndr infiniband-xdr slingshot-11
cxl-expander-asic-x8 cxl-expander-asic-x16 cxl-expander-fpga cxl2-switch cxl3-switch cxl-pool-fpga cxl3-pool-4-heads
nvswitch1 nvswitch2 nvswitch3 nvswitch4 nvme-pcie3-2tb nvme-pcie4-2tb nvme-pcie5-enterprise nvme-pcie5-2tb
optane-dcpmm-256gb optane-200-256gb
v100-16gb-sxm v100-32gb-sxm t4 a10 a100-40gb-sxm a100-80gb-sxm h100-pcie h100-sxm h200-sxm b200-sxm gb200 gb300 l40s
rtx-3090 rtx-4090 rtx-5090 mi250x-die mi300x mi300a mi325x mi355x
epyc-7742 epyc-7763 epyc-9554p epyc-9654 epyc-9755 xeon-8280 xeon-8380 xeon-8480 xeon-8592 xeon-6980p xeon-max-9480
grace-480gb m1 m2-ultra m3-max m4-max m5-max strix-halo gb10
"""
#: dense peaks in TFLOP/s from the vendors' data sheets (sparse ones are twice as high)
DENSE = {
    ("v100-32gb-sxm", "fp16"): 125, ("a100-80gb-sxm", "bf16"): 312, ("h100-sxm", "bf16"): 989.4, ("h100-sxm", "fp8"): 1978.9,
    ("h200-sxm", "bf16"): 989.4, ("h100-pcie", "bf16"): 756, ("h100-nvl", "bf16"): 835.5, ("b200-sxm", "bf16"): 2250,
    ("gb200", "fp4"): 10000, ("gb300", "fp4"): 15000, ("l40s", "bf16"): 362, ("rtx-3090", "bf16"): 71,
    ("rtx-4090", "bf16"): 165.2, ("rtx-5090", "bf16"): 209.5, ("mi300x", "bf16"): 1307.4, ("mi355x", "bf16"): 2516.6,
    ("gb10", "fp4"): 500,
}  # fmt: skip


@pytest.fixture(scope="module")
def catalogue() -> Catalogue:
    return load_parts()


def of_kind(catalogue: Catalogue, kind: type[p.Part]) -> list[tuple[str, p.Part]]:
    return [(name, part) for name, part in catalogue.parts.items() if isinstance(part, kind)]


def test_what_is_promised_is_there(catalogue: Catalogue) -> None:
    assert [name for name in _PROMISED.split() if name not in catalogue.parts] == []


def test_numbers_that_decide_a_result_have_a_source(catalogue: Catalogue) -> None:
    needed = {
        "gpu": ["memory.capacity", "memory.bandwidth"], "memory": ["transfers", "efficiency"], "link": ["efficiency"],
        "cpu": ["cores", "lines_per_core"], "nvme": ["read_bandwidth", "write_bandwidth", "read_latency"],
        "pmem": ["read_bandwidth", "write_bandwidth", "read_latency"], "cxl": ["capacity", "latency.idle"],
    }  # fmt: skip
    for name, part in catalogue.parts.items():
        for path in needed.get(part.kind, []):
            assert re.match(r"(datasheet|microbenchmark|fit|assumed): ", catalogue.sources[name].get(path, "")), (name, path)


def test_assumed_numbers_state_an_interval(catalogue: Catalogue) -> None:
    for name, table in catalogue.source_keys.items():
        for path, source in table.items():
            assert source.kind != "assumed" or source.interval, (name, path)


def test_hypothetical_parts_state_a_basis(catalogue: Catalogue) -> None:
    found = {name for name, part in catalogue.parts.items() if part.hypothetical}
    assert found >= {"pcie7", "hbm4", "mrdimm-12800", "cxl3-pcie6", "cxl3.1-pcie6", "cxl3-pool-x16"}
    assert all(catalogue.parts[name].basis for name in found)


@pytest.mark.parametrize(("key", "peak"), DENSE.items())
def test_peaks_are_dense(catalogue: Catalogue, key: tuple[str, str], peak: float) -> None:
    part = catalogue.parts[key[0]]
    assert isinstance(part, p.Gpu)
    assert part.compute[key[1]] == pytest.approx(peak * 1e12, rel=1e-3)


def test_narrower_formats_gain_what_hardware_gives(catalogue: Catalogue) -> None:
    for name, part in of_kind(catalogue, p.Gpu):
        assert isinstance(part, p.Gpu)
        half = part.compute.get("bf16", part.compute.get("fp16", 0.0))
        # four times would be a sparse peak; GeForce halves 16-bit products that are summed in fp32, but not block-scaled ones
        is_halved = name.startswith("rtx-50") and part.compute.get("fp8") == part.compute["int8"]
        assert part.compute.get("fp8", 0.0) <= (4.01 if is_halved else 2.05) * half, name
        assert part.compute["fp32"] <= half * 1.001, name


def test_links_double_from_generation_to_generation(catalogue: Catalogue) -> None:
    rates = [raw_rate(catalogue.parts[f"pcie{generation}"]) for generation in (3, 4, 5, 6, 7)]  # type: ignore[arg-type]
    assert rates[0] * 16 == pytest.approx(15.75e9, rel=1e-3)
    assert all(1.9 < after / before <= 2.0 for before, after in pairwise(rates))
    nvlinks = [catalogue.parts[f"nvlink{generation}"] for generation in (1, 2, 3, 4, 5)]
    totals = [raw_rate(link) * link.lanes for link in nvlinks]  # type: ignore[union-attr, arg-type]
    assert totals == pytest.approx([80e9, 150e9, 300e9, 450e9, 900e9])


def test_rates_are_plausible_for_their_technology(catalogue: Catalogue) -> None:
    per_stack = {"hbm2": 311e9, "hbm2e": 461e9, "hbm3": 820e9, "hbm3e": 1229e9, "hbm4": 2100e9}
    for name, part in of_kind(catalogue, p.Gpu):
        assert isinstance(part, p.Gpu)
        module = catalogue.parts[part.memory.part]
        assert isinstance(module, p.Memory)
        if module.type in per_stack:
            assert part.memory.bandwidth <= 8 * per_stack[module.type], name
    for name, part in of_kind(catalogue, p.Storage):
        assert isinstance(part, p.Storage)
        link = catalogue.parts[part.link.part] if part.link else None
        if part.link and isinstance(link, p.Link):
            assert part.read_bandwidth <= raw_rate(link) * part.link.lanes * 1.01, name


def test_sockets_are_consistent(catalogue: Catalogue) -> None:
    for name, part in of_kind(catalogue, p.Cpu):
        assert isinstance(part, p.Cpu)
        assert bool(part.memory_channels) == bool(part.memory_types), name
        assert part.memory_transfers_2dpc <= part.memory_transfers or not part.memory_channels, name
        assert part.max_sockets == 1 or part.sockets is not None or "mi300a" in name, name
        if part.chiplet:
            assert part.cores % part.chiplet.cores == 0 or part.cores < part.chiplet.cores, name


def test_gigabytes_of_hbm_labels_are_binary() -> None:
    """nvidia-smi reports 143771 MiB on H200 (141 on the label), rocm-smi 191.98 GiB on MI300X (192 on the label)."""
    assert load_machine("dgx-h200").tiers["gpu0.hbm"].capacity_bytes == pytest.approx(143771 * 2**20, rel=0.01)
    assert load_machine("mi300x-8x").tiers["gpu0.hbm"].capacity_bytes == pytest.approx(191.98 * 2**30, rel=0.01)


def test_a_device_with_memory_that_does_not_exist_yet_does_not_either() -> None:
    text = "devices: {{cpu0: {{part: xeon-6980p, memory: {{part: {0}, channels: 12, capacity: 768 GiB}}}}}}"
    assert machine_from(parse_yaml(text.format("mrdimm-12800"), "m")).device("cpu0").is_hypothetical
    assert not machine_from(parse_yaml(text.format("mrdimm-8800"), "m")).device("cpu0").is_hypothetical


def fewer_stacks(**changes):
    return {
        "topology": {
            "base": "h100-sxm-1x", "parts": {"mine": {"base": "h100-sxm", "memory.bandwidth": "2 TB/s", **changes}},
            "set": {"gpu0.part": "mine"},
        },
        "workload": {"inference": {"model": "llama-3-8b"}},
    }  # fmt: skip


def test_a_part_may_be_another_with_some_numbers_replaced() -> None:
    asked = fewer_stacks(memory={"capacity": "40 GiB"})
    machine = scenario_of(asked).resolve().machine
    part, whole = machine.part("gpu0"), scenario_of(asked | {"topology": "h100-sxm-1x"}).resolve().machine.part("gpu0")
    assert part["memory"]["bandwidth"] == 2e12
    assert part["memory"]["capacity"] == 40 * 2**30
    assert {key for key in whole if part[key] != whole[key]} == {"title", "memory"}
    assert any("gpu0.memory.bandwidth" in line and "in place of the number of h100-sxm" in line for line in machine.assumptions)
    swept = asked | {"sweep": {"topology.parts.mine.memory.bandwidth": ["1 TB/s", "4 TB/s"]}}
    found = [point.machine.part("gpu0")["memory"]["bandwidth"] for point in scenario_of(swept).expand()]
    assert found == [1e12, 4e12]


@pytest.mark.parametrize(("changes", "path", "what"), [
    ({"base": "h100-sxmm"}, "parts.mine.base", "unknown part 'h100-sxmm'"),
    ({"memory.bandwith": "1 TB/s"}, "parts.mine.memory.bandwith", "unknown key 'bandwith'"),
    ({"kind": "cpu"}, "parts.mine.kind", "is a gpu, not a cpu"),
    ({"clock": {"value": "1 GHz", "source": "nobody"}}, "parts.mine.clock", "unknown source 'nobody'"),
])  # fmt: skip
def test_faults_of_a_derived_part_name_what_was_written(changes, path, what) -> None:
    with pytest.raises(InputError) as raised:
        scenario_of(fewer_stacks(**changes)).resolve()
    assert any(fault.path.endswith(path) and what in fault.what for fault in raised.value.faults)
