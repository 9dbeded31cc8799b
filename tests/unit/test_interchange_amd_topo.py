"""Topology tables of rocm-smi and amd-smi, and sockets from NUMA nodes: small outputs in the forms that circulate."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from sim.config import load_machine
from sim.errors import InputError
from sim.interchange.machines import nvidia_topo
from sim.interchange.machines.amd_topo import looks_like, parse
from sim.interchange.machines.numa import sockets_of
from sim.interchange.machines.readers import read_layout
from sim.study.machine_import import machine_document, write_machine

Cell = Callable[[int, int], object]


def rocm(num: int, *tables: tuple[str, Cell], nodes: list[int] | None = None, label: str = "GPU[{}]\t\t") -> str:
    lines = ["============ ROCm System Management Interface ============", "WARNING: a device is in a low-power state", ""]
    for heading, cell in tables:
        lines += [f"======== {heading} between two GPUs ========", " " * 7 + "".join(f"GPU{i:<10}" for i in range(num))]
        lines += [f"GPU{i}   " + "".join(f"{cell(i, j)!s:<13}" for j in range(num)) for i in range(num)]
        lines.append("")
    for gpu, node in enumerate(nodes or ()):
        lines += [f"{label.format(gpu)}: (Topology) Numa {kind}: {node}" for kind in ("Node", "Affinity")]
    return "\n".join([*lines, "======== End of ROCm SMI Log ========"])


def amd_smi(num: int, **tables: Cell) -> str:
    names = [f"0000:{16 * i:02x}:00.0" for i in range(num)]
    lines = []
    for heading, cell in tables.items():
        lines += [f"{heading.replace('_', ' ')} TABLE:", " " * 13 + " ".join(names)]
        lines += [f"{names[i]} " + "".join(f"{cell(i, j)!s:<13}" for j in range(num)) for i in range(num)]
    return "\n".join([*lines, "", "Legend:", "  SELF = Current GPU"])


def off(value: object, own: object = 0) -> Cell:
    return lambda i, j: own if i == j else value


def full(num: int) -> dict[tuple[int, int], int]:
    return {(i, j): 1 for i in range(num) for j in range(i + 1, num)}


MESH = (("Weight", off(15)), ("Hops", off(1)), ("Link Type", off("XGMI")))
JSON = json.dumps(
    [
        {
            "gpu": i,
            "links": [{"weight": 15 * (i != j), "link_type": "XGMI" if i != j else "SELF", "num_hops": 1} for j in range(4)],
        }
        for i in range(4)
    ]
)
ROCM_JSON = json.dumps(
    {"system": {f"(Topology) Link type between DRM devices {i} and {j}": "XGMI" for i in range(4) for j in range(i)}}
    | {f"card{i}": {"(Topology) Numa Node": "0"} for i in range(4)}
)


@pytest.mark.parametrize(
    "text",
    [
        rocm(4, *MESH, nodes=[0, 0, 0, 0]), rocm(4, *MESH[:1]), rocm(4, *MESH[1:2]), rocm(4, *MESH[2:]),
        rocm(4, *MESH, nodes=[0, 1, 2, 3], label="GPU {}          "), JSON, ROCM_JSON,
        amd_smi(4, ACCESS=off("ENABLED"), WEIGHT=off(15), HOPS=off(1), LINK_TYPE=off("XGMI", "SELF"), NUMA_BW=off("0-0",
        "N/A")),
        amd_smi(4, LINK_TYPE=off("XGMI", "SELF"), NUMA_BW=off("50000-50000", "N/A"), CACHE_COHERANCY=off("C", "SELF")),
        "\n".join(f"> {line}" for line in rocm(4, *MESH).splitlines()),
    ],
    ids=["showtopo", "weights", "hops", "types", "old-numa-label", "amd-smi-json", "rocm-smi-json", "amd-smi-no-rates",
    "amd-smi",
         "quoted"],
)  # fmt: skip
def test_every_form_of_a_mesh_tells_the_same(text: str) -> None:
    assert looks_like(text)
    layout = parse(text, "t.txt")
    assert layout.gpu_links == full(4)
    assert [adapter.socket for adapter in layout.adapters] == [0, 0, 0, 0]
    assert layout.gpu_vendor == "amd"


def test_markdown_tables_are_read() -> None:
    rows = "|  | GPU0 | GPU1 |\n| :--- | :--: | :--: |\n| **GPU0** | 0 | 15 |\n| **GPU1** | 15 | 0 |\n"
    assert parse(f"**Weight Between Two GPUs**\n\n{rows}", "t.md").gpu_links == {(0, 1): 1}


def test_pairs_over_pcie_or_over_another_gpu_have_no_link_of_their_own() -> None:
    near: Cell = lambda i, j: 0 if i == j else 15 if abs(i - j) == 1 else 30  # noqa: E731
    ring = parse(rocm(3, ("Weight", near), ("Link Type", off("XGMI"))), "t.txt")
    assert ring.gpu_links == {(0, 1): 1, (1, 2): 1}
    assert parse(rocm(2, ("Weight", off(40)), ("Hops", off(2)), ("Link Type", off("PCIE"))), "t.txt").gpu_links == {}


def test_the_fastest_over_the_slowest_rate_is_the_number_of_links() -> None:
    text = amd_smi(
        3, LINK_TYPE=off("XGMI", "SELF"), NUMA_BW=lambda i, j: "N/A" if i == j else f"50000-{50000 * (1 + 3 * (i + j < 2))}"
    )
    assert parse(text, "t.txt").gpu_links == {(0, 1): 4, (0, 2): 1, (1, 2): 1}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (rocm(3, *MESH).replace("GPU1   15           0            15", "GPU1   15           0"),
         "t.txt:7: row GPU1 has 2 cells below 3 columns; save the output to a file"),
        ("\n".join(line for line in rocm(3, MESH[0]).splitlines() if not line.startswith("GPU1 ")),
         "t.txt: 1 of the header's GPUs have no row: GPU1; the output is cut: save it to a file"),
        ("==== Weight between two GPUs ====\n==== End ====",
         "t.txt: holds no table of links between GPUs; give the output of: rocm-smi --showtopo, or amd-smi topology"),
        (rocm(2, ("Link Type", lambda i, j: "0" if i == j else ("XGMI", "PCIE")[i])),
         "t.txt: GPU0-GPU1 is XGMI one way and PCIE the other; columns are shifted"),
    ],
    ids=["short-row", "no-row", "no-table", "one-way"],
)  # fmt: skip
def test_damaged_tables_are_refused_with_their_line(text: str, message: str) -> None:
    with pytest.raises(InputError) as caught:
        parse(text, "t.txt")
    assert str(caught.value.faults[0]) == message


@pytest.mark.parametrize(
    ("nodes", "sockets"),
    [
        ([0, 0, 1, 1], [0, 0, 1, 1]), ([1, 0], [1, 0]), ([1, 1], [0, 0]), ([0, 1, 2, 3], [0, 0, 0, 0]),
        ([0, 0, 1, 1, 2, 2, 3, 3], [0, 0, 0, 0, 1, 1, 1, 1]), ([3, 3, 1, 1, 7, 7, 5, 5], [0, 0, 0, 0, 1, 1, 1, 1]),
        ([3, 3], [0, 0]), ([11, 2], [1, 0]),
    ],
)  # fmt: skip
def test_nodes_beyond_two_are_parts_of_sockets(nodes: list[int], sockets: list[int]) -> None:
    assert sockets_of(nodes)[0] == sockets


def test_pcie_paths_tell_sockets_where_no_node_is_printed() -> None:
    hops: Cell = lambda i, j: 0 if i == j else 2 if i // 2 == j // 2 else 3  # noqa: E731
    layout = parse(rocm(4, ("Hops", hops), ("Link Type", off("PCIE"))), "t.txt")
    assert [adapter.socket for adapter in layout.adapters] == [0, 0, 1, 1]


@pytest.mark.parametrize("affinity", ["\t\t\t\tN/A", "\tN/A\tN/A\t\tN/A"])
def test_gpus_without_any_affinity_share_a_socket_as_under_wsl(affinity: str) -> None:
    text = f"\tGPU0\tGPU1\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\nGPU0\t X \tSYS{affinity}\nGPU1\tSYS\t X {affinity}\n"
    layout = nvidia_topo.parse(text, "t.txt")
    assert len(layout.sockets) == 1
    assert layout.notes[0].startswith("sockets: 1 (the matrix tells no affinity of any GPU, as under WSL")
    told = nvidia_topo.parse(text.replace(affinity, "\t0-3\t0\t\tN/A", 1).replace(affinity, "\t4-7\t1\t\tN/A"), "t.txt")
    assert len(told.sockets) == 2
    cut = nvidia_topo.parse("\tGPU0\tGPU1\nGPU0\t X \tSYS\nGPU1\tSYS\t X \n", "t.txt")  # SYS alone crosses sockets
    assert len(cut.sockets) == 2


@pytest.mark.parametrize(
    ("text", "part", "host"),
    [
        (rocm(8, *MESH, nodes=[0] * 4 + [1] * 4), "mi300x", 2),
        (rocm(8, ("Link Type", lambda i, j: "XGMI" if i // 4 == j // 4 else "PCIE")), "mi210", 1),
        (amd_smi(4, LINK_TYPE=off("XGMI"), NUMA_BW=lambda i, j: f"50000-{50000 * (4 if i // 2 == j // 2 else 1)}"),
        "mi250x-die", 1),
        (rocm(2, ("Link Type", off("PCIE"))), "mi210", 1),
    ],
    ids=["mesh", "two-bridges", "packages", "pcie"],
)  # fmt: skip
def test_the_part_is_guessed_by_the_links_and_the_machine_is_whole(text: str, part: str, host: int, tmp_path: Path) -> None:
    (tmp_path / "t.txt").write_text(text)
    draft = machine_document([read_layout(tmp_path / "t.txt", "topo")], [])
    write_machine(draft, "m", tmp_path / "m.yaml")
    machine = load_machine(str(tmp_path / "m.yaml"))
    assert machine.device("gpu0").part_name == part
    assert sum(device.kind == "cpu" for device in machine.devices.values()) == host
    assert draft.assumptions[0].startswith(f"GPU model: {part} (")
