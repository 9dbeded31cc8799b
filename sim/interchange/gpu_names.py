"""The part catalogue's name of a GPU as its driver reports it."""

from __future__ import annotations

import re

_GIB = 2.0**30
#: pattern on the reported name, smallest memory in GiB of the variant, part; the first match counts
_PARTS: tuple[tuple[str, float, str], ...] = (
    (r"GB300|B300", 0, "b300-sxm"), (r"GB200", 0, "gb200"), (r"\bB200", 0, "b200-sxm"),
    (r"GH200|\bH200", 0, "h200-sxm"), (r"H100 PCIe", 0, "h100-pcie"), (r"\bH100", 0, "h100-sxm"),
    (r"A100|PG509", 60, "a100-80gb-sxm"), (r"A100|PG509", 0, "a100-40gb-sxm"), (r"\bA10G?\b", 0, "a10"),
    (r"V100", 0, "v100-sxm"), (r"\bT4\b", 0, "t4"), (r"L40S", 0, "l40s"), (r"RTX 5090", 0, "rtx-5090"),
    (r"RTX 4090", 0, "rtx-4090"), (r"RTX 3090", 0, "rtx-3090"), (r"MI355X", 0, "mi355x"), (r"MI325X", 0, "mi325x"),
    (r"MI300A", 0, "mi300a"), (r"MI300X", 0, "mi300x"), (r"MI250|MI200", 0, "mi250x"),
)  # fmt: skip


def part_of(reported: str, memory_bytes: float = 0.0) -> str:
    """Catalogue name for "NVIDIA A100-SXM4-80GB"; the reported name itself when the catalogue has no such part."""
    for pattern, least_gib, part in _PARTS:
        if re.search(pattern, reported, re.I) and memory_bytes >= least_gib * _GIB:
            return part
    return reported
