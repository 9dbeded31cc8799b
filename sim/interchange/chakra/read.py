"""Chakra nodes -> Step: one file per rank, dependencies only, so streams are made in one topological order."""

from __future__ import annotations

import ast
import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from sim.errors import Fault, InputError
from sim.interchange import kernel_class
from sim.interchange.chakra.nodes import COMM_TYPES, Node, NodeType, Trace, io_info
from sim.interchange.chakra.order import ordered
from sim.interchange.groups import Communicator, Groups, communicator
from sim.interchange.joined import join_collectives
from sim.interchange.kineto.events import clean_name
from sim.records import CollectiveKind, Dtype, Kernel, KernelKind, Kind, RankClass, Step, StepOperation

_RANK = re.compile(r"\.(\d+)\.(?:et|json)(?:\.gz)?$")
_KINDS: dict[str, CollectiveKind] = {
    "all_reduce": "all_reduce", "reduce": "all_reduce", "all_gather": "all_gather", "gather": "all_gather",
    "scatter": "broadcast", "broadcast": "broadcast", "all_to_all": "all_to_all", "reduce_scatter": "reduce_scatter",
    "reduce_scatter_block": "reduce_scatter", "barrier": "all_reduce",
}  # fmt: skip
#: FLOPs per byte above which a generated node of unknown type is taken as a matrix product
_ARITHMETIC_INTENSITY = 20.0
_COMM = (NodeType.COMM_COLL, NodeType.COMM_SEND, NodeType.COMM_RECV)


def step_from(
    traces: Sequence[Trace],
    *,
    groups: Mapping[str, Sequence[int]] | None = None,
    element_bytes: float = 1.0,
    num_ranks: int = 0,
) -> Step:
    """The files of one job's ranks as a step; one file alone stands for all ranks.

    `groups`: process group name -> ranks (the side file that generators write); `element_bytes` multiplies sizes that are
    element counts (STAGE); `num_ranks`: ranks of the job if a single file and no groups are given. Raises InputError for
    repeated ranks and for nodes that wait for each other.
    """
    ranks = _ranks(traces)
    world = num_ranks or max((rank + 1 for members in (groups or {}).values() for rank in members), default=0)
    world = max(world, len(traces), max(ranks) + 1 if len(traces) > 1 else 1)
    notes, counts = [note for trace in traces for note in trace.notes], Counter[str]()
    operations: list[StepOperation] = []
    classes = []
    members = {name: communicator(ranks) for name, ranks in (groups or {}).items()}
    naming = Groups(members.values(), world, counts)
    for rank, trace in zip(ranks, traces, strict=True):
        name = f"rank{rank}"
        operations += _Reader(trace, name, counts, (naming, members), element_bytes, {f"rank{r}" for r in ranks}).operations()
        alone = len(traces) == 1
        classes.append(RankClass(name=name, num_ranks=world if alone else 1, first_rank=0 if alone else rank))
    if len(traces) > 1:
        operations = join_collectives(operations, naming.sizes, counts)
    elif world > 1:
        notes.append(f"rank {ranks[0]} stands for all {world} ranks (one rank's file was given)")
    elif any(op.kind is Kind.COLLECTIVE for op in operations):
        notes.append("the number of ranks is not known: collectives cost nothing; give all ranks or --ranks N")
    notes += [f"{what}: {count}" for what, count in sorted(counts.items())]
    return Step(
        name=traces[0].file.rsplit("/", 1)[-1], operations=tuple(operations), rank_classes=tuple(classes),
        group_sizes=naming.sizes, origin="chakra", notes=tuple(notes),
    )  # fmt: skip


def _ranks(traces: Sequence[Trace]) -> list[int]:
    found = [int(match[1]) if (match := _RANK.search(trace.file)) else -1 for trace in traces]
    ranks = found if min(found) >= 0 else list(range(len(traces)))
    repeated = next((rank for rank, count in Counter(ranks).items() if count > 1), None)
    if repeated is not None:
        raise InputError(Fault(what=f"rank {repeated} is given twice", remedy="one file per rank", file=traces[-1].file))
    return ranks


