"""Copy benchmarks: CUDA bandwidthTest, rocm-bandwidth-test, SuperBench's gpu-copy and ROCm bandwidth logs -> figures."""

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
_SCALES = {"By": 1.0, "kB": 2.0**10, "MB": 2.0**20}
_TABLE = {"Host to Device": "h2d", "Device to Host": "d2h", "Device to Device": "d2d"}


def looks_like(text: str) -> bool:
    """Whether one of the tools wrote the text."""
    return any(p.search(text) for p in (_CUDA, _CUDA_TABLE, _SUPERBENCH, _ROCM_SIZE)) or "RocmBandwidthTest" in text


def parse(text: str, file: str) -> list[Figure]:
    """All copies that the text has, with direction, size where it is printed, and whether host memory was pinned."""
    return [
        *_names(text, file),
        *_cuda(text, file),
        *_superbench(text, file),
        *_rocm_sizes(text, file),
        *_rocm_matrix(text, file),
    ]


def _copy(value: float, file: str, direction: str, device: str = "gpu0", /, **at: float | str) -> Figure:
    told: dict[str, float | str] = {"direction": direction, "device": device, "is_pinned": 1.0, "is_duplex": 0.0}
    told |= at
    return Figure(quantity="copy", value=value, source=f"{file}: {direction} {device}", at=told)


def _names(text: str, file: str) -> Iterator[Figure]:
    if "RocmBandwidthTest" in text:
        return
    for match in _CUDA_DEVICE.finditer(text):
        yield Figure(quantity="gpu_name", value=0.0, source=file, at={"device": f"gpu{match[1]}"}, text=match[2])


def _cuda(text: str, file: str) -> Iterator[Figure]:
    for match in _CUDA.finditer(text):
        is_pinned = float(match[2] in (None, "Pinned"))
        rate = float(match[3]) * (1e9 if match[4] == "G" else 1e6)
        yield _copy(rate, file, match[1].lower(), is_pinned=is_pinned, size_bytes=float(match[5]))
    for match in _CUDA_TABLE.finditer(text):
        is_pinned = float("PAGEABLE" not in match[2].upper())
        # the table is in GB/s of 1e9 since CUDA 10.1, before it in MB/s
        scale = 1e9 if "GB/s" in match[2] else 1e6
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
    """The peak matrices of rocm-bandwidth-test: devices without a bus id are CPUs."""
    if "RocmBandwidthTest" not in text:
        return
    devices = {int(match[1]): (match[2].strip(), bool(match[3])) for match in _ROCM_DEVICE.finditer(text)}
    gpus = [number for number, (_name, has_bus) in sorted(devices.items()) if has_bus]
    names = {number: f"gpu{index}" for index, number in enumerate(gpus)}
    # an integrated GPU goes by a general name: its processor's says more ("... w/ Radeon 8060S")
    integrated = next((name for name, has_bus in devices.values() if not has_bus and "w/ Radeon" in name), "")
    for number, name in names.items():
        told = devices[number][0]
        model = integrated if integrated and told == "AMD Radeon Graphics" else told
        yield Figure(quantity="gpu_name", value=0.0, source=file, at={"device": name}, text=model)
    for title, is_duplex in (("Unidirectional", 0.0), ("Bidirectional", 1.0)):
        found = re.search(rf"{title} (?:copy )?peak", text)
        for line in text[found.start() :].splitlines()[3:] if found else ():
            cells = line.split()
            if not cells:
                continue
            if not cells[0].isdigit():
                break
            row = int(cells[0])
            for column, cell in zip(sorted(devices), cells[1:], strict=False):
                if cell != "N/A" and row in devices:
                    yield from _rocm_cell(row, column, float(cell) * 1e9, is_duplex, names, file)


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
