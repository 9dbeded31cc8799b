"""STREAM on a CPU (also its Windows and Arm variants), BabelStream and SuperBench's gpu-stream -> figures."""

from __future__ import annotations

import re

from sim.interchange.machines.figures import Figure

_HOST = re.compile(r"(?im)^\s*(Copy|Scale|Add|Triad)\s*:\s*([0-9.]+)(?:\s+[0-9.]+){3}\s*$")
_WINDOWS = re.compile(r"(?im)^\|\s*(Copy|Scale|Add|Triad)\s*\|\s*([0-9.]+)\s*\|\s*([0-9.]+)")
_GPU = re.compile(r"(?m)^STREAM_(COPY|SCALE|ADD|TRIAD)_\w+?_gpu_(\d+)_\w+\s+([0-9.]+)\s+[0-9.]+\s*$")
#: BabelStream calls scaling "Mul" and ends with a dot product
_BABEL = re.compile(r"(?m)^[ \t]*(Copy|Mul|Add|Triad)[ \t]+([0-9.]+)(?:[ \t]+[0-9.]+){3}[ \t]*$")
_BABEL_HEAD = re.compile(r"Function\s+MBytes/sec\s+Min \(sec\)")
_BABEL_DEVICE = re.compile(r"(?m)^\s*Using (?:CUDA|HIP|OpenCL|SYCL|OMP target) device (.+?)\s*$")
_THREADS = re.compile(r"Number of Threads (?:counted|is|requested)\s*=?\s*(\d+)")


def looks_like(text: str) -> bool:
    """Whether a table of STREAM's kernels is in the text."""
    return bool(_HOST.search(text) or _WINDOWS.search(text) or _GPU.search(text) or _BABEL_HEAD.search(text))


def parse(text: str, file: str) -> list[Figure]:
    """Best rates by kernel, in bytes/s as STREAM counts them (writes not allocated twice)."""
    threads = float(match[1]) if (match := _THREADS.search(text)) else 0.0
    best: dict[str, float] = {}
    for match in _HOST.finditer(text):
        best[match[1].lower()] = max(best.get(match[1].lower(), 0.0), float(match[2]))
    for match in _WINDOWS.finditer(text):
        best[match[1].lower()] = max(best.get(match[1].lower(), 0.0), float(match[3]))
    device = match[1] if (match := _BABEL_DEVICE.search(text)) else ""
    devices: dict[tuple[str, str], float] = {}
    for match in _BABEL.finditer(text) if _BABEL_HEAD.search(text) else ():
        kernel, rate = match[1].lower().replace("mul", "scale"), float(match[2])
        if device:
            devices[kernel, "gpu0"] = max(devices.get((kernel, "gpu0"), 0.0), rate / 1e3)
        else:
            best[kernel] = max(best.get(kernel, 0.0), rate)
    figures = [
        Figure(quantity="stream", value=rate * 1e6, source=f"{file}: {kernel}", at={"kernel": kernel, "threads": threads})
        for kernel, rate in best.items()
    ]
    if device:
        figures.append(Figure(quantity="gpu_name", value=0.0, source=file, at={"device": "gpu0"}, text=device))
    for match in _GPU.finditer(text):
        key = (match[1].lower(), f"gpu{match[2]}")
        devices[key] = max(devices.get(key, 0.0), float(match[3]))
    for (kernel, device), rate in devices.items():
        at = {"kernel": kernel, "device": device}
        figures.append(Figure(quantity="device_stream", value=rate * 1e9, source=f"{file}: {kernel}", at=at))
    return figures
