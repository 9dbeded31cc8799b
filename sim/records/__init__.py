"""The plain types that cross rooms: what a step asks for, what the engine replays, what it measured.

Three families, in the order of a run:

1. A **Step** (`StepOperation`, `Kernel`): what a workload asks of *any* machine. Written and read as the trace file.
2. A **Program** (`Operation`, `Channel`, `Tier`, `Stream`): the step lowered onto one machine. The engine's input.
3. **Records** (`Replay` and its rows): what happened. Every statistic is a pure function of Program and Replay.

Beside them: the words that all share (`words`), what daemons and capacity policies see and answer (`beside`), and what
reality said (`measured`).

All numbers are SI: bytes, seconds, FLOP, bytes/s. Structs are immutable and encode to JSON through msgspec.
"""

from sim.records.beside import Answer, Overflow, Pool, Snapshot, Transfer
from sim.records.measured import Measured, ValidationRow
from sim.records.program import Allocation, Channel, LatencyLaw, Operation, Program, Stream, Tier
from sim.records.replay import ChannelSegment, ChannelTotal, Occupancy, OperationRecord, Replay, Sample, TierPeak
from sim.records.step import Home, Kernel, RankClass, Residency, Step, StepOperation
from sim.records.words import INFINITY, Category, CollectiveKind, Dtype, Group, KernelKind, Kind, Struct, TensorClass, Uses

__all__ = [
    "INFINITY",
    "Allocation",
    "Answer",
    "Category",
    "Channel",
    "ChannelSegment",
    "ChannelTotal",
    "CollectiveKind",
    "Dtype",
    "Group",
    "Home",
    "Kernel",
    "KernelKind",
    "Kind",
    "LatencyLaw",
    "Measured",
    "Occupancy",
    "Operation",
    "OperationRecord",
    "Overflow",
    "Pool",
    "Program",
    "RankClass",
    "Replay",
    "Residency",
    "Sample",
    "Snapshot",
    "Step",
    "StepOperation",
    "Stream",
    "Struct",
    "TensorClass",
    "Tier",
    "TierPeak",
    "Transfer",
    "Uses",
    "ValidationRow",
]
