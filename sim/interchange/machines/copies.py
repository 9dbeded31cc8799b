"""Copy benchmarks -> figures: CUDA bandwidthTest, rocm-bandwidth-test, TransferBench p2p, SuperBench's gpu-copy and logs."""

from __future__ import annotations

import re
from collections.abc import Iterator

from sim.interchange.machines.figures import Figure

_CUDA = re.compile(
    r"(?m)^bandwidthTest-(H2D|D2H|D2D)-?(Pinned|Paged|Pageable)?, Bandwidth = ([0-9.]+) ([GM])B/s, "
    r"Time = [0-9.e-]+ s, Size = (\d+) bytes"
)
_CUDA_TABLE = re.compile(
    r"(Host to Device|Device to Host|Device to Device) Bandwidth, \d+ Device\(s\)([\s\S]*?)\n"
    r"((?:[ \t]*\d+[ \t]+[0-9.]+[ \t]*\r?\n?)+)"
)
_CUDA_DEVICE = re.compile(r"(?m)^\s*Device (\d+): (.+?)\s*$")
_SUPERBENCH = re.compile(
    r"(?m)^(cpu|gpu\d+)_(to|and)_(cpu|gpu\d+)(?:_(read|write))?_by_(sm|dma)(?:_under_numa(\d+))?\s+([0-9.]+)\s*$"
)
_ROCM_SIZE = re.compile(r"(?m)^\s*(H2D|D2H)_Bandwidth_(pinned|unpinned|pageable)\s+\+?(\d+)(By|kB|MB)\s+GB/sec\s+([0-9.]+)")
_ROCM_DEVICE = re.compile(r"(?m)^\s*Device: (\d+),\s+([^,\n]+)(,[^\n]*)?$")
_ROCM_MATRIX = re.compile(r"(?m)^[ \t]*(Uni|Bi?)directional (?:copy )?peak bandwidth GB/s[ \t]*\n\s*D/D[ \t]+([\d \t]+)")
#: TransferBench p2p: who reads and where it writes; the GPU's own kernels copy
_TRANSFER_HEAD = re.compile(r"(?m)^\s*SRC\+EXE\\DST[ \t]+(.*)$")
_TRANSFER_ROW = re.compile(r"(?m)^\s*(CPU|GPU) (\d+)[ \t]+->[ \t]+([0-9. \tN/A]+)$")
#: a device that the driver names without a bus id is a processor, unless its name says otherwise
_GPU_NAME = re.compile(r"Instinct|Radeon RX|Radeon PRO|Radeon AI|Vega|gfx\d", re.I)
_SCALES = {"By": 1.0, "kB": 2.0**10, "MB": 2.0**20}
#: bandwidthTest before CUDA 10.1 divides KiB by ms and calls it MB/s; since then it prints GB/s of 1e9
_OLD_MB = 1.024e6
_TABLE = {"Host to Device": "h2d", "Device to Host": "d2h", "Device to Device": "d2d"}
_NUMBER = re.compile(r"\d+(?:\.\d+)?(?:[eE][-+]?\d+)?")


def looks_like(text: str) -> bool:
    """Whether one of the tools wrote the text."""
    return any(p.search(text) for p in (_CUDA, _CUDA_TABLE, _SUPERBENCH, _ROCM_SIZE, _ROCM_MATRIX, _TRANSFER_ROW))


def parse(text: str, file: str) -> list[Figure]:
    """All copies that the text has, with direction, size where it is printed, and whether host memory was pinned."""
    return [
        *_names(text, file),
        *_cuda(text, file),
        *_superbench(text, file),
        *_rocm_sizes(text, file),
        *_rocm_matrix(text, file),
        *_transfer_bench(text, file),
    ]


def _copy(value: float, file: str, direction: str, device: str = "gpu0", /, **at: float | str) -> Figure:
    told: dict[str, float | str] = {"direction": direction, "device": device, "is_pinned": 1.0, "is_duplex": 0.0}
    told |= at
    return Figure(quantity="copy", value=value, source=f"{file}: {direction} {device}", at=told)


def _names(text: str, file: str) -> Iterator[Figure]:
    for match in _CUDA_DEVICE.finditer(text):
        yield Figure(quantity="gpu_name", value=0.0, source=file, at={"device": f"gpu{match[1]}"}, text=match[2])


def _cuda(text: str, file: str) -> Iterator[Figure]:
    for match in _CUDA.finditer(text):
        is_pinned = float(match[2] in (None, "Pinned"))
        rate = float(match[3]) * (1e9 if match[4] == "G" else _OLD_MB)
        yield _copy(rate, file, match[1].lower(), is_pinned=is_pinned, size_bytes=float(match[5]))
    for match in _CUDA_TABLE.finditer(text):
        is_pinned = float("PAGEABLE" not in match[2].upper())
        scale = 1e9 if "GB/s" in match[2] else _OLD_MB
        for line in match[3].splitlines():
            if cells := line.split():
                size = float(cells[0])
                yield _copy(float(cells[1]) * scale, file, _TABLE[match[1]], is_pinned=is_pinned, size_bytes=size)


