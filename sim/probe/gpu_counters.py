"""Counters of the GPUs of this machine: NVML through pynvml, else the `nvidia-smi` command, else none."""

from __future__ import annotations

import contextlib
import shutil
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from sim.records import Struct

_QUERY = "index,utilization.gpu,utilization.memory,memory.used,memory.total,power.draw"
_TIMEOUT_S = 10.0
_MIB = 2.0**20


class GpuSample(Struct, frozen=True, kw_only=True):
    """One GPU at one instant, as nvidia-smi shows it. `busy`: share of the time in which any kernel ran."""

    index: int
    busy: float  # 0..1
    memory_busy: float  # 0..1, share of the time in which memory was read or written
    memory_used_bytes: float
    memory_total_bytes: float
    power_w: float = 0.0


@dataclass(frozen=True, slots=True)
class GpuReader:
    """`read` returns one sample per GPU; `source` says where they come from ("" = no GPU found)."""

    source: str
    read: Callable[[], tuple[GpuSample, ...]]


@contextlib.contextmanager
def gpu_reader() -> Iterator[GpuReader]:
    """The best reader of this machine, closed on exit. Never fails: a machine without GPUs reads as none."""
    with contextlib.ExitStack() as stack:
        reader = _nvml(stack) or _nvidia_smi()
        yield reader or GpuReader("", tuple)


def _nvml(stack: contextlib.ExitStack) -> GpuReader | None:
    try:
        import pynvml

        pynvml.nvmlInit()
    except Exception:  # no library, no driver, no device: any of them means "not here"
        return None
    stack.callback(pynvml.nvmlShutdown)
    handles = [pynvml.nvmlDeviceGetHandleByIndex(index) for index in range(pynvml.nvmlDeviceGetCount())]

    def read() -> tuple[GpuSample, ...]:
        samples = []
        for index, handle in enumerate(handles):
            rates, memory = pynvml.nvmlDeviceGetUtilizationRates(handle), pynvml.nvmlDeviceGetMemoryInfo(handle)
            power_w = 0.0
            with contextlib.suppress(pynvml.NVMLError):  # not every board has a sensor
                power_w = pynvml.nvmlDeviceGetPowerUsage(handle) / 1000
            samples.append(
                GpuSample(
                    index=index,
                    busy=rates.gpu / 100,
                    memory_busy=rates.memory / 100,
                    memory_used_bytes=float(memory.used),
                    memory_total_bytes=float(memory.total),
                    power_w=power_w,
                )
            )
        return tuple(samples)

    return GpuReader("nvml", read) if handles else None


def _nvidia_smi() -> GpuReader | None:
    command = shutil.which("nvidia-smi")
    if command is None:
        return None

    def read() -> tuple[GpuSample, ...]:
        try:
            output = subprocess.run(
                [command, f"--query-gpu={_QUERY}", "--format=csv,noheader,nounits"],
                capture_output=True,
                text=True,
                timeout=_TIMEOUT_S,
                check=True,
            ).stdout
        except (OSError, subprocess.SubprocessError):
            return ()
        return parse_nvidia_smi(output)

    return GpuReader("nvidia-smi", read) if read() else None


def parse_nvidia_smi(output: str) -> tuple[GpuSample, ...]:
    """Samples from ``nvidia-smi --query-gpu=index,utilization.gpu,... --format=csv,noheader,nounits``.

    Memory arrives in MiB; a field that a board does not support reads "[N/A]" and becomes 0.
    """
    samples = []
    for line in output.splitlines():
        fields = [field.strip() for field in line.split(",")]
        if len(fields) != 6 or not fields[0].isdigit():
            continue
        busy, memory_busy, used, total, power_w = (_number(field) for field in fields[1:])
        samples.append(
            GpuSample(
                index=int(fields[0]),
                busy=busy / 100,
                memory_busy=memory_busy / 100,
                memory_used_bytes=used * _MIB,
                memory_total_bytes=total * _MIB,
                power_w=power_w,
            )
        )
    return tuple(samples)


def _number(field: str) -> float:
    try:
        return float(field)
    except ValueError:
        return 0.0
