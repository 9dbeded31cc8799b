"""Samples of a real run: what top, free and nvidia-smi would show, second by second, in one file.

The file is JSON Lines: a header, one sample per interval, an end line. Each line is flushed, so a killed recording is
readable up to its last sample. psutil (extra `probe`) is needed; NVIDIA GPUs are sampled through NVML if `pynvml` is
installed, else through the `nvidia-smi` command if there is one, else not at all (and the header says so).
"""

from __future__ import annotations

import contextlib
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from sim.errors import Fault, InputError
from sim.probe.gpu_counters import GpuReader, GpuSample, gpu_reader
from sim.records import Struct

FORMAT = "tiersim-recording"
VERSION = 1
_MAX_LINE_BYTES = 1 << 20


class Header(Struct, frozen=True, kw_only=True, tag="header", tag_field="line"):
    """What was recorded, where and how."""

    format: str = msgspec.field(default=FORMAT)
    version: int
    command: tuple[str, ...]
    started: str  # ISO 8601, UTC
    interval_s: float
    num_cpus: int
    memory_bytes: float
    gpu_source: str = ""  # "nvml" | "nvidia-smi" | "" = none found


class HostSample(Struct, frozen=True, kw_only=True, tag="sample", tag_field="line"):
    """One instant. Rates are means since the sample before; memory is what `free` calls used."""

    time_s: float  # since the command started
    cpu_busy: float  # 0..1 of all logical CPUs
    process_cores: float  # busy cores of the command and its children
    memory_used_bytes: float
    process_bytes: float  # resident set of the command and its children
    disk_read_bytes_per_s: float = 0.0
    disk_write_bytes_per_s: float = 0.0
    gpus: tuple[GpuSample, ...] = ()


class End(Struct, frozen=True, kw_only=True, tag="end", tag_field="line"):
    """How the command ended."""

    elapsed_s: float
    exit_code: int


class Recording(Struct, frozen=True, kw_only=True):
    """A whole recording in memory. `end` is None if the recording was cut."""

    header: Header
    samples: tuple[HostSample, ...]
    end: End | None = None


def record(
    command: Sequence[str],
    target: Path,
    *,
    interval_s: float = 1.0,
    on_sample: Callable[[HostSample], None] | None = None,
) -> int:
    """Run `command`, sample the machine every `interval_s` seconds into `target`, return the command's exit code.

    Standard streams are the command's own. Raises InputError if psutil is missing or the command cannot start.
    """
    psutil = _psutil()
    if not command:
        raise InputError(Fault(what="no command to record", remedy="tiersim record -- python train.py"))
    if not 0.05 <= interval_s <= 3600:
        raise InputError(Fault(what=f"interval of {interval_s} s", remedy="between 0.05 s and 3600 s"))
    with gpu_reader() as gpus, target.open("wb") as file:
        try:
            child = subprocess.Popen(list(command))
        except OSError as error:
            target.unlink()
            raise InputError(
                Fault(what=f"cannot start {command[0]!r}: {error.strerror}", remedy="check the command")
            ) from error
        started = time.monotonic()
        _write(file, _header(psutil, command, interval_s, gpus))
        try:
            for sample in _sampled(psutil, child, gpus, started, interval_s):
                _write(file, sample)
                if on_sample:
                    on_sample(sample)
        except BaseException:
            child.terminate()
            child.wait()
            raise
        _write(file, End(elapsed_s=time.monotonic() - started, exit_code=child.returncode))
    return child.returncode


def read_recording(path: Path) -> Recording:
    """Read a recording; a last line that was cut is dropped. Raises InputError for a file of another kind."""
    decoder = msgspec.json.Decoder(Header | HostSample | End)
    header: Header | None = None
    end: End | None = None
    samples: list[HostSample] = []
    try:
        with path.open("rb") as file:
            for number, text in enumerate(iter(lambda: file.readline(_MAX_LINE_BYTES), b""), start=1):
                if not text.endswith(b"\n"):
                    break
                line = decoder.decode(text)
                if number == 1 and not isinstance(line, Header):
                    raise _foreign(path, 1, "no header")
                match line:
                    case Header():
                        header = line
                    case HostSample():
                        samples.append(line)
                    case End():
                        end = line
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise _foreign(path, number, str(error)) from error
    except OSError as error:
        raise InputError(Fault(what=f"cannot read: {error.strerror}", file=str(path))) from error
    if header is None or header.format != FORMAT or header.version > VERSION:
        raise _foreign(path, 1, "no header of a known version")
    return Recording(header=header, samples=tuple(samples), end=end)


