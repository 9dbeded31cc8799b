"""The plain types that cross rooms: what a step asks for, what the engine replays, what it measured.

Three families, in the order of a run:

1. A **Step** (`StepOperation`, `Kernel`): what a workload asks of *any* machine. Written and read as the trace file.
2. A **Program** (`Operation`, `Channel`, `Tier`, `Stream`): the step lowered onto one machine. The engine's input.
3. **Records** (`Replay` and its rows): what happened. Every statistic is a pure function of Program and Replay.

All numbers are SI: bytes, seconds, FLOP, bytes/s. Structs are immutable and encode to JSON through msgspec.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Literal

import msgspec

INFINITY = float("inf")


class Kind(StrEnum):
    """What an operation does."""

    COMPUTE = "compute"
    TRANSFER = "transfer"
    COLLECTIVE = "collective"
    HOST_UPDATE = "host_update"
    HOST_WORK = "host_work"
    IO = "io"
    ALLOCATE = "allocate"
    FREE = "free"
    MARKER = "marker"


class TensorClass(StrEnum):
    """The classes of tensors that a placement can name."""

    WEIGHTS = "weights"
    MASTER_WEIGHTS = "master_weights"
    GRADIENTS = "gradients"
    OPTIMIZER_STATES = "optimizer_states"
    ACTIVATIONS = "activations"
    KV_CACHE = "kv_cache"
    LOGITS = "logits"
    BUFFERS = "buffers"


#: keys of a step's breakdown, in the priority in which overlapping seconds are attributed
Category = Literal["compute", "collective", "transfer", "cpu_optimizer", "storage", "paging", "data", "idle"]
Dtype = Literal["fp32", "tf32", "fp16", "bf16", "fp8", "fp4", "int8", "nf4"]
KernelKind = Literal["gemm", "gemv", "attention", "elementwise", "logits", "embedding", "optimizer", "recorded", "other"]
CollectiveKind = Literal["all_reduce", "all_gather", "reduce_scatter", "broadcast", "all_to_all", "point_to_point"]
Group = Literal["data", "tensor", "pipeline", "context", "expert", "expert_data", "shard", "replica", "world"]


class Struct(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True, gc=False):
    """Base of all records: immutable, keyword-only, strict on input.

    Immutable rows hold no cycles, so the garbage collector need not walk them (`gc=False`): a step has half a million.
    """


# ---------------------------------------------------------------------------------------------------------------- step


class Residency(Struct, frozen=True, kw_only=True):
    """Bytes of one tensor class that appear in (or leave) a tier.

    `tier` is a tier role of the rank ("gpu", "dram", "nvme"), a tier name of the machine ("cxl0"), or
    "home" = wherever the placement puts this tensor class.
    """

    tensor_class: TensorClass
    size_bytes: float
    tier: str = "home"


class Kernel(Struct, frozen=True, kw_only=True):
    """`count` identical kernels that run back to back inside one operation, per rank."""

    kind: KernelKind
    flops: float = 0.0  # each
    read_bytes: float = 0.0  # each, from the tier that holds the operand
    write_bytes: float = 0.0  # each
    m: int = 0  # GEMM shape (0 = not a GEMM): [m, k] x [k, n]
    n: int = 0
    k: int = 0  # attention: width of a head (0 = 128 or more)
    sequence_length: int = 0  # attention only: length that the score matrix spans
    dtype: Dtype = "bf16"
    count: float = 1.0
    recorded_s: float = 0.0  # measured on `Step.source_part`; 0 = not measured
    memory_share: float = 1.0  # measured: share of the memory bandwidth that was there for it (others ran beside it)
    variant: str = ""  # kernel generation, e.g. attention "fa1" "fa2" "cudnn" "eager"; "" = the part's default
    name: str = ""


class StepOperation(Struct, frozen=True, kw_only=True):
    """One operation of one rank class, before a machine is chosen.

    Operations of one `stream` run in `sequence` order; `after` holds operation ids that must have ended first.
    For transfers, `source`/`target` are tier roles, tier names, or "home:<tensor class>" (where the placement puts it).
    """

    id: str
    kind: Kind
    #: "<rank class>.<role>", roles: compute h2d d2h collective exchange p2p cpu storage loader reader input saver late_*
    stream: str
    sequence: int
    name: str = ""
    after: tuple[str, ...] = ()
    phase: str = ""  # load forward backward update save prefill decode ...
    category: Category = "compute"
    layer: int = -1
    micro_batch: int = -1
    # compute
    kernels: tuple[Kernel, ...] = ()
    # transfer, io (bytes per rank)
    size_bytes: float = 0.0
    source: str = ""
    target: str = ""
    tensor_class: TensorClass | None = None
    is_pinned: bool = True
    is_direct: bool = False  # storage to GPU memory without a bounce through host memory
    is_faulted: bool = False  # managed memory: the GPU's page faults bring the bytes in
    is_clean: bool = False  # and what they push out has a copy on the host: nothing is written back
    rate_share: float = 1.0  # of a link's rate that the framework's copies reach; a drive at an end keeps its own
    # collective
    collective: CollectiveKind | None = None
    group: Group | None = None
    num_calls: float = 1.0  # that many collectives of `size_bytes` each, back to back
    num_copies: float = 0.0  # all-to-all of routed tokens: copies of each, of which a node gets one; 0 = all of them
    node_share: float = 1.0  # of the nodes, to which a token's copies are kept
    is_fused: bool = False  # collective: a kernel of the step itself may do it, not only the vendor's library
    dtype: Dtype = "bf16"
    # host update: the CPU optimizer
    num_elements: float = 0.0  # per rank
    bytes_per_element: float = 0.0  # host memory traffic per element, read + write
    write_share: float = 0.0
    num_cores: float = 0.0  # cores that one rank may use; 0 = its share of the socket
    is_spread: bool = False  # threads and pages wander over all sockets of the host
    core_s: float = 0.0  # host work that is no memory traffic (sample preparation): core-seconds per rank
    # anything: a duration that no resource explains (launch gaps, framework hooks, measured host work)
    fixed_s: float = 0.0
    mapped_bytes: float = 0.0  # fresh host memory: the process takes a page fault for each page before it can use it
    is_host_allocated: bool = False  # compute: the operands are in memory of the host's allocator
    dispatch_s: float = 0.0  # compute: the CPU needs this long to launch the kernels; the operation lasts at least as long
    compute_share: float = 0.0  # collective: share of the device's multiprocessors that it occupies
    allocates: tuple[Residency, ...] = ()  # when it starts
    frees: tuple[Residency, ...] = ()  # when it ends


class RankClass(Struct, frozen=True, kw_only=True):
    """Ranks that run the same operations: one representative is written, `num_ranks` exist."""

    name: str
    num_ranks: int
    first_rank: int = 0


class Home(Struct, frozen=True, kw_only=True):
    """Where a tensor class of a step lived (or a range of its layers): shares of tier roles or names, summing to 1."""

    tensor_class: TensorClass
    shares: dict[str, float]
    policy: str = "interleave"
    layers: tuple[int, int] | None = None
    options: dict[str, object] = {}


class Step(Struct, frozen=True, kw_only=True):
    """A workload's operations and what they amount to. The trace file holds exactly this."""

    name: str
    operations: tuple[StepOperation, ...]
    rank_classes: tuple[RankClass, ...]
    group_sizes: dict[str, int] = {}  # group -> ranks in it
    resident: tuple[Residency, ...] = ()  # there before the first operation, per rank (tier "home" = by placement)
    placement: tuple[Home, ...] = ()  # of a saved step: where its tensors lived; a scenario's own placement goes before it
    model_flops: float = 0.0  # whole job, one step, no recompute: the numerator of MFU
    num_tokens: float = 0.0  # whole job, one step
    source_part: str = ""  # part on which `recorded_s` were measured
    source_step_s: float = 0.0  # recorded step time, if it is a recording
    origin: str = "generated"  # "generated" | "kineto" | "chakra" | ...
    notes: tuple[str, ...] = ()  # what was inferred or assumed on import