def _superbench(text: str, file: str) -> Iterator[Figure]:
    for match in _SUPERBENCH.finditer(text):
        source, joint, target, _how, engine, node, rate = match.groups()
        if source == target:
            direction, device = "d2d", source
        elif source == "cpu" or target == "cpu":
            direction, device = ("h2d", target) if source == "cpu" else ("d2h", source)
        else:
            direction, device = "p2p", f"{source}-{target}"
        is_duplex = joint == "and"
        value = float(rate) * 1e9 / (2.0 if is_duplex else 1.0)  # both directions together
        more: dict[str, float | str] = {"is_duplex": float(is_duplex), "engine": "sm" if engine == "sm" else "ce"}
        yield _copy(value, file, direction, device, **more, **({"node": float(node)} if node else {}))


def _rocm_sizes(text: str, file: str) -> Iterator[Figure]:
    for match in _ROCM_SIZE.finditer(text):
        value = float(match[5]) * 1e9
        if value > 0:
            size = float(match[3]) * _SCALES[match[4]]
            more: dict[str, float | str] = {"is_pinned": float(match[2] == "pinned"), "size_bytes": size}
            yield _copy(value, file, match[1].lower(), **more)


def _rocm_matrix(text: str, file: str) -> Iterator[Figure]:
    """The peak matrices of rocm-bandwidth-test; the header tells which devices are its columns."""
    matrices = list(_ROCM_MATRIX.finditer(text))
    if not matrices:
        return
    devices = {
        int(match[1]): (match[2].strip(), bool(match[3] or (_GPU_NAME.search(match[2]) and " w/ " not in match[2])))
        for match in _ROCM_DEVICE.finditer(text)
    }
    gpus = [number for number, (_name, is_gpu) in sorted(devices.items()) if is_gpu]
    names = {number: f"gpu{index}" for index, number in enumerate(gpus)}
    # an integrated GPU goes by a general name: its processor's says more ("... w/ Radeon 8060S")
    integrated = next((name for name, is_gpu in devices.values() if not is_gpu and "w/ Radeon" in name), "")
    for number, name in names.items():
        told = devices[number][0]
        model = integrated if integrated and told == "AMD Radeon Graphics" else told
        yield Figure(quantity="gpu_name", value=0.0, source=file, at={"device": name}, text=model)
    for match in matrices:
        columns = [int(cell) for cell in match[2].split()]
        for line in text[match.end() :].splitlines()[1:]:
            cells = line.split()
            if cells and not cells[0].isdigit():
                break
            for column, cell in zip(columns, cells[1:], strict=False):
                if int(cells[0]) in devices and _NUMBER.fullmatch(cell):
                    yield from _rocm_cell(int(cells[0]), column, float(cell) * 1e9, float(match[1] != "Uni"), names, file)


def _transfer_bench(text: str, file: str) -> Iterator[Figure]:
    """Rows of GPUs in the first matrix: what their kernels write to the host and to each other.

    Rows of CPUs are copies by the processor's threads, which no copy of a framework is.
    """
    head = _TRANSFER_HEAD.search(text)
    if head is None:
        return
    end = re.search(r"(?m)^\s*Bidirectional", text[head.end() :])
    columns = re.findall(r"(CPU|GPU) (\d+)", head[1])
    for match in _TRANSFER_ROW.finditer(text[head.end() :][: end.start() if end else None]):
        for (kind, number), cell in zip(columns, match[3].split(), strict=False):
            if match[1] == "GPU" and _NUMBER.fullmatch(cell):
                own, other = f"gpu{int(match[2])}", f"gpu{int(number)}"
                direction, device = (
                    ("d2h", own) if kind == "CPU" else ("d2d", own) if own == other else ("p2p", f"{own}-{other}")
                )
                more: dict[str, float | str] = {"engine": "sm"} | ({"node": float(number)} if kind == "CPU" else {})
                yield _copy(float(cell) * 1e9, file, direction, device, **more)


def _rocm_cell(row: int, column: int, value: float, is_duplex: float, names: dict[int, str], file: str) -> Iterator[Figure]:
    value /= 2.0 if is_duplex else 1.0
    if row in names and column in names:
        same = row == column
        device = names[row] if same else f"{names[row]}-{names[column]}"
        yield _copy(value, file, "d2d" if same else "p2p", device, is_duplex=is_duplex)
    elif column in names:
        yield _copy(value, file, "h2d", names[column], is_duplex=is_duplex)
    elif row in names:
        yield _copy(value, file, "d2h", names[row], is_duplex=is_duplex)
