"""What a workload asks of any machine: operations by rank class, before one is chosen. A trace file holds exactly this."""

from __future__ import annotations

from msgspec import field

from sim.records.words import Category, CollectiveKind, Dtype, Group, KernelKind, Kind, Struct, TensorClass


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
    file_bytes: float = 0.0  # io: read in files of this size, `num_in_flight` at a time, each of which waits for the drive
    num_in_flight: float = 1.0
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
    options: dict[str, object] = field(default_factory=dict)


class Step(Struct, frozen=True, kw_only=True):
    """A workload's operations and what they amount to. The trace file holds exactly this."""

    name: str
    operations: tuple[StepOperation, ...]
    rank_classes: tuple[RankClass, ...]
    group_sizes: dict[str, int] = field(default_factory=dict)  # group -> ranks in it
    resident: tuple[Residency, ...] = ()  # there before the first operation, per rank (tier "home" = by placement)
    placement: tuple[Home, ...] = ()  # of a saved step: where its tensors lived; a scenario's own placement goes before it
    model_flops: float = 0.0  # whole job, one step, no recompute: the numerator of MFU
    num_tokens: float = 0.0  # whole job, one step
    source_part: str = ""  # part on which `recorded_s` were measured
    source_step_s: float = 0.0  # recorded step time, if it is a recording
    origin: str = "generated"  # "generated" | "kineto" | "chakra" | ...
    notes: tuple[str, ...] = ()  # what was inferred or assumed on import
