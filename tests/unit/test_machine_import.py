"""Machines built from the files of tools: what was measured is in the machine, what was not is listed, nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

from sim import cli
from sim.config import load_machine
from sim.config.part_block import part_block
from sim.config.parts import Source, load_parts, part_names, read_part
from sim.config.yaml_source import Document
from sim.errors import InputError
from sim.interchange.machines import Figure, copies, hwloc, mlc, nvidia_topo
from sim.study.machine_draft import matching_cpu
from sim.study.machine_figures import fit_curve
from sim.study.machine_import import machine_document, write_machine
from sim.topology.machine import Machine
from tests.unit.test_interchange_machines import MLC, NCCL, topology_xml

#: numbers that a division by a unit rounds
ROUNDED = 1e-12
TOPO = "\tGPU0\tGPU1\tCPU Affinity\nGPU0\t X \tNV12\t0-3\nGPU1\tNV12\t X \t0-3\n"


@pytest.mark.parametrize("name", part_names())
def test_a_part_written_out_again_is_the_same_part(name: str) -> None:
    part = load_parts([name]).parts[name]
    block = part_block(part) | {"source": "s"}
    document = Document(file="x", data={"parts": {name: block}}, positions={})
    again, _keys = read_part(block, document, ("parts", name), {"s": Source(kind="datasheet", cite="c")})
    assert part_block(again) == part_block(part)


def build(tmp_path: Path, layouts: list[object], figures: list[Figure], gpu: str = "") -> tuple[Machine, list[str], list[str]]:
    draft = machine_document(layouts, figures, gpu=gpu)  # type: ignore[arg-type]
    path = tmp_path / "m.yaml"
    write_machine(draft, "m", path)
    return load_machine(str(path)), draft.used, draft.assumptions


def test_mlc_calibrates_sockets_their_link_and_memory_without_cores(tmp_path: Path) -> None:
    text = (
        MLC
        + "Measuring Memory Bandwidths between nodes within system\n       0  100000 40000 20000\n       1 40000 100000 18000\n"
    )
    machine, used, assumed = build(tmp_path, [], mlc.parse(text, "m.txt"))
    assert machine.channels["cpu0.dram"].bandwidth_per_s == pytest.approx(100e9)
    assert machine.latency("cpu0", "cpu0.dram") == pytest.approx(81e-9)
    assert machine.latency("cpu0", "cpu1.dram") == pytest.approx(140e-9)
    assert machine.latency("cpu0", "cxl0") == pytest.approx(300e-9, rel=0.01)
    route = machine.access("cpu0", "cxl0")
    reached = min(
        [route.rate_cap_bytes_per_s, *(machine.channels[name].bandwidth_per_s / cost for name, cost in route.uses if cost)]
    )
    assert reached == pytest.approx(20e9, rel=0.02)
    assert machine.media["cpu0.dram"].write_cost == pytest.approx(0.5)  # 200 / 160 of reads when half is written
    assert any(line.startswith("idle latency 81 ns (m.txt)") for line in used)
    assert any("capacity of cxl0" in line for line in assumed)
    assert not any("idle latency" in line for line in assumed)


def test_copies_calibrate_the_host_link_both_ways(tmp_path: Path) -> None:
    text = "cpu_to_gpu0_by_dma_under_numa0 26.0\ngpu0_to_cpu_by_dma_under_numa0 24.0\ncpu_and_gpu0_by_dma_under_numa0 45.0\n"
    machine, _used, assumed = build(tmp_path, [nvidia_topo.parse(TOPO, "t")], copies.parse(text, "c"))
    down = machine.route("cpu0.dram", "gpu0.hbm", initiator="gpu0")
    up = machine.route("gpu0.hbm", "cpu0.dram", initiator="gpu0")
    rates = [
        min([route.rate_cap_bytes_per_s, *(machine.channels[name].bandwidth_per_s / cost for name, cost in route.uses if cost)])
        for route in (down, up)
    ]
    assert rates == pytest.approx([26e9, 24e9], rel=0.01)
    assert machine.device("cpu0").part["port_duplex"] == pytest.approx(0.9)
    assert any("a100-80gb-sxm (by its 12 NVLinks" in line for line in assumed)
    assert machine.device("cpu0").part["cores"] == 4
    assert any(line.startswith("cores of a socket: 4 (the CPU affinity") for line in assumed)


def test_cores_of_a_superchip_are_those_of_the_catalogue(tmp_path: Path) -> None:
    machine, _used, assumed = build(tmp_path, [nvidia_topo.parse(TOPO, "t")], [], gpu="gh200-96gb")
    assert machine.device("cpu0").part["cores"] == 72
    assert not any(line.startswith("cores of a socket") for line in assumed)


def test_hwloc_gives_cores_capacities_and_places(tmp_path: Path) -> None:
    layout = hwloc.parse(topology_xml(more='subtype="CXL-DRAM"'), "h.xml")
    machine, _used, _assumed = build(tmp_path, [layout], [], gpu="a100-40gb-sxm")
    assert machine.device("cpu0").part["cores"] == 2
    assert machine.device("gpu0").to == ("switch0",)
    assert machine.device("switch0").to == ("cpu1",)
    assert machine.tiers["cxl0"].capacity_bytes == 2**30


def test_collectives_of_this_node_calibrate_the_gpu_links_and_others_do_not(tmp_path: Path) -> None:
    from sim.interchange.machines import nccl_tests

    _machine, used, _assumed = build(tmp_path, [nvidia_topo.parse(TOPO, "t")], nccl_tests.parse(NCCL, "n"))
    assert any(line.startswith("bus bandwidth of all_reduce 100 GB/s") for line in used)
    assert any(line.startswith("hop of a small collective 5 us") for line in used)
    other = [
        Figure(
            quantity="collective",
            value=1.0,
            source="n",
            at={"kind": "all_reduce", "ranks": 64.0, "nodes": 8.0, "size_bytes": 8.0},
        )
    ]
    _machine, used, assumed = build(tmp_path, [nvidia_topo.parse(TOPO, "t")], other)
    assert not any("collective" in line for line in used)
    assert any("64 ranks: not of this node" in line for line in assumed)


def named(name: str) -> list[Figure]:
    return [Figure(quantity="gpu_name", value=0.0, source="c", at={"device": "gpu0"}, text=name)]


def copied(rate: float) -> list[Figure]:
    at = {"direction": "h2d", "device": "gpu0", "is_pinned": 1.0, "is_duplex": 0.0}
    return [Figure(quantity="copy", value=rate, source="c: h2d", at=at)]


@pytest.mark.parametrize(
    ("figures", "gpu", "message"),
    [
        ([], "", "no file given"),
        (copied(9e11), "a100-40gb-pcie", "copies at 900 GB/s over pcie4 x16"),
        (named("Tesla K80"), "", "'Tesla K80' is not in the part catalogue"),
        (named("T4"), "t5", "--gpu 't5' is not in"),
    ],
)
def test_what_cannot_be_is_refused(figures: list[Figure], gpu: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        machine_document([], figures, gpu=gpu)


def test_links_that_the_gpu_lacks_are_refused() -> None:
    with pytest.raises(InputError, match="the files show links between GPUs, rtx-4090 has none"):
        machine_document([nvidia_topo.parse(TOPO, "t")], [], gpu="rtx-4090")
    with pytest.raises(InputError, match="12 links at a GPU, v100-32gb-sxm has 6"):
        machine_document([nvidia_topo.parse(TOPO, "t")], [], gpu="v100-32gb-sxm")


@pytest.mark.parametrize(("a", "k"), [(0.118, 0.875), (0.3, 0.6), (0.05, 0.98)])
def test_the_curve_that_made_the_points_is_found(a: float, k: float) -> None:
    points = [(100e9 * u, 100e-9 * (1 + a * u / (1 - k * u))) for u in (0.001, 0.1, 0.3, 0.5, 0.7, 0.8, 0.9, 0.95, 0.99, 1.0)]
    assert fit_curve(points) == (pytest.approx(a, rel=0.05), pytest.approx(k, abs=0.006))


@pytest.mark.parametrize(
    ("model", "part"),
    [("Intel(R) Xeon(R) Platinum 8480+", "xeon-8480"), ("AMD EPYC 9554P 64-Core Processor", "epyc-9554p"), ("AMD EPYC", ""),
     ("Neoverse-V2", "grace-480gb"), ("13th Gen Intel(R) Core(TM) i9-13900K", "core-i9-13900k")],
)  # fmt: skip
def test_cpus_are_found_by_their_number(model: str, part: str) -> None:
    assert matching_cpu(model) == part


def test_the_command_writes_a_file_that_check_accepts_and_nothing_on_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    topo, output = tmp_path / "t.txt", tmp_path / "box.yaml"
    topo.write_text(TOPO)
    assert cli.run(["import", "machine", "--topo", str(topo), "--gpu", "t5", "-o", str(output)]) == 2
    assert list(tmp_path.iterdir()) == [topo]
    assert cli.run(["import", "machine", "--topo", str(topo), "-o", str(output)]) == 0
    printed = capsys.readouterr().out
    assert "assumed     GPU model: a100-80gb-sxm" in printed
    assert cli.run(["check", str(output)]) == 0


def test_files_of_different_machines_are_refused() -> None:
    layout = hwloc.parse(topology_xml(more='subtype="CXL-DRAM"'), "h.xml")
    machine_document([layout], mlc.parse(MLC, "m.txt"), gpu="a100-40gb-sxm")  # two nodes with cores in both
    with pytest.raises(InputError, match=r"m.txt: measured 3 NUMA nodes with cores, h.xml lists 2; give files of one machine"):
        machine_document([layout], mlc.parse(MLC.replace("       1\t", "       2\t 300 140 90\n       1\t"), "m.txt"))


def test_several_numa_nodes_of_a_socket_place_their_gpus_on_it(tmp_path: Path) -> None:
    rows = "".join(
        f"GPU{row}\t" + "\t".join("X" if row == column else "SYS" for column in range(4)) + f"\t{row}\t{row}\n"
        for row in range(4)
    )
    topo = nvidia_topo.parse("\tGPU0\tGPU1\tGPU2\tGPU3\tCPU Affinity\tNUMA Affinity\n" + rows, "t")
    layout = hwloc.parse(topology_xml(more='subtype="CXL-DRAM"'), "h.xml")
    machine, _used, _assumed = build(tmp_path, [layout, topo], [], gpu="a100-40gb-pcie")
    assert [machine.device(f"gpu{index}").to for index in range(4)] == [("cpu0",), ("cpu0",), ("cpu1",), ("cpu1",)]
