"""What the name of a recorded copy tells: where from, where to, and whether the host's memory was page-locked."""

from __future__ import annotations

import re

#: CUDA and ROCm write HtoD, ROCm's first tracer HostToDevice, rocprofiler HOST_TO_DEVICE, XPU H2D, M2D, D2M
_SHORT = re.compile(r"(?<![A-Za-z])([HMSDAP])(?:to|2)([HMSDAP])(?![A-Za-z])")
_LONG = re.compile(r"(host|device|peer|array|managed)_?to_?(host|device|peer|array|managed)", re.I)
#: memory that a letter stands for; M is XPU's pageable and S its shared memory, A a texture array
_PLACES = {"h": "dram", "m": "dram", "s": "dram", "d": "gpu", "a": "gpu", "p": "peer"}


def ends_of(name: str) -> tuple[str, str] | None:
    """("dram" or "gpu" or "peer", the same): source and target of the copy of that name; None where it does not tell."""
    found = _SHORT.search(name) or _LONG.search(name)
    if found is None:
        return None
    source, target = (_PLACES[found[side][0].lower()] for side in (1, 2))
    return (source, target)


def is_pageable(name: str) -> bool | None:
    """Whether the host's side is pageable memory; None where the name does not tell."""
    if "Pageable" in name:
        return True
    short = _SHORT.search(name)
    if "Pinned" in name:
        return False
    return True if short and "M" in (short[1], short[2]) else None