def _foreign(path: Path, line: int, why: str) -> InputError:
    return InputError(
        Fault(what=f"not a recording: {why}", remedy="give a file written by `tiersim record`", file=str(path), line=line)
    )


def _psutil() -> Any:
    try:
        import psutil
    except ImportError as error:
        raise InputError(Fault(what="recording needs psutil", remedy="pip install 'tiersim[probe]'")) from error
    return psutil


def _write(file: Any, line: Header | HostSample | End) -> None:
    file.write(msgspec.json.encode(line) + b"\n")
    file.flush()


def _header(psutil: Any, command: Sequence[str], interval_s: float, gpus: GpuReader) -> Header:
    return Header(
        version=VERSION,
        command=tuple(command),
        started=datetime.now(UTC).isoformat(timespec="seconds"),
        interval_s=interval_s,
        num_cpus=psutil.cpu_count() or 1,
        memory_bytes=float(psutil.virtual_memory().total),
        gpu_source=gpus.source,
    )


def _sampled(
    psutil: Any, child: subprocess.Popen[bytes], gpus: GpuReader, started: float, interval_s: float
) -> Iterator[HostSample]:
    """One sample per interval until the child ends; the schedule does not drift with the cost of sampling."""
    seen: dict[int, float] = {}
    num_cpus = psutil.cpu_count() or 1
    busy, total = _cpu_seconds(psutil)
    disk = psutil.disk_io_counters()
    last = started
    due = started
    is_running = True
    while is_running:
        due += interval_s
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(max(0.0, due - time.monotonic()))
        is_running = child.poll() is None
        now = time.monotonic()
        if not is_running and now - last < 0.5 * interval_s and seen:
            return  # too short an interval for rates to mean anything
        busy_now, total_now = _cpu_seconds(psutil)
        disk_now = psutil.disk_io_counters()
        cores_s, resident_bytes = _process_tree(psutil, child.pid, seen)
        elapsed_s = max(now - last, 1e-3)
        yield HostSample(
            time_s=now - started,
            cpu_busy=min(1.0, max(0.0, (busy_now - busy) / max(total_now - total, 1e-9))),
            process_cores=min(float(num_cpus), cores_s / elapsed_s),
            memory_used_bytes=float(psutil.virtual_memory().used),
            process_bytes=resident_bytes,
            disk_read_bytes_per_s=(disk_now.read_bytes - disk.read_bytes) / elapsed_s if disk and disk_now else 0.0,
            disk_write_bytes_per_s=(disk_now.write_bytes - disk.write_bytes) / elapsed_s if disk and disk_now else 0.0,
            gpus=gpus.read(),
        )
        busy, total, disk, last = busy_now, total_now, disk_now, now


def _cpu_seconds(psutil: Any) -> tuple[float, float]:
    """(busy, total) CPU seconds of the whole machine since boot."""
    times = psutil.cpu_times()
    idle = times.idle + getattr(times, "iowait", 0.0)
    guest = getattr(times, "guest", 0.0) + getattr(times, "guest_nice", 0.0)  # already inside user and nice
    return sum(times) - guest - idle, sum(times) - guest


def _process_tree(psutil: Any, pid: int, seen: dict[int, float]) -> tuple[float, float]:
    """(CPU seconds since the last call, resident bytes) of a process and its living descendants."""
    used_s = resident_bytes = 0.0
    try:
        root = psutil.Process(pid)
        family = [root, *root.children(recursive=True)]
    except psutil.Error:
        return 0.0, 0.0
    for process in family:
        try:
            with process.oneshot():
                times = process.cpu_times()
                resident_bytes += process.memory_info().rss
        except psutil.Error:
            continue  # ended, or became a zombie, between listing and reading
        now_s = times.user + times.system
        used_s += now_s - seen.get(process.pid, 0.0)
        seen[process.pid] = now_s
    return used_s, resident_bytes
