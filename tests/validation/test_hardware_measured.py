"""Simulated machines against numbers measured by others, and against each other where only the topology differs."""

from __future__ import annotations

import dataclasses

import pytest

from sim.config import load_machine, parse_yaml
from sim.config.machine import machine_from
from sim.config.parts import load_parts
from sim.laws.storage import rate
from sim.study.bench import measure
from sim.study.bench_copies import copy_load
from sim.study.bench_flows import times
from sim.topology import parts as p
from sim.topology.build import build
from sim.topology.description import DeviceEntry, Populated, Topology
from sim.topology.machine import Machine

GIB = 2.0**30


def reads(machine: Machine, device: str = "cpu0", tier: str = "cpu0.dram", **more: object) -> float:
    return measure(machine, "memory_bandwidth", {"device": device, "tier": tier, **more})["bandwidth"]


def socket(memory: str, cpu: str = "xeon-8480") -> Machine:
    return machine_from(parse_yaml(f"devices: {{cpu0: {{part: {cpu}, memory: {memory}}}}}", "m.yaml"), name="m")


def host_copies(machine: Machine, num: int, *, source: str = "") -> float:
    """Bytes/s of pinned copies from host memory (the GPU's own socket's, or `source`) to the first `num` GPUs at once."""
    loads = [copy_load(machine, source=source or "dram", target="gpu", initiator=f"gpu{i}", size=GIB) for i in range(num)]
    return num * GIB / max(times(machine, loads))


@pytest.mark.parametrize(("write_share", "measured"), [(0.0, 263.48e9), (0.25, 234.83e9), (0.33, 228.79e9), (0.5, 223.94e9)])
def test_eight_channels_of_ddr5_4800_by_share_of_writes(write_share: float, measured: float) -> None:
    """BSC Mess, MareNostrum 5 (64 GB DIMMs, two ranks): 263 -> 229 -> 224 GB/s at 100, 67 and 50 % reads."""
    assert reads(load_machine("xeon-8480-2s"), write_share=write_share) == pytest.approx(measured, rel=0.04)


def test_two_dimms_per_channel_run_at_the_speed_of_the_manual() -> None:
    one = reads(socket("{part: ddr5-4800-2r, channels: 8, capacity: 512 GiB}"))
    two = reads(socket("{part: ddr5-4800-2r, channels: 8, capacity: 1 TiB, dimms_per_channel: 2}"))
    assert two / one == pytest.approx(4400 / 4800)
    genoa = [
        reads(socket(f"{{part: ddr5-4800-2r, channels: 12, capacity: 1 TiB, dimms_per_channel: {n}}}", "epyc-9654"))
        for n in (1, 2)
    ]
    assert genoa[1] / genoa[0] == pytest.approx(3600 / 4800)


def test_bandwidth_follows_the_channels_until_the_chiplets_bind() -> None:
    rates = [reads(socket(f"{{part: ddr5-4800-2r, channels: {n}, capacity: 512 GiB}}", "epyc-9554p")) for n in (1, 2, 4, 8, 12)]
    assert rates[:4] == pytest.approx([rates[0], 2 * rates[0], 4 * rates[0], 8 * rates[0]])
    assert rates[4] <= 12 * rates[0] * (1 + 1e-9)


def test_few_cores_are_bound_by_their_lines_in_flight() -> None:
    machine = load_machine("xeon-8480-2s")
    rates = [reads(machine, cores=cores) for cores in (1, 2, 56)]
    assert 10e9 < rates[0] < 16e9
    assert rates[1] == pytest.approx(2 * rates[0], rel=0.02)
    assert rates[2] < 56 * rates[0] / 2


def test_the_far_numa_node_is_slower_and_later() -> None:
    machine = load_machine("xeon-8480-2s")
    near, far = (measure(machine, "memory_latency", {"device": "cpu0", "tier": f"cpu{i}.dram"})["latency"] for i in (0, 1))
    assert far - near == pytest.approx(60e-9, rel=0.05)  # Intel MLC, two-socket Xeon: about 60 ns
    link = sum(machine.channels[name].bandwidth_per_s for name in ("cpu1->cpu0.upi",))
    assert reads(machine, tier="cpu1.dram") <= link < reads(machine)


def test_a_copy_ramps_with_its_size() -> None:
    machine = load_machine("dgx-h200")
    arguments = {"source": "dram", "target": "gpu", "initiator": "gpu0"}
    rates = [measure(machine, "copy", {**arguments, "size": size})["bandwidth"] for size in (4096.0, 2.0**18, GIB)]
    start_s = float(str(machine.part("gpu0")["copy_latency"]))
    assert rates[0] == pytest.approx(4096 / start_s, rel=0.1)  # all start, no transfer
    half = measure(machine, "copy", {**arguments, "size": start_s * rates[2]})["bandwidth"]
    assert half == pytest.approx(rates[2] / 2, rel=0.01)  # t0 x B
    assert rates[0] < rates[1] < rates[2]
    assert rates[2] == pytest.approx(55.43e9, rel=0.03)  # nvbandwidth, 8x H200 (Stas Bekman, ML Engineering)


def test_two_gpus_behind_one_uplink_get_half_each() -> None:
    shared = load_machine("a100-shared-uplink")
    assert host_copies(shared, 2) == pytest.approx(host_copies(shared, 1), rel=1e-3)  # Inspur: 22 alone, 11 each
    own = load_machine("epyc-9554p-2x4090")
    assert host_copies(own, 2) == pytest.approx(2 * host_copies(own, 1), rel=1e-3)


