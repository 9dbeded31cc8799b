"""Which reader takes which file, by what is in it; a file given under the wrong option is named for what it is."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import msgspec

from sim.errors import Fault, InputError
from sim.interchange import source
from sim.interchange.machines import amd_topo, copies, fio, hwloc, mlc, nccl_tests, numactl, nvbandwidth, nvidia_topo, stream
from sim.interchange.machines.figures import Figure, Layout

#: above any rate in bytes/s, size in bytes or latency that a tool measures on one machine
_LARGEST = 1e16
#: quotation marks of mails and issues
_QUOTE = re.compile(r"(?m)^[ \t]*>(?:[ \t]?>)*[ \t]?")


class Reader(msgspec.Struct, frozen=True):
    """A kind of file: what tools write it, how it is recognised."""

    tool: str
    looks_like: Callable[[str], bool]


#: output of tools that is not read -> what to give instead
_OTHERS: tuple[tuple[re.Pattern[str], str], ...] = tuple(
    (re.compile(mark, re.M), told)
    for mark, told in (
        (r"^\s*=+NVSMI LOG=+", "it is nvidia-smi -q: give nvidia-smi topo -m for the links, and --gpu PART"),
        (r"^\| NVIDIA-SMI \d", "it is nvidia-smi's table: give nvidia-smi topo -m for the links, and --gpu PART"),
        (r"^[0-9a-f:]*\d\d:[0-9a-f]{2}\.\d .*(controller|bridge)", "it is lspci: export the devices with lstopo FILE.xml"),
        (r"^# dmidecode|^Handle 0x[0-9A-F]+, DMI type", "it is dmidecode: measure the memory with STREAM or MLC"),
        (r"^# OSU ", "it is an OSU benchmark: collectives are read of nccl-tests, copies of nvbandwidth or bandwidthTest"),
        (r"(RDMA_Write|RDMA_Read|Send) (BW|Bidirectional BW|Latency) Test", "it is perftest: network links are not calibrated"),
        (r"^IoType: \w+ XferType: ", "it is gdsio: drives are read of fio --output-format=json"),
        (r"^[234];fio-\d", "it is fio's terse output, which tells no block size and depth: use --output-format=json"),
        (r"^Time \(%\),Total Time", "it is a table of Nsight Systems: recordings are read of the PyTorch profiler"),
    )
)


def _is_matrix(text: str) -> bool:
    return amd_topo.looks_like(text) or nvidia_topo.looks_like(text)


def _matrix(text: str, file: str) -> Layout:
    parse = amd_topo.parse if amd_topo.looks_like(text) else nvidia_topo.parse
    return parse(text, file)


#: option of `tiersim import machine` -> reader; order = in which content is recognised
READERS = {
    "hwloc": Reader("lstopo FILE.xml", hwloc.looks_like),
    "numactl": Reader("numactl --hardware, lscpu", numactl.looks_like),
    "topo": Reader("nvidia-smi topo -m, rocm-smi --showtopo or amd-smi topology", _is_matrix),
    "mlc": Reader("Intel mlc", mlc.looks_like),
    "fio": Reader("fio --output-format=json", fio.looks_like),
    "nccl": Reader("nccl-tests", nccl_tests.looks_like),
    "nvbandwidth": Reader("nvbandwidth", nvbandwidth.looks_like),
    "stream": Reader("STREAM, gpu-stream", stream.looks_like),
    "copies": Reader("bandwidthTest, rocm-bandwidth-test, gpu-copy", copies.looks_like),
}
_LAYOUTS: dict[str, Callable[[str, str], Layout]] = {"hwloc": hwloc.parse, "numactl": numactl.parse, "topo": _matrix}
_FIGURES: dict[str, Callable[[str, str], list[Figure]]] = {
    "mlc": mlc.parse, "fio": fio.parse, "nccl": nccl_tests.parse, "nvbandwidth": nvbandwidth.parse, "stream": stream.parse,
    "copies": copies.parse,
}  # fmt: skip


def read_layout(path: str | Path, kind: str) -> Layout:
    """Layout of a file of kind "hwloc", "numactl" or "topo". Raises InputError for any other file, with what it is."""
    text = _text(path, kind)
    try:
        return _LAYOUTS[kind](text, str(path))
    except InputError as error:
        raise InputError([fault if fault.file else replace(fault, file=str(path)) for fault in error.faults]) from None


def read_figures(path: str | Path, kind: str) -> list[Figure]:
    """Figures of a file of one of the other kinds. Raises InputError for any other file, and for one without a figure."""
    figures = _FIGURES[kind](_text(path, kind), str(path))
    if not figures:
        what = f"has no whole result of {READERS[kind].tool}"
        raise InputError(Fault(what=what, remedy="the output is cut or the run failed: repeat it", file=str(path)))
    for figure in figures:
        if not all(0 <= number < _LARGEST for number in (figure.value, *figure.at.values()) if isinstance(number, float)):
            what = f"{figure.source.removeprefix(f'{path}: ')} is no measurement: {figure.value:g} in SI units"
            raise InputError(Fault(what=what, remedy="repeat the run, or leave the file out", file=str(path)))
    return figures


def kind_of(text: str) -> str:
    """Kind of a file by its content; "" if none of the readers knows it."""
    return next((kind for kind, reader in READERS.items() if reader.looks_like(text)), "")


def _text(path: str | Path, kind: str) -> str:
    text = source.text(path)
    if kind != "hwloc":
        text = _QUOTE.sub("", text)
    if READERS[kind].looks_like(text) or (kind == "hwloc" and text.lstrip("\ufeff \r\n\t").startswith("<")):
        return text
    found = kind_of(text)
    other = next((told for mark, told in _OTHERS if mark.search(text)), "")
    what = f"is not output of {READERS[kind].tool}"
    remedy = (
        f"it looks like {READERS[found].tool}: give it with --{found}" if found else f"give the output of {READERS[kind].tool}"
    )
    if other and not found:
        remedy = other
    if kind == "hwloc" and ("Package L#" in text or "NUMANode L#" in text):
        remedy = "it is lstopo's console output: export XML with lstopo FILE.xml"
    raise InputError(Fault(what=what, remedy=remedy, file=str(path)))
