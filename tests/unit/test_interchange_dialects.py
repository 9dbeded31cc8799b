"""Measurements as people paste them: without banners, quoted, indented, several tests in one log, older and newer tools."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sim.interchange.machines import copies, fio, mlc, nccl_tests, nvbandwidth, stream
from sim.interchange.machines.figures import Figure, Layout
from sim.interchange.machines.readers import kind_of, read_figures
from sim.study.machine_import import document_of, machine_document

HEAD = "#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong\n"


def told(figures: list[Figure], quantity: str) -> dict[tuple[object, ...], float]:
    keys = ("direction", "device", "from_node", "to_node", "kernel", "kind", "ranks", "nodes")
    return {tuple(f.at[key] for key in keys if key in f.at): f.value for f in figures if f.quantity == quantity}


def test_a_bandwidth_matrix_that_lost_its_heading_is_no_latency() -> None:
    text = (
        "Measuring idle latencies (in ns)...\n\tMemory node\nSocket       0       1\n     0    90.0   140.0\n"
        "     1   140.0    91.0\n\n"
        "Using Read-only traffic type\n\tNuma node\nNuma node     0     1\n       0   69000.5 34000.6\n"
        "       1   34000.0 68000.6\n"
    )
    assert kind_of(text) == "mlc"
    figures = mlc.parse(text, "m")
    assert told(figures, "memory_latency") == pytest.approx({(0, 0): 90e-9, (0, 1): 140e-9, (1, 0): 140e-9, (1, 1): 91e-9})
    assert told(figures, "memory_bandwidth")[1, 1] == pytest.approx(68000.6e6)
    curve = "Measuring Loaded Latencies for the system\nUsing Read-only traffic type\n=====\n 00000\t200.0\t 199000.0\n"
    assert [f.quantity for f in mlc.parse(curve, "m")] == ["loaded_latency"]


def test_babelstream_is_of_the_device_that_it_names_else_of_the_host() -> None:
    rows = (
        "Read: 0.000810 s (=994263.0 MBytes/sec)\nFunction    MBytes/sec  Min (sec)   Max         Average     \n"
        "Copy        1700000.800 0.00031     0.00032     0.00032     \n"
        "Mul         1600000.608 0.00032     0.00033     0.00033     \n"
        "Triad       1720000.354 0.00047     0.00047     0.00047     \n"
        "Dot         1580000.948 0.00034     0.00036     0.00035   \n"
    )
    device = stream.parse(f"BabelStream\nUsing CUDA device NVIDIA A100-SXM4-80GB\n{rows}", "s")
    assert told(device, "device_stream") == pytest.approx(
        {("gpu0", "copy"): 1.7000008e12, ("gpu0", "scale"): 1.600000608e12, ("gpu0", "triad"): 1.720000354e12}
    )
    assert [f.text for f in device if f.quantity == "gpu_name"] == ["NVIDIA A100-SXM4-80GB"]
    host = stream.parse(f"BabelStream\nImplementation: OpenMP\n{rows}", "s")
    assert told(host, "stream")[("triad",)] == pytest.approx(1.720000354e12)
    assert kind_of(rows) == "stream"
    assert not stream.parse("Copy 1.0 2.0 3.0 4.0\n", "s")  # columns of unknown meaning


def test_the_peaks_of_rocm_are_read_without_banner_and_by_the_numbers_of_the_header() -> None:
    text = (
        "Device: 1,  AMD Radeon RX 7900 XTX\nDevice: 2,  AMD Radeon RX 7900 XTX\n\nUnidirectional copy peak bandwidth GB/s\n"
        "D/D       1           2\n1         540.0       14.0\n2         14.5        541.0\n\n\n"
        "Bdirectional copy peak bandwidth GB/s\n\n"
        "D/D       1           2\n\n1         N/A         26.0\n"
    )
    assert kind_of(text) == "copies"
    figures = copies.parse(text, "c")
    pairs = {(f.at["direction"], f.at["device"], f.at["is_duplex"]): f.value for f in figures if f.quantity == "copy"}
    assert pairs == {
        ("d2d", "gpu0", 0): 540e9, ("p2p", "gpu0-gpu1", 0): 14e9, ("p2p", "gpu1-gpu0", 0): 14.5e9, ("d2d", "gpu1", 0): 541e9,
        ("p2p", "gpu0-gpu1", 1): 13e9,
    }  # fmt: skip
    assert [f.text for f in figures if f.quantity == "gpu_name"] == ["AMD Radeon RX 7900 XTX"] * 2


def test_transferbench_tells_what_gpus_write_and_not_what_cpus_do() -> None:
    text = (
        "Unidirectional copy peak bandwidth GB/s [Local read / Remote write] (GPU-Executor: GFX)\n"
        " SRC+EXE\\DST    CPU 00    CPU 01       GPU 00    GPU 01\n  CPU 00  ->     92.0    102.0        45.0     45.5\n\n"
        "  GPU 00  ->     55.0     55.5      2132.0     57.0\n  GPU 01  ->     56.0     55.5        57.5       N/A\n"
        "Bidirectional copy peak bandwidth GB/s\n     SRC\\DST    CPU 00    CPU 01       GPU 00    GPU 01\n"
        "  GPU 00  ->  1.0 2.0 3.0 4.0\n"
    )
    assert kind_of(text) == "copies"
    rates = told(copies.parse(text, "c"), "copy")
    assert rates == {
        ("d2h", "gpu0"): 55.5e9, ("d2d", "gpu0"): 2132e9, ("p2p", "gpu0-gpu1"): 57e9, ("d2h", "gpu1"): 55.5e9,
        ("p2p", "gpu1-gpu0"): 57.5e9,
    }  # fmt: skip


def test_quoted_and_indented_outputs_are_read(tmp_path: Path) -> None:
    table = (
        "Host to Device Bandwidth, 1 Device(s)  \nPINNED Memory Transfers  \n  Transfer Size (Bytes)\tBandwidth(GB/s)  \n"
        "  32\t\t\t12.0  \n"
    )
    (tmp_path / "q.txt").write_text("\n".join(f"> {line}" for line in table.splitlines()))
    assert told(read_figures(tmp_path / "q.txt", "copies"), "copy") == {("h2d", "gpu0"): 12e9}

    text = (
        "    Running host_to_device_memcpy_ce.\n    memcpy CE CPU(row) -> GPU(column)\n            0    1\n"
        "    0    26.0   25.0\n    ...\n"
    )
    assert kind_of(text) == "nvbandwidth"
    assert told(nvbandwidth.parse(text, "n"), "copy") == {("h2d", "gpu0"): 26e9, ("h2d", "gpu1"): 25e9}


def test_a_report_of_fio_without_its_outcome_lines_takes_what_follows_each_description() -> None:
    text = "".join(
        f"test: (g=0): rw={way}, bs=(R) 4096B-4096B, (W) 4096B-4096B, (T) 4096B-4096B, ioengine=libaio, iodepth=1\n\n"
        f"  {side}: IOPS={iops}, BW=36.0MiB/s (38.5MB/s)(1024MiB/27920msec)\n\n"
        for way, side, iops in (("randread", "read", 9000), ("randwrite", "write", 8000))
    )
    assert kind_of(text) == "fio"
    assert [(f.at["direction"], f.at["operations_per_s"], f.at["is_mixed"]) for f in fio.parse(text, "f")] == [
        ("read", 9000, 0), ("write", 8000, 0),
    ]  # fmt: skip


@pytest.mark.parametrize("key", ["rw", "readwrite"])
def test_jobs_that_read_and_write_at_once_calibrate_nothing(key: str) -> None:
    side = {"io_bytes": 10, "bw_bytes": 1e6, "iops": 250.0}
    options = {key: "randrw", "direct": "1", "bs": "4k"}
    job = {"jobname": "j", "error": 0, "job options": options, "read": side, "write": side}
    figures = fio.parse(json.dumps({"fio version": "fio-3.33", "jobs": [job]}), "f")
    assert {f.at["is_mixed"] for f in figures} == {1.0}
    draft = machine_document([], figures)
    assert "nvme0" not in draft.devices
    assert any(line.startswith("fio jobs that read and write at once: not used") for line in draft.assumptions)


def test_a_log_of_several_collectives_keeps_them_apart() -> None:
    rank = "    #  Rank  {0} Group  0 Pid 1 on  a device  {0} [0xa4] NVIDIA A100-SXM4-80GB\n"
    row = "    1000000000     250000000     float     {}      -1  10000.0  100.00  {}      0   9999.0  100.0   100.0      0\n"
    text = (

        "$ ./build/all_gather_perf -b 1G\n# nThread 1 nGpus 4 minBytes 8 maxBytes 8 step: 2(factor)\n"
        "" + HEAD + row.format("none", "75.0")

        + "# Out of bounds values : 0 OK\n$ ./build/all_reduce_perf -b 1G\n# Using devices\n"
        "" + rank.format(0) + rank.format(1) + HEAD
        + row.format("sum", "100.0") + "# Collective test concluded: all_reduce_perf\n"
    )  # fmt: skip
    figures = nccl_tests.parse(text, "x.log")
    assert told(figures, "collective") == pytest.approx({("all_gather", 4, 1): 10e-3, ("all_reduce", 2, 1): 10e-3})
    assert [f.text for f in figures if f.quantity == "gpu_name"] == ["NVIDIA A100-SXM4-80GB"] * 2


def collective(bus: float, nodes: float) -> Figure:
    at: dict[str, float | str] = {"kind": "all_reduce", "ranks": 8.0, "nodes": nodes, "size_bytes": 1e9, "bus_bytes_per_s": bus}
    return Figure(quantity="collective", value=1e-3, source="n: all_reduce", at=at)


@pytest.mark.parametrize(
    ("bus", "nodes", "part", "linked"),
    [(240e9, 1.0, "a100-80gb-sxm", True), (440e9, 1.0, "h100-sxm", True), (20e9, 1.0, "a100-80gb-pcie", False)],
)
def test_collectives_faster_than_pcie_tell_that_there_are_links(bus: float, nodes: float, part: str, linked: bool) -> None:
    draft = machine_document([], [collective(bus, nodes)])
    assert sum(name.startswith("gpu") for name in draft.devices) == 8
    assert any(line.startswith(f"GPU model: {part}") for line in draft.assumptions)
    assert ("nvswitch" in draft.devices) is linked
    assert document_of(draft, "m")["devices"]


def test_collectives_of_an_untold_number_of_nodes_make_no_gpus() -> None:
    draft = machine_document([Layout(source="x")], [collective(240e9, 0.0)])
    assert list(draft.devices) == ["cpu0"]
    assert "collectives: not used (the file does not list its GPUs; give --topo or --hwloc)" in draft.assumptions


def test_pasted_tables_of_mlc_without_any_heading_keep_apart() -> None:
    text = (
        "    Using traffic with the following read-write ratios\n    ALL Reads        :\t280000.5\n\n"
        "    Using Read-only traffic type\n    \t\tNuma node\n    Numa node\t     0\t     1\n           0\t139000.5\t80000.5\n"
        "           1\t80000.5\t\t140000.5\n\n    Using Read-only traffic type\n    Inject\tLatency\tBandwidth\n"
        "    Delay\t(ns)\tMB/sec\n    ==========\n     00000\t381.00\t 280000.5\n     20000\t101.00\t   2000.5\n"
    )
    assert kind_of(text) == "mlc"
    figures = mlc.parse(text, "m")
    assert [f.value for f in figures if f.quantity == "system_bandwidth"] == [280000.5e6]
    assert told(figures, "memory_bandwidth")[0, 1] == pytest.approx(80000.5e6)
    assert [f.at["bandwidth_bytes_per_s"] for f in figures if f.quantity == "loaded_latency"] == [280000.5e6, 2000.5e6]


def matrix(rows: list[list[float]]) -> list[Figure]:
    return [
        Figure(
            quantity="memory_bandwidth", value=rate * 1e9, source="m: x", at={"from_node": float(row), "to_node": float(column)}
        )
        for row, rates in enumerate(rows)
        for column, rate in enumerate(rates)
    ]


@pytest.mark.parametrize(
    ("rows", "sockets", "link"),
    [
        ([[59, 59, 50, 50], [59, 59, 50, 50], [50, 50, 59, 59], [50, 50, 59, 59]], 2, "50 GB/s"),
        ([[59, 50], [50, 59]], 2, "50 GB/s"),
        ([[50, 50], [50, 50]], 2, "50 GB/s"),  # interleaved: nothing tells the sockets apart
        ([[59, 58, 50], [58, 59, 50], [50, 50, 59]], 3, "58 GB/s"),  # parts of unequal size
        ([[59, 55], [55, 59]], 2, "55 GB/s"),
    ],
)
def test_nodes_that_read_each_other_as_fast_as_themselves_share_a_socket(
    rows: list[list[float]], sockets: int, link: str
) -> None:
    draft = machine_document([], matrix(rows))
    assert sum(name.startswith("cpu") for name in draft.devices) == sockets
    assert draft.parts["socket-link"]["lane_bandwidth"]["value"] == link


def test_a_part_of_the_curve_that_does_not_reach_idle_is_no_latency() -> None:
    curve = [
        Figure(
            quantity="loaded_latency",
            value=latency * 1e-9,
            source="m: x",
            at={"bandwidth_bytes_per_s": rate, "write_share": 0.0},
        )
        for latency, rate in ((380.0, 280e9), (290.0, 270e9), (160.0, 237e9))
    ]
    draft = machine_document([], curve)
    assert not any("latency" in line for line in draft.used)
    low = Figure(quantity="loaded_latency", value=1e-7, source="m: x", at={"bandwidth_bytes_per_s": 2e9, "write_share": 0.0})
    assert any("idle latency 100 ns" in line for line in machine_document([], [*curve, low]).used)


def test_fio_2_without_options_tells_its_block_by_what_an_operation_moved() -> None:
    side = {"io_bytes": 7116, "bw": 2750, "iops": 21.5}
    jobs = [{"jobname": "j", "error": 0, "read": side}, {"jobname": "m", "error": 0, "mixed": side}]
    first, second = fio.parse(json.dumps({"fio version": "fio-2.2.10", "jobs": jobs}), "f")
    assert (first.value, first.at["block_bytes"], first.at["is_mixed"]) == (2750 * 1024, 2**17, 0.0)
    assert (second.at["direction"], second.at["is_mixed"]) == ("read", 1.0)