def test_eight_gpus_on_two_root_complexes() -> None:
    """Each GPU has its lanes; a socket whose devices share less than the lanes' sum bounds the four below it."""
    free = _eight_gpus(0.0)
    bound = _eight_gpus()
    one = host_copies(free, 1)
    assert host_copies(free, 8) == pytest.approx(8 * one, rel=0.02)
    assert host_copies(bound, 1) == pytest.approx(one)
    assert host_copies(bound, 2) == pytest.approx(2 * one, rel=1e-3)  # 110 of 140 GB/s
    assert host_copies(bound, 4) == pytest.approx(140e9, rel=0.01)
    assert host_copies(bound, 8) == pytest.approx(280e9, rel=0.01)


def test_copies_from_the_far_socket_share_the_socket_link() -> None:
    machine = _eight_gpus(0.0)
    link = machine.channels["cpu0->cpu1.upi"].bandwidth_per_s
    far = [copy_load(machine, source="cpu0.dram", target="gpu", initiator=f"gpu{i}", size=GIB) for i in range(4, 8)]
    assert 4 * GIB / max(times(machine, far)) == pytest.approx(link, rel=1e-3)


def test_a_switch_on_the_way_adds_its_own_latency_and_no_second_link() -> None:
    text = "devices: {cpu0: {part: xeon-8480, memory: {part: ddr5-4800-2r, channels: 8, capacity: 512 GiB}}, %s}"
    direct = machine_from(parse_yaml(text % "gpu0: {part: h100-pcie, to: cpu0}", "m.yaml"), name="m")
    switched = machine_from(
        parse_yaml(text % "s0: {part: pcie5-switch, to: cpu0}, gpu0: {part: h100-pcie, to: s0}", "m.yaml"), name="m"
    )
    added = switched.latency("gpu0", "cpu0.dram") - direct.latency("gpu0", "cpu0.dram")
    assert added == pytest.approx(230e-9)  # the switch, there and back


def test_an_apu_copies_at_the_rate_of_its_copy_engine() -> None:
    machine = load_machine("mi300a-node")
    rate = measure(machine, "copy", {"source": "dram", "target": "gpu", "initiator": "gpu0", "size": GIB})["bandwidth"]
    assert rate == pytest.approx(58e9, rel=0.02)  # arXiv 2508.12743
    assert reads(machine, "gpu0", "gpu0.hbm") > 40 * rate


def _eight_gpus(io_bandwidth: float = -1.0) -> Machine:
    names = ["xeon-8480", "h100-pcie", "ddr5-4800-2r", "upi-16"]
    catalogue = load_parts(names)
    cpu = catalogue.parts["xeon-8480"]
    assert isinstance(cpu, p.Cpu)
    limit = cpu.io_bandwidth if io_bandwidth < 0 else io_bandwidth
    parts = {**catalogue.parts, "xeon-8480": dataclasses.replace(cpu, io_bandwidth=limit)}
    memory = Populated(part="ddr5-4800-2r", channels=8, capacity=512 * GIB)
    devices = {f"cpu{i}": DeviceEntry(part="xeon-8480", memory=memory, host="host0") for i in range(2)}
    devices |= {f"gpu{i}": DeviceEntry(part="h100-pcie", to=(f"cpu{i // 4}",)) for i in range(8)}
    text = "devices: {a: {part: x}}\nlinks: {sockets: {part: upi-16, lanes: 3, between: [cpu0, cpu1]}}"
    from sim.config.machine import read_topology

    links = read_topology(parse_yaml(text, "m.yaml")).links
    return build(Topology(name="eight", devices=devices, links=links), parts, {})


def test_small_all_reduces_over_xgmi_are_exchanged_directly() -> None:
    """hisohara/ai-scripts, eight MI300X on one node; rings only where nodes take part."""
    one = load_machine("mi300x-8x")
    assert measure(one, "collective", {"size": 64 * 1024})["time"] == pytest.approx(14.25e-6, rel=0.1)
    assert measure(one, "collective", {"size": 64 * 1024, "algorithm": "ring"})["time"] > 2 * 14.25e-6
    two = dataclasses.replace(one, num_nodes=2)
    assert measure(two, "collective", {"size": 64 * 1024})["time"] > 3 * 14.25e-6


@pytest.mark.parametrize(
    ("depth", "measured"), [(1, 16736), (4, 65549), (8, 122515), (16, 214559), (32, 340962), (64, 464159), (256, 540321)]
)
def test_random_reads_by_blocks_in_flight(depth: int, measured: float) -> None:
    """SPDK issue 661, libaio on one drive: the law is given 59.7 us at depth 1 and 540 k operations/s at depth 256."""
    assert rate(4096, depth, 59.7e-6 - 4096 / 3.2e9, 3.2e9, 540e3) / 4096 == pytest.approx(measured, rel=0.10)


def test_a_copy_without_peer_access_pauses_between_its_pieces() -> None:
    """nccl issues 814 (PCIe 4, P2P disabled: 22.2 GB/s) and 1264 (PCIe 5: 37.2)."""
    for part, measured in (("rtx-4090", 22.2e9), ("rtx-5090", 37.2e9)):
        gpus = f"gpu[0-1]: {{part: {part}, to: cpu0}}"
        cpu = "cpu0: {part: xeon-8480, memory: {part: ddr5-4800-2r, channels: 8, capacity: 512 GiB}}"
        machine = machine_from(parse_yaml(f"devices:\n  {cpu}\n  {gpus}\n", "m.yaml"), name="m")
        copied = measure(machine, "copy", {"source": "gpu0", "target": "gpu1", "initiator": "gpu0"})["bandwidth"]
        assert copied == pytest.approx(measured, rel=0.1)
        assert machine.peer("gpu0", "gpu1", by_collective=True).rate_cap_bytes_per_s > copied