# ------------------------------------------------------------------------------------------------------------- program


class LatencyLaw(Struct, frozen=True, kw_only=True):
    """Loaded latency of a channel: L0 * (1 + (a + c*w) * u / (1 - k*u)); u utilisation 0..1, w write share 0..0.5."""

    idle_latency_s: float
    a: float = 0.0
    c: float = 0.0
    k: float = 0.0


class Channel(Struct, frozen=True, kw_only=True):
    """What flows share: one direction of a link, a tier's own port, a copy engine, or cores ("work" = core-seconds).

    `multiplicity` > 1 = that many identical channels, of which a flow of the representative rank crosses one.
    """

    name: str
    bandwidth_per_s: float  # bytes/s, or units/s for cores
    latency: LatencyLaw | None = None
    multiplicity: int = 1
    is_server: bool = False  # exclusive: serves one operation at a time, in arrival order
    unit: Literal["bytes", "cores"] = "bytes"
    device: str = ""


class Tier(Struct, frozen=True, kw_only=True):
    """Memory with one capacity. `multiplicity` as in Channel."""

    name: str
    capacity_bytes: float
    multiplicity: int = 1
    device: str = ""
    kind: str = ""  # hbm gddr dram lpddr cxl pmem nvme


class Stream(Struct, frozen=True, kw_only=True):
    """An in-order queue of operations; `multiplicity` identical ranks own one each."""

    name: str
    device: str = ""
    role: str = ""
    multiplicity: int = 1


