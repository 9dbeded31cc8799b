"""The part catalogue's name of a GPU as its driver reports it."""

from __future__ import annotations

import re

_GIB = 2.0**30
#: pattern on the reported name, smallest memory in GiB of the variant, part; the first match counts
_PARTS: tuple[tuple[str, float, str], ...] = (
    (r"Laptop|Max-?Q(?! Workstation)|Mobile", 0, ""),  # half of a card by the same name
    (r"GB300", 0, "gb300"), (r"B300", 0, "b300-sxm"), (r"GB200", 0, "gb200"), (r"\bB200", 0, "b200-sxm"),
    (r"\bGB10\b", 0, "gb10"), (r"GH200 144|GH200.*\b144G", 0, "gh200-144gb"), (r"GH200", 130, "gh200-144gb"),
    (r"GH200", 0, "gh200-96gb"), (r"\bH200 NVL", 0, "h200-nvl"), (r"\bH200", 0, "h200-sxm"), (r"H100 PCIe", 0, "h100-pcie"),
    (r"\bH100 NVL", 0, "h100-nvl"), (r"\bH100", 0, "h100-sxm"), (r"\bH800(?!.*PCI)", 0, "h800-sxm"), (r"\bH20\b", 0, "h20-sxm"),
    (r"\bA800.*SXM", 0, "a800-80gb-sxm"), (r"\bA800.*PCI", 0, "a800-80gb-pcie"),
    (r"A100 ?80.*PCI|A100.*PCI.*80", 0, "a100-80gb-pcie"),
    (r"A100.*PCI", 60, "a100-80gb-pcie"), (r"A100.*PCI", 0, "a100-40gb-pcie"), (r"A100.*80 ?G", 0, "a100-80gb-sxm"),
    (r"A100|PG509", 60, "a100-80gb-sxm"), (r"A100|PG509", 0, "a100-40gb-sxm"), (r"RTX A6000", 0, "rtx-a6000"),
    (r"RTX A5000", 0, "rtx-a5000"), (r"RTX A4000", 0, "rtx-a4000"), (r"\bA40\b", 0, "a40"), (r"\bA30\b", 0, "a30"),
    (r"\bA10G\b", 0, "a10g"), (r"\bA10\b", 0, "a10"), (r"V100.*PCI.*16", 0, "v100-16gb-pcie"),
    (r"V100.*PCI", 24, "v100-32gb-pcie"),
    (r"V100.*PCI.*32", 0, "v100-32gb-pcie"), (r"V100.*PCI", 0, "v100-16gb-pcie"), (r"V100.*32", 0, "v100-32gb-sxm"),
    (r"V100", 24, "v100-32gb-sxm"), (r"V100", 0, "v100-16gb-sxm"), (r"P100.*SXM", 0, "p100-16gb-sxm"),
    (r"\bP100|GP100", 0, "p100-16gb-pcie"), (r"\bT4\b", 0, "t4"), (r"\bL40S", 0, "l40s"), (r"\bL40\b", 0, "l40"),
    (r"\bL4\b", 0, "l4"), (r"RTX PRO 6000", 0, "rtx-pro-6000"), (r"RTX PRO 5000", 0, "rtx-pro-5000"),
    (r"RTX 6000 Ada", 0, "rtx-6000-ada"), (r"Quadro RTX 8000", 0, "quadro-rtx-8000"),
    (r"Quadro RTX 6000", 0, "quadro-rtx-6000"),
    (r"RTX 5090(?! ?D)", 0, "rtx-5090"), (r"RTX 5080", 0, "rtx-5080"), (r"RTX 5070 ?Ti", 0, "rtx-5070ti"),
    (r"RTX 5070", 0, "rtx-5070"),
    (r"RTX 5060 ?Ti", 12, "rtx-5060ti-16gb"), (r"RTX 4090(?! ?D)", 0, "rtx-4090"), (r"RTX 4080", 0, "rtx-4080"),
    (r"RTX 4070 ?Ti SUPER", 0, "rtx-4070ti-super"), (r"RTX 4070(?! ?(?:Ti|SUPER))", 0, "rtx-4070"),
    (r"RTX 4060 ?Ti", 12, "rtx-4060ti-16gb"), (r"RTX 3090 ?Ti", 0, "rtx-3090-ti"), (r"RTX 3090", 0, "rtx-3090"),
    (r"RTX 3080(?! ?Ti)", 0, "rtx-3080"), (r"RTX 3060(?! ?Ti)", 0, "rtx-3060-12gb"), (r"RTX 2080 ?Ti", 0, "rtx-2080ti"),
    (r"MI355X", 0, "mi355x"), (r"MI350X", 0, "mi350x"), (r"MI325X", 0, "mi325x"), (r"MI300A", 0, "mi300a"),
    (r"MI300X", 0, "mi300x"), (r"MI250|MI200", 0, "mi250x-die"), (r"\bMI210", 0, "mi210"), (r"7900 XTX", 0, "rx-7900xtx"),
    (r"7900 XT\b", 0, "rx-7900xt"), (r"PRO W7900", 0, "radeon-pro-w7900"), (r"PRO R9700", 0, "radeon-ai-pro-r9700"),
    (r"Strix Halo|Radeon 8060S", 0, "strix-halo"),
)  # fmt: skip


def part_of(reported: str, memory_bytes: float = 0.0) -> str:
    """Catalogue name for "NVIDIA A100-SXM4-80GB"; the reported name itself when the catalogue has no such part."""
    for pattern, least_gib, part in _PARTS:
        if re.search(pattern, reported, re.I) and memory_bytes >= least_gib * _GIB:
            return part or reported
    return reported
