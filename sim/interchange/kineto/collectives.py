"""Which collective a communication kernel is, over how many ranks, and how many bytes; and how that is known."""

from __future__ import annotations

import re
from collections.abc import Sequence

import msgspec

from sim.interchange.groups import Communicator, communicator, listed_ranks
from sim.interchange.kernel_class import Shapes, shapes_from
from sim.interchange.kineto.links import Linked, Operator, Work, number
from sim.laws.collectives import ring_volume
from sim.records import CollectiveKind

#: point-to-point messages name no partner: as a broadcast every rank passes the message on once, the same traffic
_KINDS: tuple[tuple[str, CollectiveKind], ...] = (
    ("allreduce", "all_reduce"), ("reducescatter", "reduce_scatter"), ("allgather", "all_gather"),
    ("alltoall", "all_to_all"), ("broadcast", "broadcast"), ("sendrecv", "all_to_all"), ("send", "broadcast"),
    ("recv", "broadcast"), ("reduce", "all_reduce"), ("gather", "all_gather"), ("scatter", "broadcast"),
)  # fmt: skip
_DTYPE_BYTES = {
    "float": 4.0, "double": 8.0, "half": 2.0, "bfloat16": 2.0, "int": 4.0, "long": 8.0, "byte": 1.0, "char": 1.0, "bool": 1.0,
    "float8_e4m3fn": 1.0, "float8_e5m2": 1.0,
}  # fmt: skip
#: GPU -> bus bandwidth by which an unknown size is guessed, bytes/s: 0.79 of NVLink (measured rings, docs/model.md), 0.70 of
#: the xGMI links of a board (assumed for MI200)
_BUS_RATES: tuple[tuple[str, float], ...] = (
    (r"B300|GB200|B200", 711e9), (r"H[128]00|GH200|\bH20\b", 355e9), (r"A100|PG509", 237e9), (r"V100", 118e9),
    (r"MI300|MI325|MI355", 316e9), (r"MI250|MI210", 79e9),
)  # fmt: skip
#: GPUs that are named and have no such links: 0.7 of 16 lanes of PCIe 3
_BUS_OVER_PCIE = 11e9
#: GPUs without a name: the most frequent in public recordings
_BUS_UNNAMED = 237e9


class _Shaped(msgspec.Struct, gc=False):
    """Shapes on operators: `Input dims` is the 2021 spelling."""

    dims: object = msgspec.field(default=None, name="Input Dims")
    old_dims: object = msgspec.field(default=None, name="Input dims")
    types: object = msgspec.field(default=None, name="Input type")
    scalars: object = msgspec.field(default=None, name="Concrete Inputs")


class Collective(msgspec.Struct, frozen=True):
    """One collective: `size_bytes` counts the whole result of an all-gather and the whole input of a reduce-scatter."""

    kind: CollectiveKind
    size_bytes: float
    group: Communicator
    basis: str  # metadata | operator shapes | duration


def shapes_of(operator: Operator) -> Shapes:
    """Shapes that the recording holds for an operator."""
    try:
        args = msgspec.json.decode(operator.args, type=_Shaped)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        args = _Shaped()
    return shapes_from(args.dims or args.old_dims, args.types, args.scalars)


def kind_of(text: str) -> CollectiveKind | None:
    """Collective named in a kernel, an operator or a metadata field; None if there is none."""
    plain = re.sub(r"[^a-z]", "", text.lower())
    return next((kind for word, kind in _KINDS if word in plain), None)


def bus_rate(gpu_names: Sequence[str]) -> float:
    """Bus bandwidth in bytes/s that collectives of these GPUs are taken to reach, where nothing tells their size."""
    if not gpu_names:
        return _BUS_UNNAMED
    return next((rate for pattern, rate in _BUS_RATES if re.search(pattern, gpu_names[0])), _BUS_OVER_PCIE)


def describe(
    work: Work, linked: Linked, world_size: int, named_groups: dict[str, list[int]], bus_bytes_per_s: float = _BUS_UNNAMED
) -> Collective:
    """Kind, group and size of a communication kernel.

    Size, in this order: the profiler's own metadata (PyTorch 2.2 on), the input shapes of the enclosing operator, the
    duration (x the bus bandwidth of such GPUs, which holds waits of the recording too). The caller counts which.
    """
    args = work.args
    around = [op for op in linked.enclosing(work.operator) if not op.name.startswith("ProfilerStep")][:4]
    named = [str(args.collective or ""), *(op.name for op in around if "nccl:" in op.name or "comms" in op.name), work.name]
    kind: CollectiveKind = next((found for name in named if (found := kind_of(name))), "all_reduce")
    group = _group(work, world_size, named_groups)
    if args.in_elements is not None:
        width = _DTYPE_BYTES.get(str(args.dtype).lower(), 4.0)
        elements = max(number(args.in_elements), number(args.out_elements))
        return Collective(kind, elements * width, group, "metadata")
    for operator in around:
        shapes = shapes_of(operator)
        size = max((shapes.size_bytes(i) for i in range(len(shapes.dims))), default=0.0)
        if size:
            return Collective(kind, size * (group.size if kind == "all_gather" else 1), group, "operator shapes")
    volume = ring_volume(kind, group.size) if group.size > 1 else 1.0  # bytes on the bus per byte of the buffer
    return Collective(kind, (work.end_ns - work.start_ns) * 1e-9 * bus_bytes_per_s / volume, group, "duration")


def _group(work: Work, world_size: int, named_groups: dict[str, list[int]]) -> Communicator:
    """Of the ranks that the kernel lists, else of its process group in the header, else of its size, else the world."""
    args = work.args
    ranks = listed_ranks(args.group_ranks) or named_groups.get(str(args.group_name), [])
    size = int(number(args.group_size)) or len(ranks) or world_size
    return communicator(ranks, size) if ranks else Communicator(size)