class Allocation(Struct, frozen=True, kw_only=True):
    """Bytes of a tensor class put into (or taken out of) a named tier, per stream member."""

    tier: str
    tensor_class: str
    size_bytes: float


class Operation(Struct, frozen=True, kw_only=True):
    """One flow: `work` in bytes, or in solo seconds when it moves none; see docs/model.md, chapter Sharing.

    Its rate r obeys r <= rate_cap, and on each channel the sum over flows of r * cost * (stream multiplicity /
    channel multiplicity) <= bandwidth. If `window_bytes` > 0 the flow is latency-bound: r <= window_bytes / loaded
    latency of its path. It starts `latency_s` after it is ready, and ends when `work` is done.
    """

    id: str
    kind: Kind
    stream: str
    sequence: int
    name: str = ""
    after: tuple[str, ...] = ()
    work: float = 0.0
    uses: tuple[tuple[str, float], ...] = ()  # (channel, cost per unit of work)
    rate_cap: float = INFINITY
    latency_s: float = 0.0
    window_bytes: float = 0.0
    write_share: float = 0.0
    weight: float = 1.0  # outstanding bytes, relative
    allocates: tuple[Allocation, ...] = ()  # applied when it starts
    frees: tuple[Allocation, ...] = ()  # applied when it ends
    # attribution
    phase: str = ""
    category: Category = "compute"
    layer: int = -1
    micro_batch: int = -1
    flops: float = 0.0
    arithmetic_s: float = 0.0  # compute: of the solo time work / rate_cap, what arithmetic takes (the rest is memory)
    launch_s: float = 0.0  # compute: of the solo time, launches and dispatch
    size_bytes: float = 0.0  # payload, for people


class Program(Struct, frozen=True, kw_only=True):
    """A step on one machine: everything the engine needs and nothing else."""

    name: str
    channels: tuple[Channel, ...]
    tiers: tuple[Tier, ...]
    streams: tuple[Stream, ...]
    operations: tuple[Operation, ...]
    resident: tuple[tuple[Allocation, int], ...] = ()  # static bytes, with the multiplicity of the owner
    model_flops: float = 0.0
    num_tokens: float = 0.0
    peak_flops_per_s: float = 0.0  # all ranks together, dense: the denominator of MFU
    notes: tuple[str, ...] = ()


# ------------------------------------------------------------------------------------------------------------- records


class OperationRecord(Struct, frozen=True, kw_only=True):
    """When one operation was ready (dependencies and stream order met), started its work, and ended."""

    id: str
    ready_s: float
    start_s: float
    end_s: float


class ChannelTotal(Struct, frozen=True, kw_only=True):
    """Bytes (or core-seconds) carried by one member of a channel, and the seconds it carried any / was saturated."""

    name: str
    amount: float
    busy_s: float
    saturated_s: float
    peak_rate_per_s: float


class ChannelSegment(Struct, frozen=True, kw_only=True):
    """A constant rate on a channel from `start_s` to `end_s` (level full)."""

    name: str
    start_s: float
    end_s: float
    rate_per_s: float