class _Reader:
    """One rank's nodes as operations."""

    def __init__(
        self,
        trace: Trace,
        rank_class: str,
        counts: Counter[str],
        groups: tuple[Groups, dict[str, Communicator]],
        element_bytes: float,
        classes: set[str],
    ) -> None:
        self.trace, self.rank_class, self.counts, self.groups = trace, rank_class, counts, groups
        self.element_bytes, self.classes = element_bytes, classes
        self.nodes = {node.id: node for node in trace.nodes}
        if len(self.nodes) < len(trace.nodes):
            counts["nodes with an id that occurs before (dropped)"] += len(trace.nodes) - len(self.nodes)
        self.deps: dict[int, list[int]] = {}
        self.sequence: Counter[str] = Counter()
        self.place: dict[int, tuple[str, int]] = {}
        self.streams: dict[tuple[str, Any], str] = {}
        self.sends: dict[Any, list[str]] = defaultdict(list)
        self.received: Counter[Any] = Counter()

    def operations(self) -> list[StepOperation]:
        """All operations, in topological order, which is also the order of the streams."""
        order, self.deps = ordered(self.nodes, self.counts, self.trace.file)
        return [self._operation(self.nodes[identity]) for identity in order]

    def _operation(self, node: Node) -> StepOperation:
        fields = self._fields(node)
        stream = f"{self.rank_class}.{fields.pop('role')}"
        after = self._latest(self.deps[node.id], stream) + fields.pop("waits", [])
        sequence = self.sequence[stream]
        self.sequence[stream] += 1
        self.place[node.id] = (stream, sequence)
        if node.type == NodeType.COMM_SEND:
            self.sends[node.attributes.get("comm_tag")].append(f"{stream}.{sequence}")
        return StepOperation(
            id=f"{stream}.{sequence}", stream=stream, sequence=sequence, after=tuple(dict.fromkeys(after)),
            name=clean_name(node.name), **fields,
        )  # fmt: skip

    def _latest(self, deps: list[int], own: str) -> list[str]:
        """Of the dependencies on one stream the latest is enough: streams run in order."""
        latest: dict[str, int] = {}
        for dep in deps:
            stream, sequence = self.place[dep]
            if stream != own:
                latest[stream] = max(latest.get(stream, -1), sequence)
        return [f"{stream}.{sequence}" for stream, sequence in latest.items()]

    def _fields(self, node: Node) -> dict[str, Any]:
        attributes = node.attributes
        phase = str(attributes.get("phase") or "")
        if node.type in (NodeType.MEM_LOAD, NodeType.MEM_STORE):
            return self._memory(node) | {"phase": phase}
        if attributes.get("is_cpu_op"):
            if node.type in _COMM:
                self.counts["communication nodes of the CPU (taken as CPU time: the GPU's follow)"] += 1
            role = self._stream("cpu", attributes.get("tid", 0))
            moved = self._size(attributes.get("tensor_size"))
            if moved and not node.duration_us:  # work of the host on memory, without a time: the machine decides
                work = {"num_elements": moved, "bytes_per_element": 1.0, "category": "cpu_optimizer", "phase": phase}
                return {"role": role, "kind": Kind.HOST_UPDATE} | work
            return {"role": role, "kind": Kind.COMPUTE, "category": "idle", "fixed_s": node.duration_us * 1e-6, "phase": phase}
        if node.type == NodeType.COMM_COLL:
            return self._collective(node) | {"phase": phase}
        if node.type in (NodeType.COMM_SEND, NodeType.COMM_RECV):
            return self._message(node) | {"phase": phase}
        if node.type == NodeType.COMP:
            role = self._stream("compute", attributes.get("stream", attributes.get("tid", 0)))
            return {"role": role, "phase": phase} | self._compute(node)
        self.counts["nodes without work (metadata or unknown type)"] += 1
        return {"role": "cpu", "kind": Kind.MARKER, "category": "idle"}

    def _stream(self, role: str, key: Any) -> str:
        number = sum(known == role for known, _ in self.streams)
        return self.streams.setdefault((role, key), f"{role}{number}" if number else role)

    def _size(self, value: Any) -> float:
        return max(0.0, kernel_number(value)) * self.element_bytes

    def _memory(self, node: Node) -> dict[str, Any]:
        is_load = node.type == NodeType.MEM_LOAD
        source, target = ("dram", "gpu") if is_load else ("gpu", "dram")
        source, target = str(node.attributes.get("source") or source), str(node.attributes.get("target") or target)
        return {
            "role": "h2d" if is_load else "d2h", "kind": Kind.TRANSFER, "category": "transfer", "source": source,
            "target": target, "size_bytes": self._size(node.attributes.get("tensor_size")),
            "is_pinned": node.attributes.get("is_pinned") is not False,
        }  # fmt: skip

    def _collective(self, node: Node) -> dict[str, Any]:
        number = int(kernel_number(node.attributes.get("comm_type")))
        name = COMM_TYPES[number] if 0 <= number < len(COMM_TYPES) else "all_reduce"
        naming, members = self.groups
        held = members.get(str(node.attributes.get("pg_name")), Communicator(naming.world))
        group, size = naming.name(held), held.size
        amount = self._size(node.attributes.get("comm_size")) or 8.0
        kind = _KINDS[name]
        return {
            "role": "collective", "kind": Kind.COLLECTIVE, "category": "collective", "collective": kind, "group": group,
            "size_bytes": amount * size if kind == "all_gather" else amount,
        }  # fmt: skip

    def _message(self, node: Node) -> dict[str, Any]:
        """A send moves the bytes; a receive waits for the matching send (its own, as a stand-in, for a rank not given)."""
        tag = node.attributes.get("comm_tag")
        if node.type == NodeType.COMM_RECV:
            sends = self.sends[tag]
            index = self.received[tag]
            self.received[tag] += 1
            self.counts["receives matched with this rank's own send"] += 1
            waits = [sends[min(index, len(sends) - 1)]] if sends else []
            return {"role": "p2p_in", "kind": Kind.MARKER, "category": "collective", "waits": waits}
        self.counts["messages sent around the ranks as a ring (partners are not modelled one by one)"] += 1
        return {
            "role": "p2p", "kind": Kind.COLLECTIVE, "category": "collective", "collective": "broadcast", "group": "world",
            "size_bytes": self._size(node.attributes.get("comm_size")),
        }  # fmt: skip

    def _compute(self, node: Node) -> dict[str, Any]:
        attributes = node.attributes
        flops = max(0.0, kernel_number(attributes.get("num_ops")))
        written = self._size(attributes.get("tensor_size"))
        inputs = attributes.get("inputs")
        if isinstance(inputs, list):  # generated (STAGE): sizes of inputs by name, tensor_size is the output
            read = sum(self._size(item) for item in inputs if kernel_number(item))
        else:  # all traffic, as the roofline of ASTRA-sim takes it
            read = written = written / 2
        seconds = node.duration_us * 1e-6
        if not seconds and not flops and not written:
            self.counts["compute nodes without duration or amount"] += 1
            return {"kind": Kind.MARKER, "category": "compute"}
        kind: KernelKind = "gemm" if flops > _ARITHMETIC_INTENSITY * (read + written) else "elementwise"
        dtype: Dtype = "bf16"
        if seconds and not flops:
            flops, read, written, types = self._from_shapes(node, read, written)
            kind, dtype = kernel_class.kind_of(node.name), kernel_class.dtype_of(node.name, types)
        self.counts["compute nodes timed by their FLOPs and bytes"] += not seconds
        kernel = Kernel(
            kind=kind,
            flops=flops,
            read_bytes=read,
            write_bytes=written,
            recorded_s=seconds,
            dtype=dtype,
            name=clean_name(node.name),
            variant=kernel_class.variant_of(node.name),
        )
        return {"kind": Kind.COMPUTE, "category": "compute", "kernels": (kernel,)}

    def _from_shapes(self, node: Node, read: float, written: float) -> tuple[float, float, float, tuple[str, ...]]:
        """Amounts by the operator that launched the kernel (its control dependency), if the file holds shapes."""
        parent = next((self.nodes[dep] for dep in node.ctrl_deps if dep in self.nodes), None)
        if parent is None or not parent.inputs:
            return 0.0, read, written, ()
        _, dims, types = io_info(parent.inputs)
        shapes = kernel_class.shapes_from(_flat(_literal(dims)), _flat(_literal(types)), ())
        shapes = kernel_class.Shapes(shapes.dims, tuple(t.removeprefix("Tensor(").rstrip(")") for t in shapes.types))
        amount = kernel_class.amount_of(re.sub(r"\(\d+\)$", "", parent.name), shapes)
        return amount.flops, amount.read_bytes, amount.write_bytes, shapes.types


def kernel_number(value: Any) -> float:
    """A number written as one, or as text; 0 otherwise."""
    try:
        return float(value) if value is not None and not isinstance(value, bool | list) else 0.0
    except (TypeError, ValueError):
        return 0.0


def _literal(text: str) -> Any:
    try:
        return ast.literal_eval(text) if len(text) < 2**14 else None
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        return None


def _flat(value: Any) -> list[Any]:
    """Shapes of tensor lists are nested one level deeper than shapes of tensors."""
    found: list[Any] = []
    for item in value if isinstance(value, list) else ():
        found += item if isinstance(item, list) and item and isinstance(item[0], list) else [item]
    return found
