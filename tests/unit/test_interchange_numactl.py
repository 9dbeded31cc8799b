"""numactl --hardware and lscpu: sockets, cores, NUMA nodes; outputs of tools that are not read are named."""

from pathlib import Path

import pytest

from sim.errors import InputError
from sim.interchange.machines import read_layout

LSCPU = """Architecture:            x86_64
CPU(s):                  224
Thread(s) per core:      2
Core(s) per socket:      56
Socket(s):               2
Model name:              Intel(R) Xeon(R) Platinum 8480+
L3 cache:                210 MiB (2 instances)
"""
TWO = """available: 2 nodes (0-1)
node 0 cpus: 0 1 2 3 8 9 10 11
node 0 size: 94590 MB
node 0 free: 44981 MB
node 1 cpus: 4 5 6 7 12 13 14 15
node 1 size: 94710 MB
node distances:
node   0   1
  0:  10  21
  1:  21  10
"""
CXL = (
    TWO.replace("2 nodes (0-1)", "3 nodes (0-2)").partition("node distances:")[0]
    + """node 2 cpus:
node 2 size: 131072 MB
node distances:
node   0   1   2
  0:  10  21  24
  1:  21  10  14
  2:  24  14  10
"""
)
QUARTERS = """available: 4 nodes (0-3)
node 0 cpus: 0 1
node 0 size: 0 MB
node 1 cpus: 2 3
node 1 size: 64307 MB
node 2 cpus: 4 5
node 2 size: 64472 MB
node 3 cpus: 6 7
node 3 size: 64000 MB
node distances:
node   0   1   2   3
  0:  10  12  32  32
  1:  12  10  32  32
  2:  32  32  10  12
  3:  32  32  12  10
"""


def layout(tmp_path: Path, text: str):
    file = tmp_path / "numactl.txt"
    file.write_text(text)
    return read_layout(file, "numactl")


def test_two_sockets_with_two_threads_to_a_core(tmp_path: Path) -> None:
    found = layout(tmp_path, "$ numactl -H\n" + TWO)
    assert [socket.cores for socket in found.sockets] == [4, 4]
    assert [(node.number, node.kind, node.socket, node.capacity_bytes / 2**20) for node in found.nodes] == [
        (0, "dram", 0, 94590), (1, "dram", 1, 94710)
    ]  # fmt: skip


def test_memory_without_cores_hangs_on_the_nearest_socket(tmp_path: Path) -> None:
    found = layout(tmp_path, CXL)
    assert [(node.kind, node.socket) for node in found.nodes] == [("dram", 0), ("dram", 1), ("cxl", 1)]
    assert found.notes == ("NUMA node 2 has no cores of its own: taken as CXL memory",)


def test_near_nodes_share_a_socket_and_empty_ones_hold_nothing(tmp_path: Path) -> None:
    found = layout(tmp_path, QUARTERS)
    assert [socket.cores for socket in found.sockets] == [4, 4]
    assert [(node.number, node.socket) for node in found.nodes] == [(1, 0), (2, 1), (3, 1)]


def test_lscpu_tells_model_cores_and_cache(tmp_path: Path) -> None:
    for text in (LSCPU, LSCPU + TWO):
        found = layout(tmp_path, text)
        assert [(socket.model, socket.cores) for socket in found.sockets] == [("Intel(R) Xeon(R) Platinum 8480+", 56)] * 2
    assert found.sockets[0].last_level_cache_bytes == 105 * 2**20


def test_gpu_memory_of_a_superchip_is_no_cxl(tmp_path: Path) -> None:
    text = "Model name: Neoverse-V2\nSocket(s): 1\nCore(s) per socket: 72\n" + CXL
    assert [node.kind for node in layout(tmp_path, text).nodes][-1] == "gpu"


def test_a_cut_listing_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="lists no size of NUMA node 1"):
        layout(tmp_path, TWO.replace("node 1 size: 94710 MB\n", ""))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (TWO, "give it with --numactl"),
        ("07:00.0 3D controller: NVIDIA Corporation GA100 [A100 SXM4 80GB] (rev a1)", "it is lspci"),
        ("==============NVSMI LOG==============", "it is nvidia-smi -q"),
        ("| NVIDIA-SMI 550.54.15   Driver Version: 550.54.15 |", "it is nvidia-smi's table"),
        ("# dmidecode 3.3\nHandle 0x0020, DMI type 17, 92 bytes", "it is dmidecode"),
        ("# OSU MPI-CUDA Bandwidth Test v5.6.3", "it is an OSU benchmark"),
        ("                    RDMA_Write BW Test", "it is perftest"),
        ("IoType: READ XferType: GPUD Threads: 8 DataSetSize: 1/1(KiB)", "it is gdsio"),
        ("3;fio-3.28;seqread;0;0;10737418240;3355443;3276;3200", "it is fio's terse output"),
        ("Time (%),Total Time (ns),Instances,Avg (ns),Name", "it is a table of Nsight Systems"),
    ],
)
def test_other_outputs_are_named(tmp_path: Path, text: str, said: str) -> None:
    file = tmp_path / "x.txt"
    file.write_text(text + "\n")
    with pytest.raises(InputError, match=said):
        read_layout(file, "topo")