class Occupancy(Struct, frozen=True, kw_only=True):
    """Bytes of a tensor class in a tier from `time_s` on (level full)."""

    time_s: float
    tier: str
    tensor_class: str
    size_bytes: float


class TierPeak(Struct, frozen=True, kw_only=True):
    """The largest occupancy of one member of a tier, when, during which operation, and what it consisted of."""

    name: str
    peak_bytes: float
    time_s: float
    operation: str
    by_class: dict[str, float]


class Sample(Struct, frozen=True, kw_only=True):
    """What a monitor saw at a fixed simulated interval: utilisation per channel, bytes per tier."""

    time_s: float
    utilisation: dict[str, float]
    occupancy_bytes: dict[str, float]


class Replay(Struct, frozen=True, kw_only=True):
    """Everything the engine observed; it computes no statistic."""

    makespan_s: float
    operations: tuple[OperationRecord, ...]
    channels: tuple[ChannelTotal, ...]
    tiers: tuple[TierPeak, ...]
    segments: tuple[ChannelSegment, ...] = ()
    occupancy: tuple[Occupancy, ...] = ()
    samples: tuple[Sample, ...] = ()
    backend: str = "python"
    num_batches: int = 0
    events: tuple[str, ...] = ()  # spills, evictions, grants: what policies answered, in order


# ------------------------------------------------------------------------------------------- beside the kernel: daemons


class Snapshot(Struct, frozen=True, kw_only=True):
    """What a process beside the kernel sees at one instant; bytes of one member of each tier, by tensor class."""

    time_s: float
    utilisation: dict[str, float]  # channel -> 0..1
    occupancy_bytes: dict[str, dict[str, float]]  # tier -> tensor class -> bytes
    capacity_bytes: dict[str, float]


class Transfer(Struct, frozen=True, kw_only=True):
    """Bytes that a daemon moves on a stream of its own: they appear in `target` when it starts, leave `source` when it ends."""

    stream: str  # in order of injection; not a stream of the program
    size_bytes: float
    uses: tuple[tuple[str, float], ...] = ()  # (channel, cost per byte)
    rate_cap_bytes_per_s: float = INFINITY
    latency_s: float = 0.0
    weight: float = 1.0
    source: str = ""  # tier; "" = no bytes leave
    target: str = ""
    tensor_class: str = "buffers"
    name: str = ""


class Pool(Struct, frozen=True, kw_only=True):
    """Memory of a device whose capacity is granted to hosts while they run; each host sees its part as a tier of its own."""

    name: str
    capacity_bytes: float
    granted_bytes: dict[str, float]  # tier of each host -> bytes at the start
    extent_bytes: float  # granted and released in whole extents
    grant_latency_s: float  # from a request to the first access
    release_bytes_per_s: float  # at which a host gives capacity back


class Overflow(Struct, frozen=True, kw_only=True):
    """An allocation that does not fit: what a capacity policy is asked about."""

    operation: str
    stream: str
    phase: str
    tier: str
    missing_bytes: float
    allocations: tuple[Allocation, ...]  # per member of each tier
    seen: Snapshot
    num_asked: int = 1  # how often this allocation has been asked about


class Answer(Struct, frozen=True, kw_only=True):
    """What a capacity policy answers.

    fail: MisfitError. wait: until others free enough. spill: allocate `allocations` instead. move: run `transfers` that make
    room (evict, page out); the allocation waits until it fits.
    """

    kind: Literal["fail", "wait", "spill", "move"]
    allocations: tuple[Allocation, ...] = ()
    transfers: tuple[Transfer, ...] = ()
    note: str = ""


# ---------------------------------------------------------------------------------------------- studies and validation


class Measured(Struct, frozen=True, kw_only=True):
    """What reality said about a scenario or one point of it."""

    metric: str
    value: float  # SI
    source: str
    unit: str = ""
    tolerance: float = 0.0
    at: Mapping[str, object] = {}


class ValidationRow(Struct, frozen=True, kw_only=True):
    """One published measurement beside its prediction; error = predicted / measured - 1."""

    id: str
    family: str
    predicted: float
    measured: float
    unit: str
    source: str = ""
    publication: str = ""
    sweep: str = ""  # rows of one sweep are compared by their ratios and rank order too

    @property
    def error(self) -> float:
        """Signed relative error."""
        return self.predicted / self.measured - 1.0
