"""Readers of machine descriptions and measurements: small outputs written by hand, in the dialects that circulate."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sim.errors import InputError
from sim.interchange.machines import (
    READERS,
    copies,
    fio,
    hwloc,
    mlc,
    nccl_tests,
    nvbandwidth,
    nvidia_topo,
    read_figures,
    stream,
)
from sim.interchange.machines.figures import Figure
from sim.interchange.machines.readers import kind_of, read_layout

TOPO = """\
\x1b[4mGPU0\tGPU1\tGPU2\tNIC0\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\x1b[0m
GPU0\t X \tNV2\tSYS\tPIX\t0-3\t0\t\tN/A
GPU1\tNV2\t X \tSYS\tNODE\t0-3\t0\t\tN/A
GPU2\tSYS\tSYS\t X \tSYS\t\t1\t\tN/A
NIC0\tPIX\tNODE\tSYS\t X \t\t\t\t

Legend:

  X    = Self
"""


def test_topo_tells_sockets_switches_and_links_through_escapes_and_empty_cells() -> None:
    layout = nvidia_topo.parse(TOPO.replace("\x1b[4mGPU0", "\t\x1b[4mGPU0"), "t.txt")
    assert [(a.kind, a.socket, a.switch) for a in layout.adapters] == [
        ("gpu", 0, "switch0"), ("gpu", 0, ""), ("gpu", 1, ""), ("nic", 0, "switch0"),
    ]  # fmt: skip
    assert layout.gpu_links == {(0, 1): 2}
    assert len(layout.sockets) == 2


@pytest.mark.parametrize(
    ("affinities", "cores", "may_be_threads"),
    [
        (["0-23\t0", "0-23\t0", "24-47\t1"], 24, True),
        (["0-23,48-71\t0", "0-23,48-71\t0", "24-47,72-95\t1"], 24, False),
        (["0-23,48-71\t0", "0-23,48-71\t0", "N/A\t1"], 24, False),  # the other socket tells none
        (["0-15,64-79\t0", "16-31,80-95\t1", "48-63,112-127\t3"], 64, False),  # quarters of one socket
        (["0-63,128-191\tN/A", "0-63,128-191\tN/A", "64-127,192-255\tN/A"], 64, False),
        (["\t0", "\t0", "\t1"], 0, False),
    ],
)
def test_cpu_affinity_tells_the_cores_of_a_socket(affinities: list[str], cores: int, may_be_threads: bool) -> None:
    rows = ["GPU0\t X \tNV2\tSYS", "GPU1\tNV2\t X \tSYS", "GPU2\tSYS\tSYS\t X "]
    body = [f"{row}\t{text}\t\tN/A" for row, text in zip(rows, affinities, strict=True)]
    layout = nvidia_topo.parse("\n".join(["\tGPU0\tGPU1\tGPU2\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID", *body]), "t.txt")
    assert {socket.cores for socket in layout.sockets} == {cores}
    assert ("threads" in layout.sockets[0].note) == may_be_threads


@pytest.mark.parametrize("adapter", ["mlx5_0", "mlx5_bond_0", "rocep1s0f0"])
def test_adapters_of_any_name_are_columns(adapter: str) -> None:
    layout = nvidia_topo.parse(TOPO.replace("NIC0", adapter), "t.txt")
    assert [(a.kind, a.name) for a in layout.adapters][-1] == ("nic", adapter)


def wrapped(text: str, width: int) -> str:
    return "\n".join(line[at : at + width] for line in text.splitlines() for at in range(0, max(1, len(line)), width))


PLAIN = TOPO.replace("\x1b[4m", "").replace("\x1b[0m", "")
SPACED = "        " + PLAIN.expandtabs(8).replace(" X ", "X  ")


@pytest.mark.parametrize(
    "text",
    [
        "Tue Jan  1\n|   0  NVIDIA A100  On  |\n\n" + TOPO,
        "\n".join("    " + line for line in TOPO.splitlines()),
        "\n".join("> " + line for line in TOPO.splitlines()),
        PLAIN.replace("\n", "\r\n"),
        "\n".join("| " + " | ".join(cell.strip() for cell in line.split("\t")) + " |" for line in PLAIN.splitlines()[:5]),
        PLAIN.replace("SYS", "SOC"),
        *(wrapped(SPACED, width) for width in (26, 30, 43, 56)),
    ],
    ids=[
        "in a log",
        "indented",
        "quoted",
        "crlf",
        "markdown",
        "SOC of 2016",
        "wrapped26",
        "wrapped30",
        "wrapped43",
        "wrapped56",
    ],
)
def test_pasted_matrices_tell_the_same(text: str) -> None:
    layout, plain = nvidia_topo.parse(text, "t.txt"), nvidia_topo.parse(TOPO, "t.txt")
    assert (layout.adapters, layout.gpu_links, layout.sockets) == (plain.adapters, plain.gpu_links, plain.sockets)


def test_a_matrix_ends_where_another_begins_and_adapters_need_no_rows() -> None:
    peers = " \tGPU0\tGPU1\t\n GPU0\tX\tGNS\t\n GPU1\tGNS\tX\t\n"
    rows = "".join(line + "\n" for line in PLAIN.splitlines()[:4])
    layout = nvidia_topo.parse(rows + "\n" + peers, "t.txt")
    assert [(a.kind, a.socket) for a in layout.adapters] == [("gpu", 0), ("gpu", 0), ("gpu", 1), ("nic", 0)]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("\tNV2\tSYS\tPIX", "\tNV2\tSYSPIX\tPIX"), r"t.txt:2: row GPU0, column GPU2: cells are glued together: 'SYSPIX'"),
        (("GPU1\tNV2", "GPU1\tNV4"), "GPU0-GPU1 is NV2 one way and NV4 the other"),
        (("GPU2\tSYS\tSYS\t X \tSYS\t\t1\t\tN/A\n", ""), "1 of the header's GPUs have no row: GPU2"),
        (("NIC0\tPIX\tNODE\tSYS\t X ", "NIC0\tPIX\tNODE\t X \tSYS"), "no X on the diagonal"),
        (("\tNV2\tSYS\tPIX", "\tOK\tOK\tOK"), "peer-to-peer matrix"),
        (("\tNV2\tSYS\tPIX", "\t?\tSYS\tPIX"), r"expected X, NV#, PIX, PXB, PHB, NODE or SYS, got '\?'"),
        (("GPU0", "GPU_"), "no header row"),
    ],
)
def test_a_damaged_matrix_is_refused_with_its_line(change: tuple[str, str], message: str) -> None:
    with pytest.raises(InputError, match=message):
        nvidia_topo.parse(TOPO.replace(*change), "t.txt")


def test_spaces_in_place_of_tabs_are_read_by_words() -> None:
    layout = nvidia_topo.parse(
        "        GPU0    GPU1    CPU Affinity\nGPU0     X      PHB     0-3\nGPU1    PHB      X      0-3\n", "t"
    )
    assert [(a.socket, a.switch) for a in layout.adapters] == [(0, ""), (0, "")]
    assert layout.gpu_links == {}


def topology_xml(version: str = "2.0", more: str = "", extra: str = "") -> str:
    return f"""<?xml version="1.0"?><!DOCTYPE topology SYSTEM "hwloc2.dtd"><topology version="{version}">
<object type="Machine" cpuset="0xf" gp_index="1">
 <object type="Package" cpuset="0x3" gp_index="2"><info name="CPUModel" value="Xeon 8480+"/>
  <object type="NUMANode" os_index="0" cpuset="0x3" gp_index="3" local_memory="4294967296"/>
  <object type="NUMANode" os_index="2" cpuset="0x3" gp_index="4" local_memory="1073741824" {more}/>
  <object type="L3Cache" cache_size="1048576" gp_index="5">
   <object type="Core" gp_index="6"/><object type="Core" gp_index="7"/></object>
 </object>
 <object type="Package" cpuset="0xc" gp_index="8">
  <object type="NUMANode" os_index="1" cpuset="0xc" gp_index="9" local_memory="1"/>
  <object type="Bridge" bridge_type="0-1" gp_index="10"><object type="Bridge" bridge_type="1-1" pci_busid="0:1" gp_index="11">
   <object type="PCIDev" pci_type="0302 [10de:1]" pci_link_speed="15.75" gp_index="12">
    <object type="OSDev" name="cuda0" osdev_type="12" gp_index="13">
     <info name="GPUModel" value="A100"/><info name="CUDAGlobalMemorySize" value="1024"/></object></object>
   <object type="PCIDev" pci_type="0207 [15b3:1]" gp_index="14">
    <object type="OSDev" name="mlx5_0" osdev_type="3" gp_index="15"/></object>
   <object type="PCIDev" pci_type="0300 [1a03:2000]" gp_index="16"/>
  </object></object>
 </object>
</object>{extra}</topology>"""


@pytest.mark.parametrize("version", ["2.0", "3.0"])
def test_hwloc_tells_sockets_nodes_and_devices(version: str) -> None:
    attributes = (
        '<memattr name="Latency" flags="6"><memattr_value target_obj_gp_index="4" value="250" initiator_cpuset="0x3"/>'
        '<memattr_value target_obj_gp_index="4" value="400" initiator_cpuset="0xc"/></memattr>'
    )
    layout = hwloc.parse(topology_xml(version, 'subtype="CXL-DRAM"', attributes), "h.xml")
    assert [(s.model, s.cores, s.last_level_cache_bytes) for s in layout.sockets] == [("Xeon 8480+", 2, 2**20), ("", 0, 0)]
    assert [(n.number, n.kind, n.socket, n.capacity_bytes) for n in layout.nodes] == [
        (0, "dram", 0, 2**32), (2, "cxl", 0, 2**30), (1, "dram", 1, 1),
    ]  # fmt: skip
    assert layout.nodes[1].latency_s == pytest.approx(250e-9)
    gpu, nic = layout.adapters
    assert (gpu.kind, gpu.model, gpu.socket, gpu.switch, gpu.capacity_bytes) == ("gpu", "A100", 1, "switch0", 2**20)
    assert (nic.kind, nic.switch) == ("nic", "switch0")
    assert gpu.link_bytes_per_s == pytest.approx(15.75e9)


def test_a_second_node_on_the_same_cores_without_a_kind_is_taken_as_cxl_and_said() -> None:
    layout = hwloc.parse(topology_xml(), "h.xml")
    assert layout.nodes[1].kind == "cxl"
    assert any("taken as CXL" in note for note in layout.notes)
    grace = hwloc.parse(topology_xml().replace('value="A100"', 'value="NVIDIA GH200 480GB"'), "h.xml")
    assert grace.nodes[1].kind == "gpu"
    assert any("taken as a GPU's memory" in note for note in grace.notes)


def test_links_among_gpus_come_from_split_matrices() -> None:
    def matrix(names: str, values: str) -> str:
        half = len(values) // 2
        pieces = f"<u64values>{values[:half]}</u64values><u64values>{values[half:]}</u64values>"
        return f'<distances2hetero nbobjs="2" name="NVLinkBandwidth"><indexes>{names}</indexes>{pieces}</distances2hetero>'

    switched = hwloc.parse(topology_xml(extra=matrix("OSDev:13 PCIDev:99", "1000000 75000 75000 1000000")), "h.xml")
    assert switched.gpu_switch_bytes_per_s == 75e9
    damaged = hwloc.parse(topology_xml(extra=matrix("OSDev:13 PCIDev:99", "1 2 ")), "h.xml")
    assert any("left out" in note for note in damaged.notes)


def test_links_to_sockets_are_no_switch_and_memory_side_caches_are_no_cache_of_the_cores() -> None:
    table = (
        '<distances2hetero nbobjs="2" name="NVLinkBandwidth"><indexes>OSDev:13 Package:2</indexes>'
        "<u64values>1000000 40000 40000 1000000</u64values></distances2hetero>"
    )
    layout = hwloc.parse(
        topology_xml(extra=table).replace('<object type="L3Cache"', '<object type="L3Cache" subtype="MemorySideCache"'), "h"
    )
    assert layout.gpu_switch_bytes_per_s == 0.0
    assert "NVLink between GPUs and sockets (40 GB/s) is not modelled: PCIe is taken" in layout.notes
    assert layout.sockets[0].last_level_cache_bytes == 0.0


def test_threads_count_where_no_cores_are_listed() -> None:
    layout = hwloc.parse(topology_xml().replace('type="Core"', 'type="PU"'), "h.xml")
    assert layout.sockets[0].cores == 2


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("<topology version='2.0'><object", "damaged XML"),
        ("<system><cpu/></system>", "root <system>, expected <topology> of hwloc; NCCL"),
        ("<topology><object/></topology>", "is of hwloc 1"),
        ("<!DOCTYPE t [<!ENTITY a 'b'>]><topology version='2.0'/>", "declares XML entities"),
    ],
)
def test_other_xml_is_refused(text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        hwloc.parse(text, "h.xml")


MLC = """$ mlc
Intel(R) Memory Latency Checker - v3.10
Measuring idle latencies for random access (in ns)...
\t\tNuma node
Numa node\t     0\t     1\t     2
       0\t  80.0\t 140.0\t 300.0
       1\t 140.0\t  82.0\t -

Measuring Peak Injection Memory Bandwidths for the system
ALL Reads        :\t200000.0
1:1 Reads-Writes :\t160000.0
Measuring Loaded Latencies for the system
==========================
 00000\t200.00\t 199000.0
 20000\t 80.50\t   1000.0
Measuring cache-to-cache transfer latency (in ns)...
       0\t  1.0\t 2.0
"""


def test_mlc_tables_are_read_by_their_section() -> None:
    figures = mlc.parse(MLC, "m.txt")
    latency = {(f.at["from_node"], f.at["to_node"]): f.value for f in figures if f.quantity == "memory_latency"}
    assert latency == pytest.approx({(0, 0): 80e-9, (0, 1): 140e-9, (0, 2): 300e-9, (1, 0): 140e-9, (1, 1): 82e-9})
    assert [(f.at["write_share"], f.value) for f in figures if f.quantity == "system_bandwidth"] == [(0, 2e11), (0.5, 1.6e11)]
    curve = [(f.at["bandwidth_bytes_per_s"], f.value) for f in figures if f.quantity == "loaded_latency"]
    assert curve == [(199e9, pytest.approx(200e-9)), (1e9, pytest.approx(80.5e-9))]


def test_an_mlc_latency_of_a_cache_hit_is_not_taken_for_memory() -> None:
    head = "Intel(R) Memory Latency Checker - v3.10\nEach iteration took 1.5 base frequency clocks ( "
    assert mlc.parse(head + "1.5 ns)", "m") == []
    assert mlc.parse(head + "101.5 ns)", "m")[0].value == pytest.approx(101.5e-9)


def test_stream_takes_the_best_rate_of_each_dialect() -> None:
    plain = "Number of Threads counted = 4\nFunction    Best Rate MB/s  Avg time\nTriad:   23314.0   0.1   0.1   0.1\n"
    (figure,) = stream.parse(plain, "s")
    assert (figure.value, figure.at) == (23314e6, {"kernel": "triad", "threads": 4.0})
    (windows,) = stream.parse("| Copy     | 100.0    | 120.0 | 90.0 | 1 | 1 | 1 |", "s")
    assert windows.value == 120e6
    gpu = "STREAM_TRIAD_double_gpu_1_buffer_8_block_128  5.0 50.0\nSTREAM_TRIAD_double_gpu_1_buffer_8_block_256  6.0 60.0\n"
    (device,) = stream.parse(gpu, "s")
    assert (device.value, device.at["device"]) == (6e9, "gpu1")
    assert not stream.looks_like("Triad:      415    411    405    116    114    116")  # columns of unknown meaning


def test_nvbandwidth_text_and_json_agree_and_cut_rows_are_left_out() -> None:
    text = (
        "nvbandwidth Version: v0.6\nDevice 0: NVIDIA H100 80GB HBM3 (00000000:99:00)\nDevice 1: NVIDIA H100 80GB HBM3\n\n"
        "Running host_to_device_memcpy_ce.\nmemcpy CE CPU(row) -> GPU(column) bandwidth (GB/s)\n"
        "           0         1\n 0     55.0      54.0\n\nSUM host_to_device_memcpy_ce 109.0\n\n"
        "Running device_to_device_memcpy_read_ce.\nmemcpy CE GPU(row) -> GPU(column) bandwidth (GB/s)\n"
        "           0         1\n 0       N/A    300.0\n 1    301.0"
    )
    figures = nvbandwidth.parse(text, "n")
    copied = {(f.at["direction"], f.at["device"]): f.value for f in figures if f.quantity == "copy"}
    assert copied == {("h2d", "gpu0"): 55e9, ("h2d", "gpu1"): 54e9, ("p2p", "gpu0-gpu1"): 300e9}
    assert [f.text for f in figures if f.quantity == "gpu_name"] == ["NVIDIA H100 80GB HBM3"] * 2
    document = {
        "nvbandwidth": {
            "GPU Device list": ["0: NVIDIA H100 80GB HBM3 (00000000:99:00)", "1: NVIDIA H100 80GB HBM3"],
            "testcases": [
                {"name": "host_to_device_memcpy_ce", "status": "Passed", "bandwidth_matrix": [["55.0", "54.0"]]},
                {"name": "device_to_device_memcpy_read_ce", "status": "Passed", "bandwidth_matrix": [["N/A", "300.0"]]},
                {"name": "device_to_host_memcpy_ce", "status": "Waived"},
            ],
        }
    }  # fmt: skip
    same = nvbandwidth.parse(json.dumps(document), "n")
    assert {(f.at["direction"], f.at["device"]): f.value for f in same if f.quantity == "copy"} == copied


NCCL = """# Collective test starting: all_reduce_perf
#  Rank  0 Group  0 Pid 1 on  a device  0 [00:01:00] NVIDIA A100-SXM4-40GB
#  Rank  1 Group  0 Pid 2 on  a device  1 [00:02:00] NVIDIA A100-SXM4-40GB
#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong
           8             2     float     sum      -1    10.00    0.00    0.00      0    10.00    0.00    0.00      0
NCCL INFO something
  1000000000     250000000     float     sum      -1  10000.0  100.00  100.00      0   9999.0  100.0   100.0      0
...
"""


@pytest.mark.parametrize("prefix", ["", "[1,0]<stdout>:"])
def test_nccl_rows_are_read_from_the_header_whatever_stands_before_or_between(prefix: str) -> None:
    figures = nccl_tests.parse("\n".join(prefix + line for line in NCCL.splitlines()), "x")
    rows = [(f.at["size_bytes"], f.value, f.at["ranks"], f.at["nodes"]) for f in figures if f.quantity == "collective"]
    assert rows == [(8, pytest.approx(10e-6), 2, 1), (1e9, pytest.approx(10e-3), 2, 1)]


def test_nccl_without_a_device_list_tells_its_ranks_by_bus_over_algorithm_bandwidth() -> None:
    head = "#       size         count      type   redop     time   algbw   busbw  error     time   algbw   busbw  error\n"
    text = (
        head + "   8589934592    2147483648     float     sum   63896.0  134.44  235.26    N/A   63900.0  134.4  235.2    N/A\n"
    )
    (figure,) = nccl_tests.parse(text, "nccl_allreduce.log")
    assert (figure.at["kind"], figure.at["ranks"], figure.value) == ("all_reduce", 8.0, pytest.approx(63.896e-3))
    document = {
        "config": {"test": "all_gather_perf"}, "devices": [{"hostname": "a"}, {"hostname": "b"}],
        "results": [{"size": 100, "out_of_place": {"times_us": [5.0], "alg_bw": 1.0, "bus_bw": 0.5}}, {"size": 0}],
    }  # fmt: skip
    (told,) = nccl_tests.parse(json.dumps(document), "x.json")
    assert (told.value, told.at["ranks"], told.at["nodes"], told.at["size_bytes"]) == (pytest.approx(5e-6), 2, 2, 100)


def fio_job(**changes: object) -> dict[str, object]:
    side = {"io_bytes": 10, "bw": 1000, "iops": 5.0, "lat_ns": {"mean": 80000.0}}
    return {"jobname": "j", "error": 0, "job options": {"rw": "randread", "bs": "4k"}, "read": side} | changes


def test_fio_reads_the_last_document_between_messages_and_refuses_failed_jobs() -> None:
    def document(*jobs: dict[str, object]) -> str:
        return json.dumps({"fio version": "fio-3.33", "global options": {"direct": "1", "iodepth": "4"}, "jobs": jobs})

    old = document(fio_job(read={"io_bytes": 10, "bw": 1, "iops": 1.0, "clat": {"mean": 70.0}}))
    figures = fio.parse(f"fio: hint {{\n{old}\n{document(fio_job())}\ntrailing", "f")
    rate, latency = figures
    assert (rate.value, rate.at["block_bytes"], rate.at["depth"], rate.at["is_direct"]) == (1024000.0, 4096.0, 4.0, 1.0)
    assert latency.value == pytest.approx(80e-6)
    assert fio.parse(old, "f")[1].value == pytest.approx(70e-6)  # fio 2 has microseconds
    with pytest.raises(InputError, match="every job failed"):
        fio.parse(document(fio_job(error=84)), "f")
    with pytest.raises(InputError, match="no whole fio result"):
        fio.parse("fio: pid=1, err=84", "f")


def test_equal_jobs_of_one_group_of_fio_are_one() -> None:
    jobs = [fio_job(groupid=0) for _ in range(4)] + [fio_job(groupid=1)]
    document = json.dumps({"fio version": "fio-3.33", "global options": {"direct": "1"}, "jobs": jobs})
    figures = fio.parse(document, "f")
    rates = [(f.value, f.at["operations_per_s"]) for f in figures if f.quantity == "storage_bandwidth"]
    assert rates == [(4096000.0, 20.0), (1024000.0, 5.0)]
    assert [f.value for f in figures if f.quantity == "storage_latency"] == pytest.approx([80e-6, 80e-6])


FIO_REPORT = """randr: (g=0): rw=randrw, bs=(R) 4096B-4096B, (W) 4096B-4096B, (T) 4096B-4096B, ioengine=libaio, iodepth=32
...
fio-3.28
Starting 2 processes

randr: (groupid=0, jobs=2): err= 0: pid=1: Sat Jan  1 00:00:00 2022
  read: IOPS=12.3k, BW=48.0MiB/s (50.3MB/s)(2880MiB/60001msec)
    slat (nsec): min=1, max=2, avg=3.0, stdev=1
    clat (usec): min=10, max=20, avg=15.5, stdev=1
     lat (usec): min=10, max=20, avg=80.5, stdev=1
    clat percentiles (usec):
     |  1.00th=[   10]
  write: IOPS=300, BW=1200KiB/s (1229kB/s)(70MiB/60001msec)
     lat (msec): min=1, max=2, avg=1.5, stdev=1
  lat (usec)   : 250=0.01%, 500=99.0%
bad: (groupid=1, jobs=1): err= 5 (file:x): pid=2: Sat Jan  1 00:00:00 2022
"""


def test_the_report_for_people_of_fio_is_read_too() -> None:
    assert kind_of(FIO_REPORT) == "fio"
    figures = fio.parse(FIO_REPORT, "f")
    told = [(f.quantity, f.at["direction"], f.value) for f in figures]
    assert told == [
        ("storage_bandwidth", "read", 48 * 2**20), ("storage_latency", "read", pytest.approx(80.5e-6)),
        ("storage_bandwidth", "write", 1200 * 2**10), ("storage_latency", "write", pytest.approx(1.5e-3)),
    ]  # fmt: skip
    assert (figures[0].at["depth"], figures[0].at["block_bytes"], figures[0].at["operations_per_s"]) == (64.0, 4096.0, 12300.0)
    assert (figures[0].at["pattern"], figures[0].at["is_direct"]) == ("random", 1.0)
    old = FIO_REPORT.replace(
        "read: IOPS=12.3k, BW=48.0MiB/s (50.3MB/s)(2880MiB/60001msec)", "read : io=10240KB, bw=640KB/s, iops=160"
    )
    assert fio.parse(old, "f")[0].value == 640 * 1024


def test_mlc_tells_the_traffic_and_the_node_of_its_command_line() -> None:
    head = "Intel(R) Memory Latency Checker - v3.11\nCommand line parameters: {}\n\n"
    idle = head.format("--idle_latency -j2") + "Each iteration took 257.1 base frequency clocks (  298.9 ns)\n"
    (figure,) = mlc.parse(idle, "m")
    assert (figure.at, figure.value) == ({"from_node": 0.0, "to_node": 2.0}, pytest.approx(298.9e-9))
    curve = "Measuring Loaded Latencies for the system\n==========\n 00000\t200.00\t 199000.0\n"
    for options, share in (("--loaded_latency", 0.0), ("--loaded_latency -W5", 0.5), ("--loaded_latency -W2 -T", 1 / 3)):
        assert mlc.parse(head.format(options) + curve, "m")[0].at["write_share"] == share


@pytest.mark.parametrize("prefix", ["0: ", " 3: "])
def test_nccl_rows_behind_the_labels_of_srun(prefix: str) -> None:
    figures = nccl_tests.parse("\n".join(prefix + line for line in NCCL.splitlines()), "x")
    assert sum(f.quantity == "collective" for f in figures) == 2


def test_copies_of_a_range_and_of_older_tools() -> None:
    table = (
        " Host to Device Bandwidth, 1 Device(s)\n PINNED Memory Transfers\n   Transfer Size (Bytes)\tBandwidth(MB/s)\n"
        "   1024\t\t\t400.5\n   33554432\t\t\t12000.0\n\n Device to Host Bandwidth, 1 Device(s)\n PAGEABLE Memory Transfers\n"
        "   Transfer Size (Bytes)\tBandwidth(GB/s)\n   33554432\t\t\t6.5\n"
    )
    told = [(f.at["direction"], f.at["size_bytes"], f.at["is_pinned"], f.value) for f in copies.parse(table, "c")]
    assert told == [
        ("h2d", 1024, 1, 400.5e6 * 1.024), ("h2d", 33554432, 1, 12e9 * 1.024), ("d2h", 33554432, 0, 6.5e9),
    ]  # fmt: skip
    line = "bandwidthTest-H2D-Pinned, Bandwidth = 12446.5 MB/s, Time = 0.00257 s, Size = 33554432 bytes, NumDevsUsed = 1"
    assert copies.parse(line, "c")[0].value == pytest.approx(12446.5e6 * 1.024)
    rocm = (
        "RocmBandwidthTest Version: 1.0.0\n  Device: 0,  CPU X\n  Device: 1,  Vega 20,  44:0.0\n\n"
        "          Unidirectional peak bandwidth GB/s\n\n          D/D       0           1\n\n"
        "          0         N/A         12.5\n          1         13.5        800.0\n"
    )
    assert {f.at["direction"]: f.value for f in copies.parse(rocm, "c") if f.quantity == "copy"} == {
        "h2d": 12.5e9, "d2h": 13.5e9, "d2d": 800e9,
    }  # fmt: skip


def test_copies_of_four_tools() -> None:
    def seen(text: str) -> list[tuple[object, object, float]]:
        return [(f.at["direction"], f.at["device"], f.value) for f in copies.parse(text, "c") if f.quantity == "copy"]

    shmoo = "bandwidthTest-H2D-Pinned, Bandwidth = 12.4 GB/s, Time = 0.00548 s, Size = 68000000 bytes, NumDevsUsed = 1"
    assert seen(shmoo) == [("h2d", "gpu0", 12.4e9)]
    head = " Device to Host Bandwidth, 1 Device(s)\n PINNED Memory Transfers\n"
    table = head + "   Transfer Size (Bytes)\tBandwidth(GB/s)\n   32000000\t\t\t13.1\n"
    assert seen(table) == [("d2h", "gpu0", 13.1e9)]
    assert seen("cpu_to_gpu1_by_dma_under_numa0 26.0\ngpu0_and_gpu1_write_by_dma 500.0\n") == [
        ("h2d", "gpu1", 26e9), ("p2p", "gpu0-gpu1", 250e9),
    ]  # fmt: skip
    assert seen("   H2D_Bandwidth_pinned        16kB       GB/sec        0.6410  0.6365\n") == [("h2d", "gpu0", 0.641e9)]
    rocm = (
        "RocmBandwidthTest Version: 2.6.0\n  Device: 0,  CPU X\n  Device: 1,  AMD Instinct MI210,  GPU-XX,  c3:0.0\n\n"
        "  Unidirectional copy peak bandwidth GB/s\n\n  D/D       0           1\n\n"
        "  0         N/A         28.0\n\n  1         27.0      700.0\n"
    )
    assert seen(rocm) == [("h2d", "gpu0", 28e9), ("d2h", "gpu0", 27e9), ("d2d", "gpu0", 700e9)]


def test_a_file_under_the_wrong_option_is_named_for_what_it_is(tmp_path: Path) -> None:
    file = tmp_path / "x.txt"
    file.write_text(MLC)
    with pytest.raises(InputError, match=r"is not output of lstopo FILE.xml; it looks like Intel mlc: give it with --mlc"):
        read_layout(file, "hwloc")
    file.write_text("Machine\n  Package L#0\n    NUMANode L#0")
    with pytest.raises(InputError, match="console output: export XML"):
        read_layout(file, "hwloc")
    file.write_text("Intel(R) Memory Latency Checker - v3.10\n")
    with pytest.raises(InputError, match="has no whole result"):
        read_figures(file, "mlc")


@settings(deadline=None, max_examples=60)
@given(
    st.text(max_size=200),
    st.sampled_from(["", TOPO, MLC, NCCL, topology_xml(), json.dumps({"fio version": 1, "jobs": [fio_job()]})]),
)
def test_noise_and_cut_files_are_refused_or_read_never_crash(noise: str, good: str) -> None:
    text = good[: len(noise) * 7] + noise
    for reader in (
        nvidia_topo.parse,
        hwloc.parse,
        mlc.parse,
        stream.parse,
        nvbandwidth.parse,
        nccl_tests.parse,
        fio.parse,
        copies.parse,
    ):
        try:
            found = reader(text, "x")
        except InputError:
            continue
        assert not isinstance(found, list) or all(isinstance(item, Figure) for item in found)
    assert kind_of(text) in ("", *READERS)
