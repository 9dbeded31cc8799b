"""Memory technologies, and memory soldered to a processor."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, Literal

from annotated_types import Ge, Gt

from sim.topology.parts.described import STRICT, Described, Efficiency, Latency
from sim.units import Bytes, BytesPerSecond, Doc, Fraction, TransfersPerSecond

MemoryType = Literal[
    "ddr4", "ddr5", "mrdimm", "lpddr5x", "hbm2", "hbm2e", "hbm3", "hbm3e", "hbm4", "gddr6", "gddr6x", "gddr7"
]  # fmt: skip
#: memory type -> kind of its tier
TIER_KINDS = {
    "ddr4": "dram", "ddr5": "dram", "mrdimm": "dram", "lpddr5x": "lpddr", "hbm2": "hbm", "hbm2e": "hbm", "hbm3": "hbm",
    "hbm3e": "hbm", "hbm4": "hbm", "gddr6": "gddr", "gddr6x": "gddr", "gddr7": "gddr",
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory(Described):
    """A memory technology: one DIMM class per channel, one HBM or GDDR generation per stack or device."""

    kind: Literal["memory"]
    type: Annotated[MemoryType, Doc("technology")]
    transfers: Annotated[TransfersPerSecond, Gt(0), Doc("data rate per pin")]
    width_bits: Annotated[int, Gt(0), Doc("data bits per channel (DDR: 64, ECC not counted) or per stack")]
    efficiency: Annotated[Efficiency, Doc("achieved read bandwidth / peak (refresh, turnarounds, bank conflicts)")]
    efficiency_low: Annotated[Fraction, Doc("least that an unmeasured memory may reach of its peak; 0 = it was measured")] = 0.0
    efficiency_high: Annotated[Fraction, Doc("and most")] = 0.0
    turnaround: Annotated[float, Ge(0), Doc("cost per byte once writes mix with reads (saturates at 5 % writes)")] = 0.0
    write_cost: Annotated[float, Ge(0), Doc("further cost per unit of write share, up to one half")] = 0.0
    kernel_bandwidth: Annotated[
        dict[str, Efficiency], Doc("achieved / peak on a GPU by kind of kernel: triad, copy, read, init")
    ] = field(default_factory=dict)
    ranks: Annotated[int, Ge(1), Doc("ranks per DIMM that a channel interleaves")] = 1
    granularity: Annotated[Bytes, Gt(0), Doc("bytes of one access")] = 64.0
    capacity: Annotated[Bytes, Ge(0), Doc("bytes per stack at most; 0 = given by the topology")] = 0.0
    latency: Annotated[Latency | None, Doc("of the device behind its controller; default: the CPU's or GPU's own")] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Attached:
    """Memory soldered to a processor: which technology, how much, how fast."""

    __pydantic_config__: ClassVar[dict[str, Any]] = STRICT
    part: Annotated[str, Doc("memory part")]
    capacity: Annotated[Bytes, Gt(0), Doc("as sold; usable may be less")]
    bandwidth: Annotated[BytesPerSecond, Gt(0), Doc("datasheet peak")]
    efficiency: Annotated[Efficiency | None, Doc("achieved read bandwidth / peak; default: the memory part's")] = None
    latency: Annotated[Latency | None, Doc("seen by the processor's own loads")] = None
    ecc: Annotated[bool, Doc("GDDR6: delivered with error correction on, whose bits take a sixteenth of the capacity")] = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Bus:
    """Achieved share of the DRAM peak where the CPU's controller, not the DIMM class, decides it."""

    __pydantic_config__: ClassVar[dict[str, Any]] = STRICT
    efficiency: Annotated[Efficiency, Doc("achieved read bandwidth / peak")]
    turnaround: Annotated[float, Ge(0), Doc("as in the memory part")] = 0.0
    write_cost: Annotated[float, Ge(0), Doc("as in the memory part")] = 0.0
